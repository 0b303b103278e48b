"""The launcher: a configuration and a trainer."""

from __future__ import annotations

from typing import Any

import tpk
from tpk.errors import ConfigError
from tpk_tensorpack.input_source import StagingInput
from tpk_tensorpack.train.base import logged_by_script
from tpk_tensorpack.train.config import TrainConfig
from tpk_tensorpack.train.tower import SingleCostTrainer
from tpk_tensorpack.utils import logger

__all__ = ["launch_train_with_config"]


def apply_default_prefetch(input_source_or_dataflow: Any, trainer: SingleCostTrainer) -> tpk.InputSource:
    """Return the input source with which a trainer trains on data.

    A data flow is put into a queue; or fed, if that is what the trainer does by default. What several towers take their
    data from is staged on their devices.

    Args:
        input_source_or_dataflow: a data flow, or an input source.
        trainer: the trainer.
    """
    source = input_source_or_dataflow
    if not isinstance(source, tpk.InputSource):
        source = trainer.default_input(source)
        logger.info("The data flow is taken by a %s.", type(source).__name__)
    is_staged = source.is_fed or isinstance(source, tpk.StagingInput | tpk.DummyConstantInput)
    if len(trainer.devices) > 1 and not is_staged:
        source = StagingInput(source)
        logger.info("What the towers take is staged by a StagingInput.")
    return source


def launch_train_with_config(config: TrainConfig, trainer: Any) -> None:
    """Train the model of a configuration.

    Args:
        config: the configuration.
        trainer: a `SingleCostTrainer`, which has not trained yet.

    Raises:
        ConfigError: one of them is something else, or the configuration has no model.

    Example:
        ```python
        launch_train_with_config(TrainConfig(model=Model(), data=QueueInput(flow), max_epoch=10), SimpleTrainer())
        ```
    """
    if not isinstance(config, TrainConfig):
        raise ConfigError(f"launch_train_with_config got {config!r}; expected a TrainConfig")
    if not isinstance(trainer, SingleCostTrainer):
        raise ConfigError(
            f"launch_train_with_config got {trainer!r}; expected a trainer of models with one cost, such as "
            "SimpleTrainer()"
        )
    if config.model is None:
        raise ConfigError("launch_train_with_config: the TrainConfig has no model. Give it model=Model()")
    with logged_by_script():
        source = apply_default_prefetch(config.dataflow if config.data is None else config.data, trainer)
        trainer.setup_graph(
            config.model.get_input_signature(), source, config.model.build_graph, config.model.get_optimizer
        )
        trainer.train_with_defaults(
            callbacks=config.callbacks,
            monitors=config.monitors,
            session_creator=config.session_creator,
            session_config=config.session_config,
            session_init=config.session_init,
            steps_per_epoch=config.steps_per_epoch,
            starting_epoch=config.starting_epoch,
            max_epoch=config.max_epoch,
            extra_callbacks=config.extra_callbacks,
        )
