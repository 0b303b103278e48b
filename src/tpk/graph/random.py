"""Random ops that a resumed training draws alike.

TensorFlow's random ops, such as `tf.random.normal` and `tf.nn.dropout`, count what they have drawn. The count is in the
session, in no checkpoint, and so a training that is resumed draws other numbers than one that never stopped. The ops of
this module keep no state. What they draw depends on nothing but

- the seed of the graph: `tf.compat.v1.set_random_seed`, or `TrainConfig(seed=...)`. Without one, a seed is drawn for
  the graph, and kept in a variable, ``tpk_random_seed``, which checkpoints hold;
- the op: its full name, and the `seed` that it was given. The name begins with the scope of the tower, so towers differ
  from each other, and those of inference from those of training. An op with a name of its own draws the same whatever
  else is in the graph; the default names are numbered within their scope;
- the process, where several train together; see `set_process_index`;
- the global step, `tf.compat.v1.train.get_global_step()`, which is created if there is none. All ops of a run see the
  same one. A trainer of tpk counts it; **a loop of your own has to do so, too**, e.g. by
  ``optimizer.minimize(cost, global_step=...)``, or each run draws the same.

So several runs at one step, such as those of an inference tower over a validation set, draw the same. Where that is
unwanted, use TensorFlow's ops: what an inference tower draws does not disturb the training.

For other distributions, hand `step_seed` to TensorFlow's stateless ops:

    ```python
    rate = tf.random.stateless_gamma([8], tpk.graph.random.step_seed("rate"), alpha=2.0)
    ```

Within a `tf.while_loop`, which is also what `tf.map_fn` and `tf.scan` make, each iteration draws its own numbers. For a
`tf.vectorized_map` or a `tf.recompute_grad`, which build what is in them anew or once for all, take a `step_seed`
outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.step.keys import set_process_index, step_reads, step_seed, stream_for

__all__ = [
    "dropout",
    "normal",
    "set_process_index",
    "shuffle",
    "step_reads",
    "step_seed",
    "truncated_normal",
    "uniform",
]

# The generator that draws the same on CPUs and on GPUs.
_PHILOX = 1


def normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = tf.float32, seed: int | None = None, name: Any = None
) -> Any:
    """Draw from a normal distribution, as `tf.random.normal` does; other numbers in each step, and without state.

    Args:
        shape: the shape of the result: integers, or an integer tensor of rank 1.
        mean: the mean; broadcast to `shape`.
        stddev: the standard deviation; broadcast to `shape`.
        dtype: a floating-point type.
        seed: part of what the numbers depend on; another seed gives others.
        name: of the op; part of what the numbers depend on.

    Returns:
        A tensor of this shape and dtype.

    Raises:
        ConfigError: if the op would draw the same several times in one step; see `step_seed`.

    Example:
        ```python
        noisy = image + tpk.graph.random.normal(tf.shape(image), stddev=0.1, name="noise")
        ```
    """
    with tf.name_scope(name or "random_normal") as scope:
        drawn = _draw(tf.raw_ops.StatelessRandomNormalV2, scope, seed, shape, dtype=dtype)
        return tf.add(drawn * tf.cast(stddev, dtype), tf.cast(mean, dtype), name=scope)


def truncated_normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = tf.float32, seed: int | None = None, name: Any = None
) -> Any:
    """Draw as `normal` does, and again what is more than two standard deviations from the mean.

    Args:
        shape: the shape of the result: integers, or an integer tensor of rank 1.
        mean: the mean; broadcast to `shape`.
        stddev: the standard deviation before the truncation; broadcast to `shape`.
        dtype: a floating-point type.
        seed: part of what the numbers depend on; another seed gives others.
        name: of the op; part of what the numbers depend on.

    Returns:
        A tensor of this shape and dtype.
    """
    with tf.name_scope(name or "truncated_normal") as scope:
        drawn = _draw(tf.raw_ops.StatelessTruncatedNormalV2, scope, seed, shape, dtype=dtype)
        return tf.add(drawn * tf.cast(stddev, dtype), tf.cast(mean, dtype), name=scope)


def uniform(
    shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = tf.float32, seed: int | None = None, name: Any = None
) -> Any:
    """Draw uniformly from [`minval`, `maxval`), as `tf.random.uniform` does; see `normal`.

    Args:
        shape: the shape of the result: integers, or an integer tensor of rank 1.
        minval: the least value; a scalar.
        maxval: the bound above, a scalar; None means 1, and has to be given for integers.
        dtype: a floating-point type, ``int32`` or ``int64``.
        seed: part of what the numbers depend on; another seed gives others.
        name: of the op; part of what the numbers depend on.

    Returns:
        A tensor of this shape and dtype.

    Raises:
        ConfigError: if `maxval` is missing.
    """
    dtype = tf.as_dtype(dtype)
    if maxval is None and dtype.is_integer:
        raise ConfigError(
            f"uniform(dtype={dtype.name}) has no maxval. Give the bound above, which is not drawn itself."
        )
    with tf.name_scope(name or "random_uniform") as scope:
        minval, maxval = tf.cast(minval, dtype), tf.cast(1 if maxval is None else maxval, dtype)
        if dtype.is_integer:
            op = tf.raw_ops.StatelessRandomUniformIntV2
            return tf.identity(_draw(op, scope, seed, shape, minval=minval, maxval=maxval), name=scope)
        drawn = _draw(tf.raw_ops.StatelessRandomUniformV2, scope, seed, shape, dtype=dtype)
        return tf.add(drawn * (maxval - minval), minval, name=scope)


def shuffle(value: Any, seed: int | None = None, name: Any = None) -> Any:
    """Shuffle `value` along its first axis, as `tf.random.shuffle` does; see `normal`.

    Args:
        value: a tensor of rank 1 or more.
        seed: part of what the order depends on; another seed gives another.
        name: of the op; part of what the order depends on.

    Returns:
        A tensor like `value`.
    """
    with tf.name_scope(name or "shuffle") as scope:
        value = tf.convert_to_tensor(value)
        # As many as there are numbers, so that two are hardly ever equal.
        bounds = {"minval": tf.int64.min, "maxval": tf.int64.max}
        bounds = {key: tf.constant(bound, tf.int64) for key, bound in bounds.items()}
        drawn = _draw(tf.raw_ops.StatelessRandomUniformIntV2, scope, seed, tf.shape(value)[:1], **bounds)
        shuffled = tf.gather(value, tf.argsort(drawn), name=scope)
        shuffled.set_shape(value.shape)
        return shuffled


def dropout(
    x: Any, rate: Any, noise_shape: Sequence[int | None] | Any = None, seed: int | None = None, name: Any = None
) -> Any:
    """Set a random fraction of `x` to zero, as `tf.nn.dropout` does; see `normal`.

    `tpk.layers.dropout` does so in training only.

    Args:
        x: a floating-point tensor.
        rate: the fraction to drop, in [0, 1); a number or a scalar tensor.
        noise_shape: the shape of the random mask, which is broadcast to `x`: an integer tensor, or integers and, for
            the size that `x` has, None. By default it is the shape of `x`.
        seed: part of what the mask depends on; another seed gives another.
        name: of the op; part of what the mask depends on.

    Returns:
        A tensor like `x`, scaled by ``1 / (1 - rate)`` where it is not zero.

    Raises:
        ConfigError: if the rate or the dtype of `x` cannot be.
    """
    if isinstance(rate, Real) and not 0 <= float(rate) < 1:
        raise ConfigError(f"dropout(rate={rate!r}): expected a number in [0, 1). It is the fraction to drop.")
    with tf.name_scope(name or "dropout") as scope:
        x = tf.convert_to_tensor(x)
        if not x.dtype.is_floating:
            raise ConfigError(f"dropout of {x.dtype.name}: expected a floating-point type. Cast it, e.g. by tf.cast.")
        scale = tf.cast(1 / (1 - rate), x.dtype)
        # One mask in every precision, and with XLA, too, which draws the same integers, but not the same fractions. It
        # is that of a float32 uniform in [0, 1), which TensorFlow makes of the lowest 23 bits.
        op = tf.raw_ops.StatelessRandomUniformFullIntV2
        drawn = tf.bitwise.bitwise_and(_draw(op, scope, seed, _noise_shape(x, noise_shape), dtype=tf.int32), 2**23 - 1)
        least = tf.cast(tf.math.ceil(tf.cast(rate, tf.float32) * 2.0**23), tf.int32)
        dropped = tf.where(drawn >= least, x * scale, tf.zeros([], x.dtype), name=scope)
        dropped.set_shape(x.shape)
        return dropped


def _draw(op: Callable[..., Any], scope: str, seed: int | None, shape: Any, **options: Any) -> Any:
    shape = shape if tf.is_tensor(shape) else tf.convert_to_tensor(shape, tf.int32)
    key, counter = stream_for(scope, seed).key_and_counter()
    algorithm = tf.constant(_PHILOX)
    # XLA draws slowly on CPUs, and makes other floating-point numbers of the same bits.
    with tf.xla.experimental.jit_scope(compile_ops=False):
        return op(shape=shape, key=key, counter=counter, alg=algorithm, **options)


def _noise_shape(x: Any, noise_shape: Any) -> Any:
    if noise_shape is None:
        return tf.shape(x)
    if tf.is_tensor(noise_shape):
        return noise_shape
    sizes = [tf.shape(x)[axis] if size is None else size for axis, size in enumerate(noise_shape)]
    return tf.convert_to_tensor(sizes, tf.int32)
