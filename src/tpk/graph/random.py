"""Random ops that draw the same numbers in a resumed training.

TensorFlow's random ops, such as `tf.random.normal` and `tf.nn.dropout`, count how many numbers they have drawn. This
state is in the session, not in checkpoints, so a resumed training draws other numbers than one that never stopped. The
ops of this module have no state. Their numbers depend only on

- the seed of the graph: `tf.compat.v1.set_random_seed`, or `TrainConfig(seed=...)`. Without one, a seed is drawn for
  the graph and saved in checkpoints as the variable ``tpk_random_seed``;
- the op: its full name and its `seed`. The name begins with the scope of the tower, so towers differ from each other,
  and inference towers from training towers. An op with an explicit name draws the same numbers whatever else is in the
  graph; default names are numbered within their scope;
- the process, if several train together; see `set_process_index`;
- the global step, `tf.compat.v1.train.get_global_step()`, which is created if missing. All ops of a run see the same
  step. A trainer of tpk counts it; **your own loop must count it too**, e.g. by
  ``optimizer.minimize(cost, global_step=...)``, or each run draws the same numbers.

So several runs at one step, e.g. of an inference tower over a validation set, draw the same numbers. If that is not
wanted, use TensorFlow's ops: random ops in inference towers do not affect training.

For other distributions, pass `step_seed` to TensorFlow's stateless ops:

    ```python
    rate = tf.random.stateless_gamma([8], tpk.graph.random.step_seed("rate"), alpha=2.0)
    ```

In a `tf.while_loop`, including `tf.map_fn` and `tf.scan`, each iteration draws different numbers. For
`tf.vectorized_map` and `tf.recompute_grad`, which build their body again or only once for all elements, create a
`step_seed` outside.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.scopes import check_graph_mode, graph_records
from tpk.graph.step_counter import FURTHER_RUNS_NAME, get_further_runs_var, get_global_step_var
from tpk.graph.variables import unique_name
from tpk.tf_internals import control_flow_contexts

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

# The generator with the same numbers on CPUs and GPUs.
_PHILOX = 1


def normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = tf.float32, seed: int | None = None, name: Any = None
) -> Any:
    """Draw from a normal distribution, like `tf.random.normal`, with other numbers in each step and without state.

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
        ConfigError: if the op would draw the same numbers several times in one step; see `step_seed`.

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
    """Draw like `normal`, but draw numbers again that are more than two standard deviations from the mean.

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
        maxval: the exclusive upper bound, a scalar; None means 1. Required for integers.
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
        # The full range, so that two are hardly ever equal.
        bounds = {"minval": tf.constant(tf.int64.min, tf.int64), "maxval": tf.constant(tf.int64.max, tf.int64)}
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
            sizes of `x`, None. By default it is the shape of `x`.
        seed: part of what the mask depends on; another seed gives another.
        name: of the op; part of what the mask depends on.

    Returns:
        A tensor like `x`, scaled by ``1 / (1 - rate)`` where it is not zero.

    Raises:
        ConfigError: if the rate or the dtype of `x` is invalid.
    """
    if isinstance(rate, Real) and not 0 <= float(rate) < 1:
        raise ConfigError(f"dropout(rate={rate!r}): expected a number in [0, 1). It is the fraction to drop.")
    with tf.name_scope(name or "dropout") as scope:
        x = tf.convert_to_tensor(x)
        if not x.dtype.is_floating:
            raise ConfigError(f"dropout of {x.dtype.name}: expected a floating-point type. Cast it, e.g. by tf.cast.")
        scale = tf.cast(1 / (1 - rate), x.dtype)
        # The same mask in every precision and with XLA, which draws the same integers but not the same fractions. It is
        # equal to a comparison with a float32 uniform in [0, 1), which TensorFlow computes from the lowest 23 bits.
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
    # XLA draws slowly on CPUs, and computes other floating-point numbers from the same bits.
    with tf.xla.experimental.jit_scope(compile_ops=False):
        return op(shape=shape, key=key, counter=counter, alg=algorithm, **options)


def _noise_shape(x: Any, noise_shape: Any) -> Any:
    if noise_shape is None:
        return tf.shape(x)
    if tf.is_tensor(noise_shape):
        return noise_shape
    return [tf.shape(x)[axis] if size is None else size for axis, size in enumerate(noise_shape)]


SEED_VARIABLE_NAME = "tpk_random_seed"

COUNTERS = frozenset({"global_step", SEED_VARIABLE_NAME, FURTHER_RUNS_NAME})
"""Variables that all towers share, and that any tower may create. They are not part of the model."""

# Without an explicit generator, XLA computes another key from the same seed.
_SAME_IN_XLA = "philox"


def step_seed(name: Any = None, seed: int | None = None) -> Any:
    """Return the seed of this step for an op of this name: a tensor for the `seed` of `tf.random.stateless_*`.

    Use a different seed for each op: ops with the same seed draw the same numbers.

    Args:
        name: of the op; part of what the seed depends on.
        seed: a different number gives a different seed.

    Returns:
        A tensor, ``int64`` of shape [2]: other numbers for each op and step.

    Raises:
        ConfigError: if TensorFlow executes eagerly, or the default graph is the body of a `tf.function`, of a
            `tf.data` transformation, or of a `tf.while_loop` with the control flow of TensorFlow 1: such code may run
            several times in one step, and would draw the same numbers each time.

    Example:
        ```python
        seed = tpk.graph.random.step_seed("token")
        token = tf.random.stateless_categorical(logits, 1, seed)
        ```
    """
    with tf.name_scope(name or "step_seed") as scope:
        return stream_for(scope, seed).seed()


def set_process_index(index: int) -> None:
    """Make the random ops of the default graph draw other numbers than in the other processes.

    A strategy calls it before it builds the towers. The process with index 0 draws the same numbers as a single one.

    Args:
        index: the index of this process, from 0.

    Raises:
        ConfigError: if there are random ops in the graph already.
    """
    source = _source_of(tf.compat.v1.get_default_graph())
    if source.names:
        raise ConfigError(
            f"set_process_index({index}) comes too late: {min(source.names)!r} is in the graph already, and draws the "
            "numbers of another process. Call it before the towers are built."
        )
    source.process_index = index


def step_reads() -> list[Any]:
    """Return the ops of the default graph that read the global step for its random ops; at most one.

    The op that counts a run must run after them. Otherwise random ops that the count does not depend on, such as those
    of a summary, could see the step before or after it.
    """
    step = _source_of(tf.compat.v1.get_default_graph()).step
    return [] if step is None else [step.op]


@attrs.frozen(eq=False)
class Stream:
    """The random stream of one op.

    Attributes:
        number: an ``int64`` tensor of shape [1] that identifies the op.
        step: the number of the run, ``int64`` of shape [1].
        counter: the step as the counter of the generator, ``uint64`` of shape [2].
        loop_counters: the number of the iteration, for each loop around the op.
    """

    number: Any
    step: Any
    counter: Any
    loop_counters: list[Any]

    def seed(self) -> Any:
        """Return the seed for a `tf.random.stateless_*`, ``int64`` of shape [2]."""
        seed = tf.concat([self.number, self.step], axis=0)
        for loop_counter in self.loop_counters:
            seed = tf.random.experimental.stateless_fold_in(seed, loop_counter, alg=_SAME_IN_XLA)
        return seed

    def key_and_counter(self) -> tuple[Any, Any]:
        """Return the key and the counter for a ``tf.raw_ops.StatelessRandom...V2``, ``uint64`` of shapes [1], [2].

        Unlike a seed, they need no further computation, which saves a noticeable part of the time of small models.
        """
        if self.loop_counters:
            key = tf.random.stateless_uniform([1], self.seed(), None, None, tf.int64, alg=_SAME_IN_XLA)
            return tf.bitcast(key, tf.uint64), self.counter
        return tf.bitcast(self.number, tf.uint64), self.counter


def stream_for(scope: str, op_seed: int | None) -> Stream:
    """Return the random stream of an op with the name scope `scope` in the default graph.

    Args:
        scope: the full name of the op, as `tf.name_scope` gives it.
        op_seed: the seed of the op, if it has one.

    Raises:
        ConfigError: see `step_seed`.
    """
    check_graph_mode("tpk.graph.random")
    graphs = _graphs_from_the_root()
    # In the graph of a function, name scopes begin at the root again.
    parts = [*(graph.get_name_scope() for graph in graphs[:-1]), scope.rstrip("/")]
    name = "/".join(part for part in parts if part)
    loop_counters = [_loop_counter(graph, name) for graph in graphs]
    return _source_of(graphs[0]).stream(
        name, graphs[0].seed, op_seed, [counter for counter in loop_counters if counter is not None]
    )


class _Source:
    """The state that the random ops of a graph share.

    Attributes:
        names: the unique names of all ops so far.
        process_index: see `set_process_index`.
        step: the number of the run, ``int64`` of shape [1], read once for all ops: the global step, as long as each
            step is one run.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.process_index = 0
        self.step: Any = None
        self._counter: Any = None
        self._drawn_seed: Any = None

    def stream(self, name: str, graph_seed: int | None, op_seed: int | None, loop_counters: list[Any]) -> Stream:
        if self.step is None:
            with _at_the_root():
                # A step may run the session several times, and draws other numbers each time.
                step = tf.cast(get_global_step_var().read_value(), tf.int64) + get_further_runs_var().read_value()
                self.step = tf.reshape(step, [1])
                self._counter = tf.bitcast(tf.concat([[0], self.step], axis=0), tf.uint64)
        if graph_seed is None and op_seed is not None:
            graph_seed = 0  # Like TensorFlow: ops with a seed do not need a seed of the graph.
        # Both branches of a `tf.cond` have the same scope.
        own_name = unique_name(name, self.names)
        number = tf.constant([_hash(graph_seed, op_seed, self.process_index, own_name)], tf.int64)
        if graph_seed is None:
            _check_seed_is_optional(name)
            number = tf.bitwise.bitwise_xor(number, self._seed_of_its_own())
        return Stream(number, self.step, self._counter, loop_counters)

    def _seed_of_its_own(self) -> Any:
        """Return the seed of a graph without an explicit seed, ``int64``."""
        if self._drawn_seed is None:
            with _at_the_root():
                # A constant, because random ops themselves need a seed if determinism is required.
                drawn = tf.constant(secrets.randbits(63), tf.int64)
                variable = tf.compat.v1.get_variable(SEED_VARIABLE_NAME, initializer=drawn, trainable=False)
                self._drawn_seed = variable.read_value()
        return self._drawn_seed


def _check_seed_is_optional(name: str) -> None:
    try:
        tf.compat.v1.get_seed(None)
    except RuntimeError as error:
        raise ConfigError(
            f"the random op {name!r} has no seed, but op determinism is enabled. Pass "
            "TrainConfig(seed=...), or call tpk.set_random_seed before the graph is built."
        ) from error


def _source_of(graph: Any) -> _Source:
    found = graph_records(graph, "random_source")
    if not found:
        found.append(_Source())
    source: _Source = found[0]
    return source


@contextmanager
def _at_the_root() -> Iterator[None]:
    """Build shared ops outside towers, layers, branches and loops, so that they do not belong to the first user."""
    root = tf.compat.v1.VariableScope(reuse=False, name="")
    with (
        tf.init_scope(),
        tf.name_scope(""),
        tf.device("/cpu:0"),
        tf.compat.v1.variable_scope(root, auxiliary_name_scope=False),
        tf.name_scope("tpk_random/"),
    ):
        yield


def _graphs_from_the_root() -> list[Any]:
    """Return the default graph, preceded by the graphs that contain it as a branch or body."""
    graphs = [tf.compat.v1.get_default_graph()]
    while getattr(graphs[0], "outer_graph", None) is not None:
        graphs.insert(0, graphs[0].outer_graph)
    return graphs


def _loop_counter(graph: Any, name: str) -> Any | None:
    """Return the counter of iterations if `graph` is part of a loop.

    Raises:
        ConfigError: if ops in `graph` may run several times in one step without such a counter.
    """
    kind = type(graph).__name__
    if kind in ("WhileBodyFuncGraph", "WhileCondFuncGraph"):
        return graph.inputs[0]
    if any(context.IsWhileContext() for context in control_flow_contexts(graph)):
        raise _repeats(name, "a tf.while_loop with the control flow of TensorFlow 1")
    if kind != "CondBranchFuncGraph" and hasattr(graph, "outer_graph"):
        raise _repeats(name, f"the function {graph.name!r}")
    return None


def _repeats(name: str, where: str) -> ConfigError:
    return ConfigError(
        f"the random op {name!r} is inside {where}, which may run several times in one step and would draw the same "
        "numbers each time. Create seed = tpk.graph.random.step_seed() outside, and pass it to tf.random.stateless_* "
        "inside; if the op runs several times, pass tf.random.experimental.stateless_fold_in(seed, i)."
    )


def _hash(*parts: object) -> int:
    """Return 64 bits of a hash as a signed integer; the same in every process and with every version of Python."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "little", signed=True)
