"""What a module of tensorpack says of its names that are not here: what to use in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def not_here(module: str, instead: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__``: an `ImportError` that says what to use for names that are not here.

    Such names are of tensorpack's implementation: they stand in no ``__all__``, and in no documentation of it.

    Args:
        module: the module.
        instead: what to use, by name.
    """

    def missing(name: str) -> Any:
        if name in instead:
            # Of an AttributeError, `from module import name` would tell nothing.
            raise ImportError(
                f"{module.removeprefix('tpk_')}.{name} is a part of tensorpack's implementation that is not here. "
                f"Use {instead[name]}",
                name=module,
            )
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)

    return missing
