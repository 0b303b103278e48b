"""Keys and seeds that the random ops of `tpk.graph.random` draw from: one for each op and step.

An op draws the numbers of the Philox generator, Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011
(https://doi.org/10.1145/2063384.2063405). Its key is a hash of what tells the op from all others; the step is the upper
half of its counter, whose lower half counts the numbers of one step. So no two steps of an op have numbers in common.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.step.global_step import FURTHER_RUNS_NAME, get_further_runs_var, get_global_step_var
from tpk.graph.variables import unique_name
from tpk.tf_internals import control_flow_context

SEED_VARIABLE_NAME = "tpk_random_seed"

COUNTERS = frozenset({"global_step", SEED_VARIABLE_NAME, FURTHER_RUNS_NAME})
"""The variables that a graph has once for all towers, and that any of these may create; no model consists of them."""

# A key that is no string keeps a collection out of exported graphs.
_OF_GRAPH = ("__tpk_random",)

# Where nothing is said of the generator, XLA makes another key of the same seed.
_SAME_IN_XLA = "philox"


def step_seed(name: Any = None, seed: int | None = None) -> Any:
    """Return the seed of this step for an op of this name: a tensor that `tf.random.stateless_*` take as `seed`.

    For several ops, take several seeds: ops with one seed draw the same.

    Args:
        name: of the op; part of what the seed depends on.
        seed: another number gives another seed.

    Returns:
        A tensor, ``int64`` of shape [2]: other numbers for each op and step.

    Raises:
        ConfigError: if TensorFlow executes eagerly, or the default graph is the body of a `tf.function`, of a
            `tf.data` transformation, or of a `tf.while_loop` with the control flow of TensorFlow 1: such code may run
            several times in one step, and would draw the same each time.

    Example:
        ```python
        seed = tpk.graph.random.step_seed("token")
        token = tf.random.stateless_categorical(logits, 1, seed)
        ```
    """
    with tf.name_scope(name or "step_seed") as scope:
        return stream_for(scope, seed).seed()


def set_process_index(index: int) -> None:
    """Let the random ops of the default graph draw other numbers than those of the processes that train along.

    A strategy calls it before it builds the towers. The process with index 0 draws what it would draw alone.

    Args:
        index: which of the processes this is, from 0 on.

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

    What counts a run has to come after them. For an op on which the count does not wait otherwise, such as one that is
    fetched for a summary, chance would decide else whether it sees the step before or after.
    """
    step = _source_of(tf.compat.v1.get_default_graph()).step
    return [] if step is None else [step.op]


@attrs.frozen(eq=False)
class Stream:
    """What one random op draws from.

    Attributes:
        number: an ``int64`` tensor of shape [1] that tells the op from all others.
        step: the number of the run, ``int64`` of shape [1].
        counter: the step as the counter of the generator, ``uint64`` of shape [2].
        loop_counters: what tells an iteration from the others, for each loop around the op.
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

        Other than a seed they are ready for use, which saves small models a noticeable part of their time.
        """
        if self.loop_counters:
            key = tf.random.stateless_uniform([1], self.seed(), None, None, tf.int64, alg=_SAME_IN_XLA)
            return tf.bitcast(key, tf.uint64), self.counter
        return tf.bitcast(self.number, tf.uint64), self.counter


def stream_for(scope: str, op_seed: int | None) -> Stream:
    """Return what the op with the name scope `scope` draws from, if it is added to the default graph.

    Args:
        scope: the full name of the op, as `tf.name_scope` gives it.
        op_seed: the seed of the op, if it has one.

    Raises:
        ConfigError: see `step_seed`.
    """
    if tf.compat.v1.executing_eagerly_outside_functions():
        raise ConfigError(
            "tpk.graph.random adds to a graph, but TensorFlow executes eagerly here. Build the model inside "
            "`with tf.Graph().as_default():`; a trainer does so when it calls the tower function."
        )
    graphs = _graphs_from_the_root()
    # The graph of a function has name scopes of its own, which begin anew.
    parts = [*(graph.get_name_scope() for graph in graphs[:-1]), scope.rstrip("/")]
    name = "/".join(part for part in parts if part)
    loop_counters = [_loop_counter(graph, name) for graph in graphs]
    return _source_of(graphs[0]).stream(
        name, graphs[0].seed, op_seed, [counter for counter in loop_counters if counter is not None]
    )


class _Source:
    """What the random ops of a graph have in common.

    Attributes:
        names: of all ops so far; no two have the same.
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
            graph_seed = 0  # So do TensorFlow's own ops: with a seed of their own, they need none of the graph.
        # Both branches of a `tf.cond` have the same scope.
        own_name = unique_name(name, self.names)
        number = tf.constant([_hash(graph_seed, op_seed, self.process_index, own_name)], tf.int64)
        if graph_seed is None:
            _check_seed_is_optional(name)
            number = tf.bitwise.bitwise_xor(number, self._seed_of_its_own())
        return Stream(number, self.step, self._counter, loop_counters)

    def _seed_of_its_own(self) -> Any:
        """The seed of a graph that was given none, ``int64``."""
        if self._drawn_seed is None:
            with _at_the_root():
                # A constant, not a random op, as those need a seed themselves where determinism is asked for.
                drawn = tf.constant(secrets.randbits(63), tf.int64)
                variable = tf.compat.v1.get_variable(SEED_VARIABLE_NAME, initializer=drawn, trainable=False)
                self._drawn_seed = variable.read_value()
        return self._drawn_seed


def _check_seed_is_optional(name: str) -> None:
    try:
        tf.compat.v1.get_seed(None)
    except RuntimeError as error:
        raise ConfigError(
            f"the random op {name!r} has no seed, but TensorFlow's ops are to be deterministic. Give "
            "TrainConfig(seed=...), or call tf.compat.v1.set_random_seed before the graph is built."
        ) from error


def _source_of(graph: Any) -> _Source:
    found = graph.get_collection_ref(_OF_GRAPH)
    if not found:
        found.append(_Source())
    source: _Source = found[0]
    return source


@contextmanager
def _at_the_root() -> Iterator[None]:
    """Build outside of towers, layers, branches and loops: what all ops have in common must not belong to the first."""
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
    """The default graph, after those of which it is a branch or a body."""
    graphs = [tf.compat.v1.get_default_graph()]
    while getattr(graphs[0], "outer_graph", None) is not None:
        graphs.insert(0, graphs[0].outer_graph)
    return graphs


def _loop_counter(graph: Any, name: str) -> Any | None:
    """Return what counts the iterations if `graph` is part of a loop.

    Raises:
        ConfigError: if what is in `graph` may run several times in one step, and nothing tells which time it is.
    """
    kind = type(graph).__name__
    if kind in ("WhileBodyFuncGraph", "WhileCondFuncGraph"):
        return graph.inputs[0]
    context = control_flow_context(graph)
    while context is not None:
        if context.IsWhileContext():
            raise _repeats(name, "a tf.while_loop with the control flow of TensorFlow 1")
        context = context.outer_context
    if kind != "CondBranchFuncGraph" and hasattr(graph, "outer_graph"):
        raise _repeats(name, f"the function {graph.name!r}")
    return None


def _repeats(name: str, where: str) -> ConfigError:
    return ConfigError(
        f"the random op {name!r} is inside of {where}. If that runs several times in one step, it would draw the same "
        "each time. Take seed = tpk.graph.random.step_seed() outside, and inside use it by tf.random.stateless_*, with "
        "tf.random.experimental.stateless_fold_in(seed, i) for what runs several times."
    )


def _hash(*parts: object) -> int:
    """Return 64 bits of a hash as a signed integer; the same in every process and with every version of Python."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "little", signed=True)
