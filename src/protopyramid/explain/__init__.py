"""Explanation: why the model says what it says, as objects, pictures and pages."""

from protopyramid.utils.callable_modules import make_callable

make_callable(__name__, "protopyramid.api:explain")  # pp.explain(run, image)
