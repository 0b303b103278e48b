"""Error messages for names of tensorpack that this package lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


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
