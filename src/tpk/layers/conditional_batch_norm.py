"""Batch normalization by the fused kernel in a `tf.cond`, where only the step can tell whether it is training.

What the kernel hands to the kernel of its gradient means one thing on a CPU and another on a GPU (there it is the
inverse standard deviation, in place of the variance), so both must run on one device. The gradient that TensorFlow
builds of a `tf.cond` does not see to that: `tf.gradients` colocates it with the `tf.cond`, and with it the ``Optional``
ops that carry what only one branch has; these prefer the CPU. So the gradient here is a `tf.cond` of its own,
colocated with nothing; and what a gradient reads is an output of both branches, so no ``Optional`` is needed, for the
gradient of the gradient neither. With the control flow of TensorFlow 1 there is no such trouble.
"""

from __future__ import annotations

import functools
from typing import Any

import attrs
import tensorflow as tf


@attrs.frozen
class ConditionalFusedBatchNorm:
    """The kernel, but for its tensors.

    Attributes:
        epsilon: what is added to the variance.
        data_format: ``"NHWC"``, ``"NCHW"``, ``"NDHWC"`` or ``"NCDHW"``.
    """

    epsilon: float
    data_format: str

    def normalize(
        self, training: Any, inputs: Any, gamma: Any, beta: Any, moving_mean: Any, moving_variance: Any
    ) -> tuple[Any, Any, Any]:
        """Return what `tf.compat.v1.nn.fused_batch_norm` returns: the outputs, and mean and variance of the batch.

        Args:
            training: a scalar boolean tensor or variable; where it is false, mean and variance are the moving ones.
            inputs: a tensor of rank 4 or 5.
            gamma: the scale.
            beta: the offset.
            moving_mean: the moving average of the mean.
            moving_variance: the moving average of the variance.
        """
        # Read here, as what a branch reads is known to that branch only.
        given = [tf.convert_to_tensor(each) for each in (inputs, gamma, beta, moving_mean, moving_variance, training)]

        def kernel(is_training: bool) -> tuple[Any, ...]:
            x, scale, offset, mean, variance, _ = given
            return tuple(
                tf.raw_ops.FusedBatchNormV3(
                    x=x,
                    scale=scale,
                    offset=offset,
                    mean=mean,
                    variance=variance,
                    epsilon=self.epsilon,
                    data_format=self.data_format,
                    is_training=is_training,
                )
            )

        outputs, mean, variance, *reserved = tf.cond(given[-1], lambda: kernel(True), lambda: kernel(False))
        # It changes nothing, but has a gradient of its own.
        with tf.compat.v1.get_default_graph().gradient_override_map({"IdentityN": _register_gradient(self)}):
            outputs, *_ = tf.identity_n([outputs, *reserved, *given])
        return outputs, mean, variance

    def gradient(self, op: Any, upstream: Any, *_: Any) -> list[Any]:
        """Return the gradients with respect to the inputs of `op`, which gives the outputs of `normalize`."""
        outputs, *reserved, inputs, gamma, _, moving_mean, moving_variance, training = op.inputs

        def kernel(upstream: Any, x: Any, mean: Any, variance: Any, data_format: str, is_training: bool) -> list[Any]:
            return list(
                tf.raw_ops.FusedBatchNormGradV3(
                    y_backprop=upstream,
                    x=x,
                    scale=gamma,
                    reserve_space_1=mean,
                    reserve_space_2=variance,
                    reserve_space_3=reserved[2],
                    epsilon=self.epsilon,
                    data_format=data_format,
                    is_training=is_training,
                )
            )

        def in_training() -> list[Any]:
            return [*kernel(upstream, inputs, reserved[0], reserved[1], self.data_format, True), upstream, inputs]

        def in_inference() -> list[Any]:
            rank, channels_last = inputs.shape.rank, self.data_format.replace("C", "") + "C"
            if self.data_format == channels_last:
                return [*kernel(upstream, inputs, moving_mean, moving_variance, channels_last, False), upstream, inputs]
            # There is no kernel for channels first; TensorFlow's own gradient transposes them, too.
            to_last, to_first = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
            above, beneath = tf.transpose(upstream, to_last), tf.transpose(inputs, to_last)
            of_inputs, *others = kernel(above, beneath, moving_mean, moving_variance, channels_last, False)
            return [tf.transpose(of_inputs, to_first), *others, above, beneath]

        graph = tf.compat.v1.get_default_graph()
        with graph.colocate_with(None, ignore_existing=True), tf.device(outputs.device):
            of_inputs, of_gamma, of_beta, *_ = tf.cond(training, in_training, in_inference)
        return [*[None] * 4, of_inputs, of_gamma, of_beta, *[None] * 3]


@functools.cache
def _register_gradient(kernel: ConditionalFusedBatchNorm) -> str:
    """Register the gradient of `kernel` once, as TensorFlow keeps it for good, and return its name."""
    name = f"TpkConditionalFusedBatchNorm_{kernel.data_format}_{kernel.epsilon!r}"
    tf.RegisterGradient(name)(kernel.gradient)
    return name
