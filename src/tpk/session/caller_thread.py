"""The thread of a run: a short run is made in the calling thread, if that is faster than TensorFlow's threads.

TensorFlow computes a run in threads of its pool, which the caller wakes and waits for. That is most of the time of a
step of some 10 µs, and more on a busy machine, where each of these threads waits for a core. A run can also be computed
by the calling thread, one op after the other, while each op still uses as many threads as ever. The results are the
same, to the bit, but where ops are long enough to run in parallel it is slower. So both are tried, and the faster one
stays.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Callable, Generator, Sequence
from threading import Lock
from typing import Any

from tpk.graph.repeated_ops import ops_in_order
from tpk.tf_internals import CallableOptions, make_callable, session_config

Call = Callable[..., list[Any]]

WARM_UP = 100
"""The number of runs before the trial, which compiles a second executor: not worth it for short trainings."""

TRIED = 20
"""The number of runs that each of the two makes in the trial."""

SHORT = 2e-3
"""The longest run in seconds that is worth a trial: in a longer one, waking threads hardly matters."""

GAIN = 0.9
"""A run stays in the calling thread if it takes at most this fraction of its time in TensorFlow's threads."""

_MOST_WAITS = 64
_WAITS = re.compile("Queue(De|En)queue")
_LOOPS = ("Enter", "RefEnter")
_KNOWN = re.compile(
    "Assert|Assign|FIFOQueue|HashTable|IsVariableInitialized|LookupTable|Multinomial|MutableHashTable|PaddingFIFOQueue|"
    "ParameterizedTruncatedNormal|Print|Queue|Random|ReadVariableOp|Resource(Sparse)?Apply|ResourceGather|"
    "ResourceScatter|Stateful|TensorArray|Timestamp|TruncatedNormal|VarHandleOp|VarIsInitializedOp|Variable"
)


def faster_of(
    pooled: Call,
    compile_direct: Callable[[], Call | None],
    settle: Callable[[Call], None],
    clock: Callable[[], float] = time.perf_counter,
) -> Call:
    """Return a function that makes a run, and finds out which of two ways is faster while it is being called.

    Args:
        pooled: makes the run in TensorFlow's threads.
        compile_direct: returns a function that makes it in the calling thread; None if the run is not suitable.
        settle: called with the faster one, which is to be called from then on.
        clock: returns the time in seconds.
    """
    trial = _trial(pooled, compile_direct)
    call = next(trial)
    lock = Lock()

    def run(*arrays: Any) -> list[Any]:
        nonlocal call
        began = clock()
        values = call(*arrays)
        seconds = clock() - began
        with lock:
            try:
                call = trial.send(seconds)
            except StopIteration as end:
                call = end.value or call  # Another thread may have ended the trial.
                settle(call)
        return values

    return run


def _trial(pooled: Call, compile_direct: Callable[[], Call | None]) -> Generator[Call, float, Call]:
    """Yield the function that is to make each run of the trial, be sent the seconds it took, and return the faster."""
    warm_up = []
    for _ in range(WARM_UP):
        warm_up.append((yield pooled))
    direct = compile_direct() if min(warm_up) <= SHORT else None
    if direct is None:
        return pooled
    seconds_pooled, seconds_direct = [], []
    # In turns, because the load of the machine changes all the time.
    for _ in range(TRIED):
        seconds_pooled.append((yield pooled))
        seconds_direct.append((yield direct))
    return direct if statistics.median(seconds_direct) <= GAIN * statistics.median(seconds_pooled) else pooled


def compile_for_caller(sess: Any, options: Any) -> Call:
    """Compile a run for the calling thread.

    Args:
        sess: the raw `tf.compat.v1.Session`.
        options: the `CallableOptions` of the run.
    """
    in_caller = CallableOptions()
    in_caller.CopyFrom(options)
    in_caller.run_options.inter_op_thread_pool = -1
    return make_callable(sess, in_caller)


def most_steps_in_caller(sess: Any, fetches: Sequence[Any], feeds: Sequence[Any]) -> int:
    """Return how many times `fetches` may be run, one after the other, in one run in the calling thread.

    0 if an op might wait there for another op of the run: of stateful ops, only those that are known not to wait are
    accepted. `tf.data` and functions need several threads. An op that waits for a queue continues in a nested call, so
    there must not be many of them, and none in a loop. A number of threads in the session's config has priority.

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
