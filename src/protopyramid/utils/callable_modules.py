"""Modules that can be called: `pp.explain` is both a package and a public function."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    """A module whose call is that of a function of another module, imported when it is needed.

    Python binds a submodule's name in its package, so a function of the same name would be lost as soon
    as the submodule is imported. Here both are one object.
    """

    _function_home: str
    _function_name: str

    def _function(self) -> Any:
        return getattr(import_module(self._function_home), self._function_name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._function()(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._function())


def make_callable(name: str, function: str) -> None:
    """Let the module `name` be called as `function`, written as "package.module:name"."""
    module = sys.modules[name]
    module.__class__ = CallableModule
    home, _, function_name = function.partition(":")
    module.__dict__.update(_function_home=home, _function_name=function_name)
