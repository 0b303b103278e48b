"""Tensors by the names that callbacks are given."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from tpk.errors import ConfigError, TowerError, TpkError

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


def find_tensor(trainer: TrainerProtocol, name: str) -> Any:
    """Return the tensor of a name in the main training tower, if there is one, or else in the graph.

    Args:
        trainer: whose graph it is in.
        name: with or without ``:0``.

    Raises:
        TowerError: if there is none in either; the message has the nearest names.
        ConfigError: likewise, where there is no tower.
    """
    towers = getattr(trainer, "towers", None)
    main_tower = next(iter(towers.training()), None) if towers is not None else None
    missing: TpkError | None = None
    if main_tower is not None:
        try:
            return main_tower.get_tensor(name)
        except TowerError as error:
            missing = error
        except ValueError:  # TensorFlow's own, of what can be no name.
            missing = TowerError(f"there is no tensor {name!r}: that can be no name of one.")
    try:
        return trainer.graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
    except (KeyError, ValueError):
        names = [op.name for op in trainer.graph.get_operations() if op.outputs]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"Nearest: {', '.join(near)}." if near else "Give it a name with tf.identity(…, name=…)."
        raise missing or ConfigError(f"the graph has no tensor {name!r}. {hint}") from None
