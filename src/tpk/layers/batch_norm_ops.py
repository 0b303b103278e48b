"""The ops of a batch normalization, given its variables: a fused kernel, or elementary ops."""

from __future__ import annotations

from typing import Any

import attrs
import tensorflow as tf

from tpk.layers.cross_tower import sum_across_towers
from tpk.layers.geometry import SpatialLayout
from tpk.layers.layer_scope import HALF_PRECISION, TrainingFlag

_Moments = tuple[Any, Any, Any]
"""The mean and the variance to normalize by, and the variance for the moving average."""


@attrs.frozen
class BatchNorm:
    """A batch normalization. Each method that computes it returns the outputs, and the ops that update the averages.

    Attributes:
        flag: whether it is training.
        axes: the axes of the features, counted from the first.
        epsilon: a number, added to the variance.
        momentum: the decay of the moving averages.
        gamma: the scale, or None.
        beta: the offset, or None.
        moving_mean: the moving average of the mean.
        moving_variance: the moving average of the variance.
    """

    flag: TrainingFlag
    axes: list[int]
    epsilon: float
    momentum: Any
    gamma: Any
    beta: Any
    moving_mean: Any
    moving_variance: Any

    def has_fused_kernel(self, inputs: Any) -> bool:
        """Whether the fused kernel supports it: for images or volumes, with channels first or last."""
        rank = inputs.shape.rank
        dtypes = (*HALF_PRECISION, tf.float32)
        return rank in (4, 5) and self.axes in ([1], [rank - 1]) and inputs.dtype.base_dtype in dtypes

    def fused(self, inputs: Any) -> tuple[Any, list[Any]]:
        """Use the fused kernel; the moving variance is unbiased."""
        dtype, shape = self.moving_mean.dtype.base_dtype, self.moving_mean.shape
        beta = tf.constant(0.0, dtype, shape) if self.beta is None else self.beta
        gamma = tf.constant(1.0, dtype, shape) if self.gamma is None else self.gamma
        layout = SpatialLayout(channels_first=self.axes == [1], spatial_rank=inputs.shape.rank - 2)

        def kernel(is_training: bool) -> Any:
            return tf.compat.v1.nn.fused_batch_norm(
                inputs,
                gamma,
                beta,
                mean=self.moving_mean,
                variance=self.moving_variance,
                epsilon=self.epsilon,
                data_format=layout.tensor_format,
                is_training=is_training,
            )

        outputs, mean, variance = self.flag.choose(lambda: kernel(True), lambda: kernel(False))
        if self.flag.static is False:
            return outputs, []
        return outputs, self._updates_in_each_run(mean, variance)

    def composed(self, inputs: Any, is_synchronized: bool, is_unbiased: bool) -> tuple[Any, list[Any]]:
        """Use elementary ops.

        Args:
            inputs: the tensor to normalize.
            is_synchronized: whether to compute mean and variance over the batches of all towers in training.
            is_unbiased: whether the moving variance is unbiased, as with the fused kernel.
        """
        dtype = self.moving_mean.dtype.base_dtype
        values = tf.cast(inputs, dtype)
        gamma, beta = self._broadcast(self.gamma, values), self._broadcast(self.beta, values)
        mean, variance, updates = self.moving_mean, self.moving_variance, []
        if self.flag.static is not False:
            moments = self._moments_across_towers if is_synchronized else self._moments
            mean, variance, averaged = moments(values, is_unbiased)
            if is_unbiased:
                updates = self._updates_in_each_run(mean, averaged)
            else:
                updates = [self._update(self.moving_mean, mean), self._update(self.moving_variance, averaged)]
        # Custom getters may have given the variables another dtype.
        mean, variance = tf.cast(mean, dtype), tf.cast(variance, dtype)
        beta = None if beta is None else tf.cast(beta, dtype)
        gamma = None if gamma is None else tf.cast(gamma, dtype)
        mean, variance = self._broadcast(mean, values), self._broadcast(variance, values)
        outputs = tf.nn.batch_normalization(values, mean, variance, beta, gamma, self.epsilon)
        outputs = tf.cast(outputs, inputs.dtype)
        outputs.set_shape(inputs.shape)
        return outputs, updates

    def _moments(self, values: Any, is_unbiased: bool) -> _Moments:
        mean, variance = tf.nn.moments(values, self._other_axes(values), keepdims=len(self.axes) > 1)
        mean, variance = self._in_training(mean, variance)
        if not is_unbiased:
            return mean, variance, variance
        count = self._count(values)
        return mean, variance, variance * (count / tf.maximum(count - 1, 1))

    def _moments_across_towers(self, values: Any, is_unbiased: bool) -> _Moments:
        """Compute the moments in two passes, like `tf.nn.moments`: the variance from deviations from the joint mean.

        The sum of squares would save an exchange between the towers, but cancels where the mean is large compared to
        the deviations (Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983).
        """
        axes, keepdims = self._other_axes(values), len(self.axes) > 1

        def total(of: Any, name: str) -> Any:
            return sum_across_towers(tf.reduce_sum(of, axes, keepdims), name)

        count = sum_across_towers(self._count(values), "count")
        mean = total(values, "sum") / count
        # The deviations sum to zero, so the gradient with respect to the mean is zero.
        center = self._broadcast(tf.stop_gradient(mean), values)
        sum_of_squares = total(tf.math.squared_difference(values, center), "sum_of_squares")
        averaged = sum_of_squares / tf.maximum(count - int(is_unbiased), 1)
        return *self._in_training(mean, sum_of_squares / count), averaged

    def _in_training(self, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Return these in training, and the moving averages otherwise."""
        return (
            self.flag.choose(lambda: mean, lambda: tf.convert_to_tensor(self.moving_mean)),
            self.flag.choose(lambda: variance, lambda: tf.convert_to_tensor(self.moving_variance)),
        )

    def _count(self, values: Any) -> Any:
        """Return the number of values of each feature."""
        sizes = tf.gather(tf.shape(values), self._other_axes(values))
        return tf.reduce_prod(tf.cast(sizes, values.dtype))

    def _other_axes(self, values: Any) -> list[int]:
        return [axis for axis in range(values.shape.rank) if axis not in self.axes]

    def _updates_in_each_run(self, mean: Any, variance: Any) -> list[Any]:
        """Update the averages as with the fused kernel: also in inference, where they keep their values."""
        if self.flag.static:
            momentum = tf.convert_to_tensor(self.momentum)
        else:
            momentum = self.flag.choose(lambda: self.momentum, lambda: 1.0)
        averages = [(self.moving_mean, mean), (self.moving_variance, variance)]
        return [_move_average(average, value, momentum).op for average, value in averages]

    def _update(self, average: Any, value: Any) -> Any:
        return self.flag.choose(lambda: _move_average(average, value, self.momentum), lambda: average).op

    def _broadcast(self, parameter: Any, values: Any) -> Any:
        """Reshape a vector of features so that it broadcasts to `values`, if necessary."""
        rank = values.shape.rank
        if parameter is None or self.axes == [rank - 1] or len(self.axes) > 1:
            return parameter
        shape = [1] * rank
        shape[self.axes[0]] = values.shape.as_list()[self.axes[0]]
        return tf.reshape(parameter, shape)


def _move_average(average: Any, value: Any, momentum: Any) -> Any:
    """Assign ``momentum * average + (1 - momentum) * value``."""
    dtype = average.dtype.base_dtype
    graph = tf.compat.v1.get_default_graph()
    with tf.name_scope("AssignMovingAvg") as scope, graph.colocate_with(average):
        decay = tf.cast(tf.convert_to_tensor(1.0 - momentum, name="decay"), dtype)
        change = (average - tf.cast(value, dtype)) * decay
        return tf.compat.v1.assign_sub(average, change, name=scope)
