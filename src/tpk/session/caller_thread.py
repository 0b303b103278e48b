"""Thread of a run: a short one is made in the thread that calls, where that is faster than TensorFlow's threads.

TensorFlow computes a run in threads of its pool, which the caller wakes and waits for. That is the larger part of a
step of some 10 µs; and where other work keeps the cores busy, each of them waits for its turn, besides. A run may also
be computed by the thread that calls, one op after the other, and within the ops by as many threads as ever. What it
computes is the same, to the bit; where ops are long enough to be computed side by side, it takes longer. So both are
tried, and the faster one stays.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tpk.graph.loops import ops_in_order
from tpk.tf_internals import CallableOptions, make_callable, session_config

Call = Callable[..., list[Any]]

WARM_UP = 100
"""How many steps TensorFlow's threads make before the trial: it compiles a second executor, which few are not worth."""

TRIED = 20
"""How many runs each of the two makes in the trial."""

SHORT = 2e-3
"""Seconds that a step may take to be worth a trial: of a longer one, to wake threads is no part that counts."""

GAIN = 0.9
"""Of the time in TensorFlow's threads, what a run in the caller's may take at most to stay there."""

_MOST_WAITS = 64
_WAITS = re.compile("Queue(De|En)queue")
_LOOPS = ("Enter", "RefEnter")
_KNOWN = re.compile(
    "Assert|Assign|FIFOQueue|HashTable|IsVariableInitialized|LookupTable|Multinomial|MutableHashTable|PaddingFIFOQueue|"
    "ParameterizedTruncatedNormal|Print|Queue|Random|ReadVariableOp|Resource(Sparse)?Apply|ResourceGather|"
    "ResourceScatter|Stateful|TensorArray|Timestamp|TruncatedNormal|VarHandleOp|VarIsInitializedOp|Variable"
)


class ThreadTrial:
    """A run as TensorFlow's threads make it, which tries after a while whether the caller's is faster.

    Args:
        pooled: makes the run in TensorFlow's threads.
        compile_for_caller: returns what makes it in the thread that calls; None if nothing may.
        settle: is given the faster one, to be called from then on.
        steps: how many steps a run makes, about.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        pooled: Call,
        compile_for_caller: Callable[[], Call | None],
        settle: Callable[[Call], None],
        *,
        steps: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._pooled = pooled
        self._compile_for_caller = compile_for_caller
        self._settle = settle
        self._warm_up = WARM_UP // steps
        self._short = SHORT * steps
        self._clock = clock
        self._own: Call | None = None
        # Of TensorFlow's threads, those of the warm-up, too.
        self._seconds: tuple[list[float], list[float]] = ([], [])

    def __call__(self, *arrays: Any) -> list[Any]:
        """Make the run."""
        call, seconds = self._next()
        began = self._clock()
        values = call(*arrays)
        seconds.append(self._clock() - began)
        return values

    def _next(self) -> tuple[Call, list[float]]:
        """Return what makes the next run, and where to put how long it took."""
        pooled, own = self._seconds
        if len(pooled) < self._warm_up:
            return self._pooled, pooled
        if self._own is None:
            self._own = self._compile_for_caller() if min(pooled) <= self._short else None
            if self._own is None:
                self._settle(self._pooled)
                return self._pooled, pooled
        if len(own) < TRIED:
            # In turns, since what else the machine does changes all the time.
            return (self._pooled, pooled) if len(pooled) - self._warm_up <= len(own) else (self._own, own)
        is_faster = statistics.median(own) <= GAIN * statistics.median(pooled[self._warm_up :])
        chosen = self._own if is_faster else self._pooled
        self._settle(chosen)
        return chosen, []


def compile_for_caller(sess: Any, options: Any) -> Call:
    """Compile a run for the thread that calls.

    Args:
        sess: the raw `tf.compat.v1.Session`.
        options: the `CallableOptions` of the run.
    """
    own = CallableOptions()
    own.CopyFrom(options)
    own.run_options.inter_op_thread_pool = -1
    return make_callable(sess, own)


def most_steps_in_caller(sess: Any, fetches: Sequence[Any], feeds: Sequence[Any]) -> int:
    """Return how many times `fetches` may be run, one after the other, in one run in the thread that calls.

    None, if an op might wait there for what another one of the run does: of ops with a state, those may run of which
    it is known that they do not. What `tf.data` makes, and functions, are computed by many threads. An op that waits
    for a queue goes on in a call within a call; so there must not be many of them, and none in a loop. Where the
    session's config says how many threads there are, that holds.

    Args:
        sess: the raw `tf.compat.v1.Session`.
        fetches: operations and tensors.
        feeds: the tensors that are fed.
    """
    config = session_config(sess)
    if sess.sess_str or (config and (config.inter_op_parallelism_threads or config.session_inter_op_thread_pool)):
        return 0
    ops = ops_in_order([getattr(each, "op", each) for each in fetches], feeds)
    if any(op.op_def.is_stateful and not _KNOWN.match(op.type) for op in ops):
        return 0
    if any(attribute.type in ("func", "list(func)") for op in ops for attribute in op.op_def.attr):
        return 0
    waits = sum(_WAITS.match(op.type) is not None for op in ops)
    if not waits:
        return sys.maxsize
    return 0 if any(op.type in _LOOPS for op in ops) else _MOST_WAITS // waits
