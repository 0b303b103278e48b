"""The launcher, which combines a configuration with a trainer."""

from __future__ import annotations

from typing import Any

from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.train.base import logged_by_script
from tpk_tensorpack.train.config import TrainConfig
from tpk_tensorpack.train.tower import SingleCostTrainer, apply_default_prefetch

__all__ = ["apply_default_prefetch", "launch_train_with_config"]


def launch_train_with_config(config: TrainConfig, trainer: Any) -> None:
    """Train the model in a configuration.

    Args:
        config: the configuration.
        trainer: a `SingleCostTrainer` that has not been used.

    Raises:
        ConfigError: an argument has the wrong type, or the configuration has no model or no data.

    Example:
        ```python
        launch_train_with_config(TrainConfig(model=Model(), data=QueueInput(flow), max_epoch=10), SimpleTrainer())
        ```
    """
    if not isinstance(config, TrainConfig):
        raise CheckError(f"launch_train_with_config got {config!r}; expected a TrainConfig")
    if not isinstance(trainer, SingleCostTrainer):
        raise CheckError(
            f"launch_train_with_config got {trainer!r}; expected a trainer of single-cost models, such as "
            "SimpleTrainer()"
        )
    with logged_by_script():
        trainer.setup_model(config)
        trainer.train_with_defaults(**config.of_training())
