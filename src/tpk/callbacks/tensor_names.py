"""Tensors by the names that callbacks are given."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from tpk.errors import ConfigError, TowerError, TpkError

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


def find_tensor(trainer: TrainerProtocol, name: str) -> Any:
    """Return the tensor of a name in the main training tower, if there is one, or else in the graph.

    So a callback that was given the name of a tensor works with every strategy: inside a tower a tensor has the same
    name wherever the tower is.

    Args:
        trainer: whose graph it is in.
        name: as it is inside the tower, with or without ``:0``.

    Raises:
        TowerError: if there is none in either; the message has the nearest names.
        ConfigError: likewise, where there is no tower.

    Example:
        ```python
        class Accuracies(tpk.Callback):
            def setup_graph(self, trainer):
                self.accuracy = tpk.find_tensor(trainer, "accuracy")

            def before_run(self, run_context):
                return self.accuracy
        ```
    """
    return find_in_each_tower(trainer, name)[0]


def find_in_each_tower(trainer: TrainerProtocol, name: str) -> list[Any]:
    """Return the tensors of a name in all training towers, the main one first, or else the one in the graph.

    Args:
        trainer: whose graph they are in.
        name: see `find_tensor`.

    Raises:
        TowerError, ConfigError: see `find_tensor`.
    """
    missing: TpkError | None = None
    training = trainer.towers.training()
    if training:
        try:
            return [tower.get_tensor(name) for tower in training]
        except TowerError as error:
            missing = error
        except ValueError:  # TensorFlow's own, of what can be no name.
            missing = TowerError(f"there is no tensor {name!r}: that can be no name of one.")
    try:
        return [trainer.graph.get_tensor_by_name(name if ":" in name else f"{name}:0")]
    except (KeyError, ValueError):
        raise missing or ConfigError(f"the graph has no tensor {name!r}. {_nearest(trainer, name)}") from None


def _nearest(trainer: TrainerProtocol, name: str) -> str:
    names = [op.name for op in trainer.graph.get_operations() if op.outputs]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"Nearest: {', '.join(near)}." if near else "Give it a name with tf.identity(…, name=…)."
