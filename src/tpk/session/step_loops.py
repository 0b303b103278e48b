"""Runs that make several steps: loops in the graph of a session, built when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from tpk.graph.compiled_loop import repeat_compiled
from tpk.graph.step_loop import repeat

Run = Callable[[int, Sequence[Any]], None]


class StepLoops:
    """The loops of a session, each over what some steps run.

    Args:
        sess: the raw `tf.compat.v1.Session`, whose graph may be finalized: the loops are added to it all the same.
        xla: whether they are compiled by XLA; see `tpk.graph.compiled_loop`.
    """

    def __init__(self, sess: Any, xla: bool = False) -> None:
        self._sess = sess
        self._xla = xla
        self._runs: dict[tuple[Any, ...], Run] = {}

    def run(self, ops: Sequence[Any], times: int, feed_keys: Sequence[Any] = (), arrays: Sequence[Any] = ()) -> None:
        """Run `ops` so many times, one after the other.

        Args:
            ops: operations of the graph.
            times: how often.
            feed_keys: tensors that are fed with the same values each time.
            arrays: these values.

        Raises:
            ConfigError: if XLA is to compile what it cannot.
        """
        key = (*ops, *map(id, feed_keys))
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = self._build(ops, feed_keys)
        run(times, arrays)

    def _build(self, ops: Sequence[Any], feed_keys: Sequence[Any]) -> Run:
        graph = self._sess.graph
        was_finalized = graph.finalized
        graph._unsafe_unfinalize()
        try:
            with graph.as_default(), tf.name_scope(""), tf.control_dependencies(None):
                times = tf.compat.v1.placeholder(tf.int32, [], name="steps_of_run")
                make = self._compiled if self._xla else self._plain
                return make(ops, times, feed_keys)
        finally:
            if was_finalized:
                graph.finalize()

    def _plain(self, ops: Sequence[Any], times: Any, feed_keys: Sequence[Any]) -> Run:
        call = self._callable(repeat(ops, times, feed_keys), [times, *feed_keys])

        def run(steps: int, arrays: Sequence[Any]) -> None:
            call(np.array(steps, np.int32), *arrays)

        return run

    def _compiled(self, ops: Sequence[Any], times: Any, feed_keys: Sequence[Any]) -> Run:
        loop = repeat_compiled(ops, times, feed_keys)
        call = self._callable(loop.op, [times, loop.gathered, *feed_keys])

        def run(steps: int, arrays: Sequence[Any]) -> None:
            number = np.array(steps, np.int32)
            try:
                call(number, number, *arrays)
            except tf.errors.OutOfRangeError:
                # What there was before the end of the data is used.
                if loop.waiting is not None:
                    call(self._sess.run(loop.waiting), np.array(0, np.int32), *arrays)
                raise

        return run

    def _callable(self, target: Any, feeds: Sequence[Any]) -> Callable[..., Any]:
        options = config_pb2.CallableOptions(feed=[feed.name for feed in feeds], target=[target.name])
        call: Callable[..., Any] = self._sess._make_callable_from_options(options)
        return call
