"""Lookup of names that a module does not define itself, and the errors about names that are not available."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from tpk.text import nearest
from tpk_tensorflow1.names import EXTRAS, IMPLEMENTATION, INSTEAD, LIBRARIES, MODULES
from tpk_tensorflow1.runner.imports import compiled

_PACKAGE = "tpk_tensorflow1"
_REWRITTEN = ("tf_slim.layers.optimizers", "tf_slim.learning", "tf_slim.nets.", "tf_slim.training.")
"""Files that use names which TensorFlow has moved, and networks, which are built of the layers of this package."""


def finder_in(module: str, names: Iterable[str], *elsewhere: ModuleType) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module of TensorFlow 1.

    It raises an `AttributeError` for names that are not available.

    Args:
        module: the name of the module in scripts, such as ``"tf.contrib.layers"``.
        names: the names that the module has.
        elsewhere: modules that have further names of the module.
    """
    _, _, path = module.partition(".")
    known = [*names, *(name for each in elsewhere for name in dir(each))]

    def find(name: str) -> Any:
        if name == "__path__":
            return []  # Python then asks `_NamesFinder` for what an import statement does not find in the module.
        # Python itself looks up other such names.
        if name.startswith("__"):
            raise AttributeError(name)
        if f"{path}.{name}" in MODULES:
            return importlib.import_module(MODULES[f"{path}.{name}"])
        if name in IMPLEMENTATION:
            return importlib.import_module(f"{_PACKAGE}.{path}")
        for each in elsewhere:
            if hasattr(each, name):
                return getattr(each, name)
        return further_name(module, name, known)

    return find


def own_names(module: str) -> list[str]:
    """Return the public functions and classes of a module that it defines, or has from TensorFlow or `tpk.layers`.

    Args:
        module: its ``__name__``.
    """
    sources = (module, "tensorflow.", "tpk.layers.")
    return [
        name
        for name, value in vars(sys.modules[module]).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__.startswith(sources)
    ]


def further_name(module: str, name: str, known: Iterable[str] = ()) -> Any:
    """Return a name of a module from a library.

    Args:
        module: the name of the module in scripts.
        name: the name.
        known: the names that the module has itself.

    Raises:
        AttributeError: nothing has the name, or the library cannot be imported. The message says what to use instead.
    """
    path = module.partition(".")[2]
    use = INSTEAD.get(f"{path}.{name}".removeprefix("."))
    similar = "" if use else nearest(name, known, n=1, cutoff=0.75)
    for library in () if use else LIBRARIES.get(path, ()):
        try:
            value = getattr(_library(library), name, None)
            if not isinstance(value, ModuleType | None):
                return value
            if value is not None and value.__name__.startswith(f"{library}."):  # not a module that it only imports
                return _library(value.__name__)
        except ImportError as error:
            package = library.partition(".")[0]
            install = f"'tpk-tensorflow1[{EXTRAS[package]}]'" if package in EXTRAS else package
            use = f"the package {package}, if it has this name ({error}): pip install {install}"
            break
    text = f"{module}.{name} is not available on TensorFlow {importlib.import_module('tensorflow').__version__}"
    if use:
        text += f": use {use}"
    raise AttributeError(f"{text}.{similar}" if similar else f'{text} (see "TF1 programs" in tpk\'s manual)', name=name)


def _library(name: str) -> ModuleType:
    """Return a module of a library; those in `_REWRITTEN` with their imports replaced."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or not name.startswith(_REWRITTEN):
        return importlib.import_module(name)
    alias = f"{_PACKAGE}.{name}"
    if alias not in sys.modules:
        module = importlib.util.module_from_spec(spec)
        code = compiled(Path(spec.origin).read_bytes(), spec.origin, {"tf_slim": "tensorflow.contrib.slim"})
        exec(code, vars(module))
        sys.modules[alias] = module
    return sys.modules[alias]


class _NamesFinder(MetaPathFinder):
    """Finds in import statements what attributes find, with the same errors.

    Python replaces the message of an `AttributeError` in ``from module import name`` by a message of its own, but not
    the message of an `ImportError` from a finder.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module, _, name = fullname.rpartition(".")
        if module.partition(".")[0] != _PACKAGE or name.startswith("__"):
            return None
        try:
            value = getattr(importlib.import_module(module), name)
        except AttributeError as error:
            # Python ignores the error if `name` is the name of the module that it looks for.
            raise ModuleNotFoundError(str(error), name=f"tensorflow{fullname.removeprefix(_PACKAGE)}") from None
        return importlib.util.spec_from_loader(fullname, _LoaderOf(value)) if isinstance(value, ModuleType) else None


class _LoaderOf(Loader):
    """Loads a module that exists under another name."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = self._module


sys.meta_path.append(_NamesFinder())
