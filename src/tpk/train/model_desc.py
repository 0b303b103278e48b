"""A model as a class: its inputs, its graph and its optimizer."""

from __future__ import annotations

import abc
from typing import Any

from tpk.errors import ConfigError, InputError
from tpk.graph.gradients import check_optimizer
from tpk.graph.signature import check_signature
from tpk.plugin.recorded_options import RecordsOptions


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
        """Return a `tf.TensorSpec(shape, dtype, name)` for each argument of `build_graph`.

        A model that creates all of its data in the graph returns an empty list and is trained on
        ``data=TensorInput(lambda: [])``.
        """

    @abc.abstractmethod
    def build_graph(self, *tensors: Any) -> Any:
        """Add one replica of the model to the graph, and return its cost: a scalar floating-point tensor.

        It is a tower function: it may be called several times, creates variables by `tf.compat.v1.get_variable` or
        `tpk.layers`, and does not open a scope called ``tower…``.
        """

    @abc.abstractmethod
    def optimizer(self) -> Any:
        """Return a new `tf.compat.v1.train.Optimizer`; called once, in the graph of the training."""

    def get_input_signature(self) -> list[Any]:
        """Return the checked result of `inputs`.

        Raises:
            InputError: if it is not a list of `tf.TensorSpec`s with names.
            ConfigError: if `inputs` is not a method.
        """
        _check_method(self, "inputs")
        try:
            signature = self.inputs()
        except RuntimeError as error:
            if "placeholder" not in str(error):
                raise
            raise InputError(
                f"{type(self).__name__}.inputs makes a placeholder. Return tf.TensorSpec(shape, dtype, name)s instead: "
                "the input source decides where the data comes from."
            ) from error
        return list(check_signature(signature))

    def get_optimizer(self) -> Any:
        """Return the checked result of `optimizer`.

        Raises:
            ConfigError: if it is not an optimizer for graph mode, or `optimizer` is not a method.
        """
        _check_method(self, "optimizer")
        return check_optimizer(self.optimizer())


def _check_method(model: ModelDesc, name: str) -> None:
    value = getattr(model, name)
    if not callable(value):
        raise ConfigError(
            f"{type(model).__name__}.{name} is {value!r}; expected a method. Write `def {name}(self): return ...`."
        )
