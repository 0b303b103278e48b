"""Trainers of tensorpack 0.2 to 0.6 that build their own graphs, from input without feeds."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tpk.errors import ConfigError
from tpk_tensorpack.input_source import InputSource, QueueInput
from tpk_tensorpack.tfutils.tower import TowerContext, get_current_tower_context
from tpk_tensorpack.train.tower import TowerTrainer

__all__ = ["FeedfreeTrainerBase", "SimpleFeedfreeTrainer", "SingleCostFeedfreeTrainer"]


class FeedfreeTrainerBase(TowerTrainer):
    """Base class of trainers whose ``_setup`` builds towers and sets ``train_op``.

    The data comes from the configuration, or from ``self._input_source`` if a subclass sets it before it calls the base
    constructor.

    Args:
        config: a `TrainConfig`, with a model.

    Raises:
        ConfigError: (when training) the model or the data is missing, or the input uses feeds.

    Example:
        ```python
        class GANTrainer(FeedfreeTrainerBase):
            def _setup(self):
                super()._setup()
                self.build_train_tower()
                optimizer = self.model.get_optimizer()
                generator = optimizer.minimize(self.model.g_loss, var_list=self.model.g_vars)
                with tf.control_dependencies([generator]):
                    self.train_op = optimizer.minimize(self.model.d_loss, var_list=self.model.d_vars)


        GANTrainer(TrainConfig(dataflow=flow, model=Model(), max_epoch=10)).train()
        ```
    """

    _input_source: InputSource | None = None

    def _setup(self) -> None:
        model = self._model_of(self.config)
        if self._input_source is None:
            data = self._data_of(self.config)
            self._input_source = data if isinstance(data, InputSource) else QueueInput(data)
        if self._input_source.is_fed:
            raise ConfigError(
                f"{type(self).__name__} does not support input with feeds, such as "
                f"{type(self._input_source).__name__}. Use QueueInput(flow)"
            )
        signature = model.get_input_signature()
        self.input_source = self._input_source
        self.register_callback(self._input_source.setup(signature))
        self.tower_func = self.make_tower_func(model.build_graph, signature)

    def _get_input_tensors(self) -> list[Any]:
        """Return the input tensors of a tower."""
        assert self._input_source is not None
        return self._input_source.get_input_tensors()

    def build_train_tower(self) -> None:
        """Build a training tower, in the current `TowerContext` or in a new one."""
        with nullcontext() if get_current_tower_context() else TowerContext("", is_training=True):
            self.tower_func(*self._get_input_tensors())


class SingleCostFeedfreeTrainer(FeedfreeTrainerBase):
    """Base class of feed-free trainers of single-cost models."""

    def _get_cost_and_grad(self) -> tuple[Any, list[tuple[Any, Any]]]:
        """Build a tower; return its cost and its pairs of gradient and variable."""
        self.build_train_tower()
        cost = self.towers[-1].output
        pairs = self._get_optimizer().compute_gradients(cost, colocate_gradients_with_ops=True)
        return cost, [(gradient, variable) for gradient, variable in pairs if gradient is not None]

    def _get_optimizer(self) -> Any:
        return self.model.get_optimizer() if self.config.optimizer is None else self.config.optimizer


class SimpleFeedfreeTrainer(SingleCostFeedfreeTrainer):
    """Train a single-cost model on one device, with the `InputSource` of the configuration."""

    def _setup(self) -> None:
        super()._setup()
        with TowerContext("", is_training=True):
            _, gradients = self._get_cost_and_grad()
            self.train_op = self._get_optimizer().apply_gradients(gradients, name="min_op")
