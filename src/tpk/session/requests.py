"""What a run is asked for: the fetches, feeds and options of the step and of each hook, merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tpk.errors import SessionError
from tpk.graph.fetches import ReusableFeeds

SessionRunArgs = tf.compat.v1.train.SessionRunArgs


class RunContext(tf.compat.v1.train.SessionRunContext):  # type: ignore[misc]
    """The context of a run, for hooks.

    Attributes:
        steps: the number of steps that the run makes; 1 if it makes none that counts. A ``before_run`` may lower it if
            there is data for fewer. In ``after_run``, the number that were made.
    """

    def __init__(self, original_args: Any, session: Any, steps: int) -> None:
        # As the base class does, without the call, because one is made in each step.
        self._original_args = original_args
        self._session = session
        self._stop_requested = False
        self.steps = steps


class Feed(NamedTuple):
    """A value for a tensor; a tuple, because one is made in each step that feeds.

    Attributes:
        key: the tensor, or what `Session.run` takes instead of one.
        value: its value; for reusable feeds the feeds themselves, until the values are taken.
        request: the index of the request that has the feed: 0 for the caller, then the hooks.
    """

    key: Any
    value: Any
    request: int


def merge_requests(
    requests: Sequence[Any], feed_dict: Any, options: Any, owner: Callable[[int], str] = "request {}".format
) -> tuple[list[Any], list[Feed], Any]:
    """Split requests into fetches, feeds and options, and merge the feeds and options.

    Args:
        requests: the caller's fetches, then what each hook returned: fetches, `SessionRunArgs`, or None.
        feed_dict: the caller's feeds.
        options: the caller's `tf.compat.v1.RunOptions`.
        owner: returns the owner of the request with an index, for errors.

    Returns:
        The fetches of each request, or None; all feeds, in a list, because tensors do not hash outside their graph's
        context; and the merged `tf.compat.v1.RunOptions`, or None without options.

    Raises:
        TypeError: if a feed dict is not a mapping.
        SessionError: if a tensor is fed twice.
    """
    asked = [each if isinstance(each, SessionRunArgs) else SessionRunArgs(each) for each in requests[1:]]
    fetches, feed_dicts, all_options = zip(SessionRunArgs(requests[0], feed_dict, options), *asked, strict=True)
    return list(fetches), _merge_feeds(feed_dicts, owner), merge_run_options(all_options)


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
            raise TypeError(
                f"{owner(number)} feeds {feed_dict!r}, which is not a dict. Give a dict of values by tensors."
            )
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
    """Return the names of the tensors of a key of a feed dict."""
    if isinstance(key, tf.Tensor):
        return [key.name]
    return [str(getattr(part, "name", part)) for part in tf.nest.flatten(key, expand_composites=True)]


def merge_run_options(options: Iterable[Any]) -> Any | None:
    """Return `tf.compat.v1.RunOptions` that satisfy each request; None without requests.

    As in TensorFlow's `MonitoredSession`, the result has the most detailed trace, the longest timeout, all tensor
    watches, and each switch that any request sets.
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
    """Return whether a request is known by its identity, because nothing in it can change except reusable feeds."""
    if isinstance(request, tuple):
        return all(map(is_constant, request))
    return request is None or isinstance(request, str | tf.Operation | tf.Tensor | ReusableFeeds)
