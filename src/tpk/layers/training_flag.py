"""Whether a layer is in training or in inference: known when the graph is built, or decided in each step."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.layers.layer_scope import LayerScope


@attrs.frozen
class TrainingFlag:
    """The `training` argument of a layer.

    Attributes:
        static: whether it is training, if that is known when the graph is built, else None.
        tensor: what decides in each step, if it is not: a boolean tensor or variable.
    """

    static: bool | None
    tensor: Any = None

    @classmethod
    def of(cls, layer: LayerScope, training: Any) -> TrainingFlag:
        """Take a boolean, 0 or 1, or a scalar boolean tensor or variable.

        Raises:
            ConfigError: if it is anything else; None too, as there is no global learning phase.
        """
        if isinstance(training, np.bool_ | Integral) and training in (0, 1):
            return cls(bool(training))
        if isinstance(training, tf.Variable) and _is_scalar_bool(training):
            return cls(None, training)
        if tf.is_tensor(training) and _is_scalar_bool(training):
            static = tf.get_static_value(training)
            return cls(None if static is None else bool(static), training)
        raise layer.error(
            "training",
            training,
            "True, False, or a scalar boolean tensor",
            "In a tower function, pass training=get_current_tower_context().is_training.",
        )

    def choose(self, in_training: Callable[[], Any], in_inference: Callable[[], Any]) -> Any:
        """Build one of the two, or a `tf.cond` between them if only the step can tell."""
        if self.static is None:
            return tf.cond(self.tensor, in_training, in_inference)
        return in_training() if self.static else in_inference()


def _is_scalar_bool(tensor: Any) -> bool:
    return bool(tensor.dtype.base_dtype == tf.bool and tensor.shape.rank in (0, None))
