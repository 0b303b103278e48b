"""Names of tensors, as callbacks take them: those in the main training tower, or else in the graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tpk.errors import TowerError


def tensors_maybe_in_tower(trainer: Any, names: Iterable[Any]) -> list[Any]:
    """Return tensors by their names, with or without ``:0``, in the main training tower or else in the graph.

    Args:
        trainer: that of the towers, if it has any.
        names: the names; what is a tensor already stays what it is.

    Raises:
        KeyError: there is no such tensor in either.
    """
    return [_tensor(trainer, name) if isinstance(name, str) else name for name in names]


def _tensor(trainer: Any, name: str) -> Any:
    towers = getattr(trainer, "towers", None)
    training = towers.training() if towers is not None else ()
    if training:
        try:
            return training[0].get_tensor(name)
        except (TowerError, LookupError):
            pass
    return trainer.graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
