"""Error messages for optional libraries, and for names of tensorpack that this package lacks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

_PACKAGES = {
    "cv2": "'tpk-tensorpack[images]'",
    "msgpack": "msgpack msgpack-numpy",
    "pynvml": "nvidia-ml-py",
    "scipy.io": "'tpk-tensorpack[datasets]'",
    "sklearn.datasets": "scikit-learn",
}


def optional_library(module: str, owner: str) -> Any:
    """Import a module of an optional library.

    Args:
        module: the name of the module.
        owner: what needs it.

    Raises:
        ImportError: it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{owner} needs {module}: pip install {_PACKAGES.get(module, module)}") from error


def not_here(module: str, instead: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__``, which raises an `ImportError` with the replacement of a missing name.

    These names belong to tensorpack's implementation: they are not in its ``__all__`` or its documentation.

    Args:
        module: the name of the module.
        instead: the replacements, by name.
    """

    def missing(name: str) -> Any:
        if name in instead:
            # The message of an AttributeError would be lost in `from module import name`.
            raise ImportError(
                f"{module.removeprefix('tpk_')}.{name} is an internal name of tensorpack that is not supported. "
                f"Use {instead[name]}",
                name=module,
            )
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)

    return missing
