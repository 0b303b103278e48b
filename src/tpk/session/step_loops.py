"""Runs that make several steps: loops in the graph of a session, built when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from tpk.graph.step_loop import repeat

Repeat = Callable[[Sequence[Any], Any, Sequence[Any]], Any]
"""Adds a loop over ops to the default graph; see `tpk.graph.step_loop.repeat`."""


class StepLoops:
    """The loops of a session, each over what some steps run.

    Args:
        sess: the raw `tf.compat.v1.Session`, whose graph may be finalized: the loops are added to it all the same.
        repeat: adds a loop to the graph.
    """

    def __init__(self, sess: Any, repeat: Repeat = repeat) -> None:
        self._sess = sess
        self._repeat = repeat
        self._times: Any = None
        self._calls: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def run(self, ops: Sequence[Any], times: int, feed_keys: Sequence[Any] = (), arrays: Sequence[Any] = ()) -> None:
        """Run `ops` so many times, one after the other.

        Args:
            ops: operations of the graph.
            times: how often.
            feed_keys: tensors that are fed with the same values each time.
            arrays: these values.
        """
        key = (*ops, *map(id, feed_keys))
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = self._build(ops, feed_keys)
        call(np.array(times, np.int32), *arrays)

    def _build(self, ops: Sequence[Any], feed_keys: Sequence[Any]) -> Callable[..., Any]:
        graph = self._sess.graph
        was_finalized = graph.finalized
        graph._unsafe_unfinalize()
        try:
            with graph.as_default(), tf.name_scope(""), tf.control_dependencies(None):
                if self._times is None:
                    self._times = tf.compat.v1.placeholder(tf.int32, [], name="steps_of_run")
                loop = self._repeat(ops, self._times, feed_keys)
        finally:
            if was_finalized:
                graph.finalize()
        options = config_pb2.CallableOptions(
            feed=[self._times.name, *(key.name for key in feed_keys)], target=[loop.name]
        )
        call: Callable[..., Any] = self._sess._make_callable_from_options(options)
        return call
