"""Requests of one run: what the step and each hook fetch, feed and ask of the runtime, merged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tpk.errors import SessionError
from tpk.graph.steps import ReusableFeeds

SessionRunArgs = tf.compat.v1.train.SessionRunArgs


class RunContext(tf.compat.v1.train.SessionRunContext):  # type: ignore[misc]
    """What hooks know of a run.

    Attributes:
        steps: how many steps the run makes; 1 for one that makes none that counts. A ``before_run`` may lower it, if
            there is data for fewer. In ``after_run``, how many it has made.
    """

    def __init__(self, original_args: Any, session: Any, steps: int) -> None:
        # What TensorFlow's own does, without the call: one is made in each step.
        self._original_args = original_args
        self._session = session
        self._stop_requested = False
        self.steps = steps


class Feed(NamedTuple):
    """A value for a tensor; a tuple, because one is made in each step that feeds.

    Attributes:
        key: the tensor, or whatever `Session.run` takes in place of one.
        value: its value; for reusable feeds the feeds themselves, until the values are taken.
        request: the number of the request that gives it: 0 is the caller's, then come those of the hooks.
    """

    key: Any
    value: Any
    request: int


def merge_requests(
    requests: Sequence[Any], feed_dict: Any, options: Any, owner: Callable[[int], str] = "request {}".format
) -> tuple[list[Any], list[Feed], Any]:
    """Take requests apart, and merge what is not the business of one of them alone.

    Args:
        requests: the caller's fetches, then what each hook returned: fetches, `SessionRunArgs`, or None.
        feed_dict: the caller's feeds.
        options: the caller's `tf.compat.v1.RunOptions`.
        owner: says whose request has a number, for errors.

    Returns:
        What each of them fetches, where None is nothing; all feeds, in a list, because tensors do not hash outside of
        their graph's context; and the merged `tf.compat.v1.RunOptions`, or None if nobody asked.

    Raises:
        TypeError: if a feed dict is none.
        SessionError: if a tensor is fed twice.
    """
    fetches, feed_dicts, all_options = [requests[0]], [feed_dict], [options]
    for request in requests[1:]:
        is_whole = isinstance(request, SessionRunArgs)
        fetches.append(request.fetches if is_whole else request)
        feed_dicts.append(request.feed_dict if is_whole else None)
        all_options.append(request.options if is_whole else None)
    return fetches, _merge_feeds(feed_dicts, owner), merge_run_options(all_options)


def _merge_feeds(feed_dicts: Sequence[Any], owner: Callable[[int], str]) -> list[Feed]:
    feeds: list[Feed] = []
    for number, feed_dict in enumerate(feed_dicts):
        if feed_dict is None:
            continue
        if isinstance(feed_dict, ReusableFeeds):
            feeds.extend(Feed(tensor, feed_dict, number) for tensor in feed_dict.tensors)
        elif isinstance(feed_dict, Mapping):
            feeds.extend(Feed(key, value, number) for key, value in feed_dict.items())
        else:
            raise TypeError(f"{owner(number)} feeds {feed_dict!r}, which is no dict. Give a dict of values by tensors.")
    if len(feeds) > 1:
        _check_fed_once(feeds, owner)
    return feeds


def _check_fed_once(feeds: Sequence[Feed], owner: Callable[[int], str]) -> None:
    seen: dict[Any, Feed] = {}
    for feed in feeds:
        for name in names_fed(feed.key):
            first = seen.setdefault(name, feed)
            if first is not feed:
                raise SessionError(
                    f"{name!r} is fed twice in one step: by {owner(first.request)} and by {owner(feed.request)}. "
                    "Feed it in one place."
                )


def names_fed(key: Any) -> list[str]:
    """The names of the tensors that a key of a feed dict stands for."""
    if isinstance(key, tf.Tensor):
        return [key.name]
    return [str(getattr(part, "name", part)) for part in tf.nest.flatten(key, expand_composites=True)]


def merge_run_options(options: Iterable[Any]) -> Any | None:
    """Return `tf.compat.v1.RunOptions` that give each request what it asked for; None if nobody asked.

    The rules are those of TensorFlow's `MonitoredSession`: the most detailed trace, the longest timeout, all tensor
    watches, and each switch if anyone wants it.
    """
    asked = [option for option in options if option is not None]
    if len(asked) <= 1:
        return asked[0] if asked else None
    merged = tf.compat.v1.RunOptions()
    merged.CopyFrom(asked[0])
    for option in asked[1:]:
        for name in ("trace_level", "timeout_in_ms", "inter_op_thread_pool"):
            setattr(merged, name, max(getattr(merged, name), getattr(option, name)))
        for name in ("output_partition_graphs", "report_tensor_allocations_upon_oom"):
            setattr(merged, name, getattr(merged, name) or getattr(option, name))
        merged.debug_options.debug_tensor_watch_opts.extend(option.debug_options.debug_tensor_watch_opts)
        merged.debug_options.reset_disk_byte_usage |= option.debug_options.reset_disk_byte_usage
    return merged


def is_constant(request: Any) -> bool:
    """Whether `request` can be told by its identity alone, because nothing in it can change but reusable feeds."""
    if isinstance(request, tuple):
        return all(map(is_constant, request))
    return request is None or isinstance(request, str | tf.Operation | tf.Tensor | ReusableFeeds)


def own(value: Any) -> Any:
    """Return a result in memory of its own."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return copy.deepcopy(value) if isinstance(value, tf.compat.v1.ragged.RaggedTensorValue) else value
