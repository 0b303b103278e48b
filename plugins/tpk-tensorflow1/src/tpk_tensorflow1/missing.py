"""Errors about names of TensorFlow 1 that are not available."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from tpk.text import nearest

ESTIMATOR = 'tpk.launch_train_with_config, as the page "Coming from tf.estimator" of tpk\'s manual shows'
"""What to write instead of an Estimator."""


def finder_in(module: str, names: Iterable[str], instead: dict[str, str] | None = None) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module, which raises an `AttributeError` for names that the module lacks.

    Args:
        module: the name of the module in scripts.
        names: the names that the module has.
        instead: what to write instead of names that are not available.
    """
    known = sorted(names)

    def missing(name: str) -> Any:
        # Python itself looks up names such as `__path__`.
        if name.startswith("__"):
            raise AttributeError(name)
        raise no_such_name(module, name, known, (instead or {}).get(name))

    return missing


def no_such_name(module: str, name: str, known: Iterable[str], instead: str | None = None) -> AttributeError:
    """Return the error about a name that is not available.

    Args:
        module: the name of the module in scripts.
        name: the missing name.
        known: the names that the module has.
        instead: what to write instead.
    """
    version = importlib.import_module("tensorflow").__version__
    hint = f" Write {instead}." if instead else nearest(name, known, n=1)
    return AttributeError(f"{module}.{name} is not available on TensorFlow {version}.{hint}", name=name)
