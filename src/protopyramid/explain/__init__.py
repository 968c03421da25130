"""Explanation: why the model says what it says, as results, JSON and figures."""

from protopyramid.utils.callable_modules import make_callable

make_callable(__name__, "protopyramid.api:explain")  # pp.explain(run, image)
