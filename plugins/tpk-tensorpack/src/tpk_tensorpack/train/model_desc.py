"""Models as classes with inputs, a graph and an optimizer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import tpk
from tpk.errors import ConfigError
from tpk_tensorpack.tfutils.tower import get_current_tower_context
from tpk_tensorpack.train.older import OlderModel
from tpk_tensorpack.utils.argtools import memoized_method

__all__ = ["ModelDesc", "ModelDescBase"]


class ModelDescBase(OlderModel):
    """A model class with ``inputs`` and ``build_graph``.

    Attributes:
        input_names: the names of the inputs.
        training: whether the tower under construction is a training tower.
    """

    @memoized_method
    def get_input_signature(self) -> list[Any]:
        """Return the result of `inputs` as `tf.TensorSpec`s; `inputs` is called once."""
        # Placeholders are created in a temporary graph.
        with tf.Graph().as_default():
            return [_spec(each) for each in self.inputs()]

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs."""
        return [spec.name for spec in self.get_input_signature()]

    @property
    def training(self) -> bool:
        """Whether the tower under construction is a training tower; a model may set it."""
        if "_training" in vars(self):
            return bool(self._training)
        tower = get_current_tower_context()
        if tower is None:
            raise RuntimeError("'training' is available only while a tower is being built, within a TowerContext")
        return bool(tower.is_training)

    @training.setter
    def training(self, value: bool) -> None:
        self._training = value


class ModelDesc(ModelDescBase, tpk.ModelDesc):
    """A model class with one cost and one optimizer, defined by ``inputs``, ``build_graph`` and ``optimizer``.

    Example:
        ```python
        class Model(ModelDesc):
            def inputs(self):
                return [tf.TensorSpec([None, 28, 28], tf.float32, "image"), tf.TensorSpec([None], tf.int32, "label")]

            def build_graph(self, image, label):
                logits = FullyConnected("fc", image, 10)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=label)
                return tf.reduce_mean(losses, name="cost")

            def optimizer(self):
                return tf.train.AdamOptimizer(1e-3)
        ```
    """

    @memoized_method
    def get_optimizer(self) -> Any:
        """Return the optimizer; `optimizer` is called once."""
        return tpk.ModelDesc.get_optimizer(self)


def _spec(given: Any) -> Any:
    if isinstance(given, tf.TensorSpec):
        return given
    if isinstance(given, tf.Tensor) and given.op.type == "Placeholder":
        return tf.TensorSpec(given.shape, given.dtype, given.op.name)
    raise ConfigError(f"inputs() returned {given!r}; expected tf.TensorSpec(shape, dtype, name), or a placeholder")
