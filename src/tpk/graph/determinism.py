"""Determinism: why two runs can differ, how to find the cause, and how to avoid it.

With a seed, tpk's own random ops draw the same numbers in each run, including resumed runs; see `tpk.graph.random`.
Initial values of variables are also the same. The remaining causes are:

- TensorFlow's stateful random ops: with a seed they draw the same numbers in each run, except in resumed runs, because
  checkpoints do not contain their counters. `warn_of_stateful_random_ops` names them.
- Ops whose kernels add numbers in the order in which threads finish: on GPUs, e.g. the gradients of `tf.gather` and
  `tf.image.crop_and_resize`, and convolutions whose algorithm is chosen by timing. Within `deterministic_ops`,
  TensorFlow uses other kernels, or raises an error if it has no deterministic kernel. On CPUs the common kernels give
  the same bits with any number of threads.
- Unordered updates of one variable, which `deterministic_ops` does not prevent: the first one can differ from step to
  step, and with a single thread still from session to session. `unordered_updates` finds them.
- Towers and processes that do not wait for each other, as in the strategy ``async``: no two runs are alike.
- Another version of TensorFlow, another kind of device, or another value of ``TF_ENABLE_ONEDNN_OPTS``.
"""

from __future__ import annotations

import functools
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.fetches import ops_run_for
from tpk.text import some
from tpk.tf_internals import disable_op_determinism, is_op_determinism_enabled

logger = logging.getLogger(__name__)

# All stateful ops with a seed attribute, except AllCandidateSampler, which is not random, and CudnnRNN, which is random
# only for dropout. The last two ops here are not even declared stateful.
STATEFUL_RANDOM_OPS = frozenset(
    {
        *("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "RandomGamma"),
        *("ParameterizedTruncatedNormal", "RandomPoisson", "RandomPoissonV2", "Multinomial", "RandomShuffle"),
        *("RandomCrop", "SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", "RecordInput"),
        *("RandomShuffleQueue", "RandomShuffleQueueV2", "UniformCandidateSampler", "LogUniformCandidateSampler"),
        *("LearnedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler", "FixedUnigramCandidateSampler"),
        *("FractionalMaxPool", "FractionalAvgPool"),
    }
)


def warn_of_stateful_random_ops(train_ops: Any) -> None:
    """Log a warning that names the stateful random ops that `train_ops` run, if there are any.

    Args:
        train_ops: operations, tensors and variables, in any structure.
    """
    names = stateful_random_ops(train_ops)
    if names:
        logger.warning(
            "%d stateful random ops, whose state is not in checkpoints: %s. A resumed training draws other numbers "
            "from them, and is exact otherwise. The ops of tpk.graph.random and tpk.layers draw the same numbers.",
            len(names),
            some(names),
        )


def stateful_random_ops(fetches: Any) -> list[str]:
    """Return the names of the stateful random ops that a run of `fetches` runs, whose state is not in checkpoints.

    Initializers of variables do not run with it, so their ops are not included. Neither are the ops of a
    `tf.data.Dataset`, because its input source restores its position.

    Args:
        fetches: operations, tensors and variables of one graph, in any structure.

    Returns:
        The sorted names. An op in a branch, loop or function is prefixed with the name of the op that runs it.

    Example:
        ```python
        assert not stateful_random_ops(trainer.train_op)
        ```
    """
    ops = ops_run_for(fetches)
    bodies = _function_bodies(ops[0].graph) if ops else {}
    names: set[str] = set()
    for op in ops:
        if op.type in STATEFUL_RANDOM_OPS:
            names.add(op.name)
        if bodies:
            names |= {f"{op.name}/{name}" for name in _random_nodes([op.node_def], bodies, set())}
    return sorted(names)


def check_updates_are_ordered(train_ops: Any) -> None:
    """Check that `train_ops` update each variable in a defined order.

    Args:
        train_ops: operations, tensors and variables, in any structure.

    Raises:
        ConfigError: if they do not; the message names the first variables.
    """
    names = unordered_updates(train_ops)
    if names:
        raise ConfigError(
            f"deterministic training was requested, but {some(names)}: updated while something else in the same run "
            "uses or updates the same variable, in no order. Add tf.control_dependencies between the two; for a batch "
            "normalization that is applied twice, let only one of the two update the moving averages."
        )


def unordered_updates(fetches: Any) -> list[str]:
    """Return the names of the variables that a run of `fetches` changes while it may use or change them elsewhere.

    If two ops use a variable, one of them changes it, and neither waits for the other, their order is undefined. For
    example, a batch normalization that is applied twice may update its moving averages twice. Ops in branches, loops
    and functions are not checked.

    Args:
        fetches: operations, tensors and variables of one graph, in any structure.
    """
    ops = ops_run_for(fetches)
    users: dict[str, list[Any]] = defaultdict(list)
    for op in ops:
        for tensor in op.inputs:
            if tensor.op.type in ("VarHandleOp", "Variable", "VariableV2"):
                users[tensor.op.name].append(op)
    changed = {name: own for name, own in users.items() if len(own) > 1 and any(map(_changes, own))}
    bits = {op: 1 << number for number, op in enumerate({op for own in changed.values() for op in own})}
    before: dict[Any, int] = {}
    for op in ops:
        before[op] = 0
        for source in [*(tensor.op for tensor in op.inputs), *op.control_inputs]:
            before[op] |= before.get(source, 0) | bits.get(source, 0)

    def is_ordered(one: Any, other: Any) -> bool:
        return bool(before[one] & bits[other] or before[other] & bits[one])

    return sorted(
        name
        for name, own in changed.items()
        if any(not is_ordered(one, other) for one in filter(_changes, own) for other in own if other is not one)
    )


@contextmanager
def deterministic_ops() -> Iterator[None]:
    """Within the context, TensorFlow's ops are deterministic or raise an error.

    It sets the flag of `tf.config.experimental.enable_op_determinism`, which also applies to sessions and to the whole
    process, and resets it at the end. Build the graph, create the session and run it within the context. Random ops
    then need the seed of the graph or an op-level seed; building them without a seed is an error.

    Example:
        ```python
        with deterministic_ops():
            trainer.setup_graph(signature, source, get_cost, get_optimizer)
            trainer.train(steps_per_epoch=100)
        ```
    """
    before = is_op_determinism_enabled()
    tf.config.experimental.enable_op_determinism()
    try:
        yield
    finally:
        if not before:
            disable_op_determinism()


def sum_in_order(tensors: Sequence[Any]) -> Any:
    """Return the sum of tensors, added one after the other, so that its bits are the same each time.

    `tf.add_n` may begin with any tensor whose memory it can reuse for the sum, which varies from run to run.

    Args:
        tensors: one or more dense tensors of one shape and dtype.
    """
    # One or two tensors have only one order.
    return tf.add_n(tensors) if len(tensors) < 3 else functools.reduce(tf.add, tensors)


def _changes(op: Any) -> bool:
    """Whether `op` changes its input variable."""
    of_resource = op.type.startswith(("Resource", "Assign")) and op.type not in ("ResourceGather", "ResourceGatherNd")
    return of_resource or op.type.startswith(("Apply", "SparseApply", "Scatter"))


def _function_bodies(graph: Any) -> dict[str, list[Any]]:
    """Return the nodes of each function in the library of `graph`."""
    library = graph.as_graph_def(from_version=graph.version).library
    return {function.signature.name: list(function.node_def) for function in library.function}


def _random_nodes(nodes: Iterable[Any], bodies: dict[str, list[Any]], called: set[str]) -> Iterator[str]:
    """Yield the names of the random ops in the functions that `nodes` call, directly or indirectly."""
    for node in nodes:
        if node.op.endswith("Dataset") or "Iterator" in node.op:
            continue
        for attr in node.attr.values():
            for name in [attr.func.name, *(func.name for func in attr.list.func)]:
                if name in called or name not in bodies:
                    continue
                called.add(name)
                yield from (inner.name for inner in bodies[name] if inner.op in STATEFUL_RANDOM_OPS)
                yield from _random_nodes(bodies[name], bodies, called)
