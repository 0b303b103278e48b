"""Dynamic loss scaling, which keeps gradients within the range of ``float16``."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from tpk.argument_checks import check_at_least, check_positive
from tpk.errors import ConfigError
from tpk.graph.optimizers.non_finite import GatedOptimizer, multiply
from tpk.graph.optimizers.proxy_optimizer import unwrapped
from tpk.graph.reports.summary_ops import add_tensor_summary

_LARGEST_SCALE = 2.0**126
"""The inverse of a larger scale is not a normal number in ``float32``."""


class DynamicLossScaleOptimizer(GatedOptimizer):
    """Multiplies the cost by a scale, and gradients by its inverse.

    Without scaling, many gradients of a ``float16`` model are zero, because they are too small for the type. A step
    whose gradients are not finite is skipped: nothing is updated, and the scale is divided by `factor`, but not below
    1. After `growth_interval` updates in a row the scale is multiplied by `factor`. This is the method of NVIDIA's
    guide, "Train With Mixed Precision", section "Choosing A Scaling Factor"
    (https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/), and of Micikevicius et al., 2018
    (https://arxiv.org/abs/1710.03740).

    The scale is summarized as ``<name>/scale``. If it stays at 1, gradients are infinite for another reason than
    scaling. The gradient of a ``float16`` cost is the scale itself, which then cannot stay above 32,768; so compute the
    last mean or sum in ``float32``.

    The wrapped optimizer does not see skipped steps: they affect neither the averages of Adam nor the steps that an
    `AccumGradOptimizer` accumulates. Processors that should see the gradients of all steps, such as `SummaryGradient`,
    belong around it.

    If `opt` is itself a GradientDescent, Momentum, Adam, Adagrad or Adadelta optimizer, the host does not wait for the
    gradients: a skipped update runs without effect. Otherwise the update is in a `tf.cond`.

    If several towers apply the same gradients to replicas, each checks the reduced gradients, so all make the same
    decision. They share the scale.

    Args:
        opt: the optimizer that updates.
        initial_scale: the first scale, from 1 to 2**126. A power of 2 costs no precision.
        growth_interval: the number of updates without overflow after which the scale grows.
        factor: the factor by which it grows and shrinks.
        name: the variable scope of its variables, ``scale``, ``good_steps`` and ``skipped_in_a_row``. They are saved in
            checkpoints. ``skipped_in_a_row`` counts only steps at a scale of 1.

    Raises:
        ConfigError: if `opt` is not a `tf.compat.v1.train.Optimizer`, if a number is out of range, or if a loss scale
            of this name exists already; and, when gradients are applied, if a variable is a reference variable and the
            update is in a `tf.cond`.

    Example:
        ```python
        def optimizer(self):
            optimizer = apply_grad_processors(tf.compat.v1.train.AdamOptimizer(1e-3), [GlobalNormClip(1.0)])
            return DynamicLossScaleOptimizer(optimizer)
        ```
    """

    def __init__(
        self,
        opt: Any,
        initial_scale: float = 2.0**15,
        growth_interval: int = 2000,
        factor: float = 2.0,
        name: str = "LossScale",
    ) -> None:
        check_at_least(self, 1, growth_interval=growth_interval)
        check_positive(self, initial_scale=initial_scale, factor=factor)
        if not 1 <= initial_scale <= _LARGEST_SCALE:
            raise ConfigError(f"DynamicLossScaleOptimizer: initial_scale must be 1 to 2**126, not {initial_scale!r}")
        if not 1 < factor < math.inf:
            raise ConfigError(f"DynamicLossScaleOptimizer: factor must be greater than 1, not {factor!r}")
        self._growth_interval = int(growth_interval)
        self._factor = float(factor)
        # Not among the slots: gradients need the scale, and towers share it as they share a learning rate.
        scale = (tf.float32, float(initial_scale))
        super().__init__(opt, name, {"scale": scale, "good_steps": (tf.int64, 0), "skipped_in_a_row": (tf.int64, 0)})
        add_tensor_summary(self.loss_scale, ["scalar"], name=f"{name}/scale")

    @property
    def loss_scale(self) -> Any:
        """The scale, a scalar ``float32`` variable."""
        return self._shared["scale"]

    def compute_gradients(self, loss: Any, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the gradients of `loss`, computed from the scaled loss and scaled back.

        See `tf.compat.v1.train.Optimizer.compute_gradients` for the arguments.
        """
        with tf.name_scope(self.get_name()):
            # Read once, because another tower may change it before the gradients are computed.
            scale = self.loss_scale.read_value()
            scaled = tf.cast(loss, tf.float32) * scale
            with tf.device("/cpu:0"):
                inverse = 1.0 / scale
        pairs = super().compute_gradients(scaled, *args, **kwargs)
        with tf.name_scope(self.get_name()):
            return [(multiply(grad, inverse), var) for grad, var in pairs]

    def _update_shared(self, finite: Any) -> Any:
        # The inverse of the scale is a normal number, at most 1: a gradient is finite if and only if the scaled one is.
        with tf.device("/cpu:0"):
            scale, good_steps = self.loss_scale.read_value(), self._shared["good_steps"].read_value() + 1
            grows = good_steps >= self._growth_interval
            larger = scale * self._factor
            larger = tf.where(grows & (larger <= _LARGEST_SCALE), larger, scale)
            smaller = tf.maximum(scale / self._factor, 1.0)
            good_steps = tf.where(finite & ~grows, good_steps, tf.zeros_like(good_steps))
            # At a scale of 1, gradients are infinite for another reason than scaling.
            skipped = self.skipped_in_a_row.read_value()
            skipped = tf.where(finite, tf.zeros_like(skipped), skipped + tf.cast(scale <= 1, tf.int64))
            # The assigned values depend on `finite`, and so on all gradients: these use the old scale.
            return tf.group(
                self.loss_scale.assign(tf.where(finite, larger, smaller), read_value=False),
                self._shared["good_steps"].assign(good_steps, read_value=False),
                self.skipped_in_a_row.assign(skipped, read_value=False),
            )


def with_loss_scale(optimizer: Any, name: str = "LossScale") -> Any:
    """Return `optimizer` in a `DynamicLossScaleOptimizer`, unless there is one in it already.

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer`.
        name: of the scale.
    """
    has_scale = any(isinstance(each, DynamicLossScaleOptimizer) for each in unwrapped(optimizer))
    return optimizer if has_scale else DynamicLossScaleOptimizer(optimizer, name=name)
