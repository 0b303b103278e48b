"""A model as a class: its inputs, its graph, its optimizer."""

from __future__ import annotations

import abc
from typing import Any

from tpk.graph.gradients import check_optimizer
from tpk.graph.signature import check_signature
from tpk.plugin.options import RecordsOptions


class ModelDesc(RecordsOptions, abc.ABC):
    """Describes a single-cost model.

    Example:
        ```python
        class Linear(tpk.ModelDesc):
            def inputs(self):
                return [tf.TensorSpec([None, 64], tf.float32, "x"), tf.TensorSpec([None], tf.float32, "y")]

            def build_graph(self, x, y):
                prediction = tpk.layers.dense(x, 1, name="linear")[:, 0]
                return tf.reduce_mean((prediction - y) ** 2, name="cost")

            def optimizer(self):
                return tf.compat.v1.train.GradientDescentOptimizer(0.1)
        ```
    """

    @abc.abstractmethod
    def inputs(self) -> list[Any]:
        """Return a `tf.TensorSpec(shape, dtype, name)` for each argument of `build_graph`."""

    @abc.abstractmethod
    def build_graph(self, *tensors: Any) -> Any:
        """Add one replicate of the model to the graph, and return its cost: a scalar floating-point tensor.

        It is a tower function: it may be called several times, creates variables by `tf.compat.v1.get_variable` or
        `tpk.layers`, and opens no scope called ``tower…``.
        """

    @abc.abstractmethod
    def optimizer(self) -> Any:
        """Return a new `tf.compat.v1.train.Optimizer`; called once, in the graph of the training."""

    def get_input_signature(self) -> list[Any]:
        """Return `inputs`, checked.

        Raises:
            InputError: if they are no `tf.TensorSpec`s with names.
        """
        return list(check_signature(self.inputs()))

    def get_optimizer(self) -> Any:
        """Return `optimizer`, checked.

        Raises:
            ConfigError: if it is no optimizer for graph mode.
        """
        return check_optimizer(self.optimizer())
