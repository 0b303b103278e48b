"""What several monitors want to run along with a step, merged into one request, and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import SessionError
from tpk.monitors.isolation import IsolatedMonitor
from tpk.session.request import merge_run_options

SessionRunArgs = tf.compat.v1.train.SessionRunArgs
SessionRunValues = tf.compat.v1.train.SessionRunValues


class StepRequests:
    """Calls the monitors' ``before_run`` and ``after_run``.

    Args:
        monitors: those that implement at least one of the two.
    """

    def __init__(self, monitors: Sequence[IsolatedMonitor]) -> None:
        self._before = [monitor for monitor in monitors if monitor.implements("before_run")]
        self._after = [monitor for monitor in monitors if monitor.implements("after_run")]
        self._requests: list[Any] = [None] * len(self._before)
        self._merged: Any = None
        # Where in the merged fetches the results of each monitor are, for those that fetch.
        self._positions: dict[IsolatedMonitor, int] = {}

    def merge(self, run_context: Any) -> Any:
        """Ask all monitors; return one `SessionRunArgs`, the same object for the same requests."""
        requests = [monitor.call("before_run", run_context) for monitor in self._before]
        if all(new is old and is_constant(new) for new, old in zip(requests, self._requests, strict=True)):
            return self._merged
        self._requests = requests
        self._merged = self._merge(requests)
        return self._merged

    def distribute(self, run_context: Any, run_values: Any) -> None:
        """Give each monitor the results of what it asked for."""
        for monitor in self._after:
            position = self._positions.get(monitor)
            own = None if position is None else run_values.results[position]
            monitor.call("after_run", run_context, SessionRunValues(own, run_values.options, run_values.run_metadata))

    def _merge(self, requests: Sequence[Any]) -> Any:
        self._positions = {}
        fetches: list[Any] = []
        feeds: dict[Any, Any] = {}
        options: list[Any] = []
        for monitor, request in zip(self._before, requests, strict=True):
            if request is None:
                continue
            own = request if isinstance(request, SessionRunArgs) else SessionRunArgs(request)
            own_feeds = dict(own.feed_dict or {})
            twice = [key for key in own_feeds if key in feeds]
            if twice:
                monitor.note_failure("before_run", SessionError(f"{twice[0]} is fed by another monitor, too"))
                continue
            feeds.update(own_feeds)
            options.append(own.options)
            if own.fetches is not None:
                self._positions[monitor] = len(fetches)
                fetches.append(own.fetches)
        if not fetches and not feeds and not any(options):
            return None
        return SessionRunArgs(fetches, feeds or None, merge_run_options(options))


def is_constant(request: Any) -> bool:
    """Whether the same `request` object always asks for the same; feeds may have got new values."""
    return not (isinstance(request, SessionRunArgs) and (request.feed_dict or request.options))
