"""One merged run: the requests of the step and of each hook, compiled into one call of TensorFlow.

`Session.run` resolves the structure of its fetches and feeds in each call. A step asks for the same structure a million
times, so a `RunPlan` resolves it once. What cannot be compiled (sparse and composite feeds, feeds by name, tensors both
fed and fetched, tensor handles) is left to `Session.run`. Results are always those of `Session.run`, because its own
fetch handler builds them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.graph.fetches import ReusableFeeds, leaves, names_in, ops_from, rebuild
from tpk.graph.signature import ArraySpec
from tpk.graph.step_counter import StepCounter
from tpk.session.caller_thread import Call, compile_for_caller, faster_of, most_steps_in_caller
from tpk.session.requests import Feed, names_fed
from tpk.tf_internals import CallableOptions, fetch_handler, fetched_elements, make_callable, word_error

_KNOWN = (str, tf.Operation, tf.Tensor, tf.Variable, tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)
"""Types whose fetches never change. Those of types that were registered with `Session.run` may."""


@attrs.define(eq=False)
class RunPlan:
    """How to run one structure of requests.

    Attributes:
        kept: the objects whose ids are in cache keys; kept alive, so that the ids stay theirs.
        fetches: the merged structure, for `Session.run`; a copy that the caller cannot change.
        positions: the position of each request's results in the merged results; None if it asked for nothing.
        lasts: whether the plan also holds for later requests of the same structure.
        work: what each step runs, if a run makes several steps: the step's own fetches, and the operations that hooks
            ask for. Tensors that hooks ask for are fetched from the last step.
        counting: the op that counts the step; None if the step counts itself.
        feed_keys: the fed tensors.
        reusable_feeds: the reusable feeds on which the run depends.
        is_work: whether the run consists of `work` alone, without fetches.
        timeout_in_ms: after how long a run is cancelled; 0 for never.
        shares: whether `Session.run` would return results that share memory with each other or with a feed.
        slots: dtype and dimensions of each feed, in the order of the callable's arguments.
        options: what to compile; None if this structure needs `Session.run`.
        build: makes the merged results of the callable's values; None if nothing is fetched.
        call: the compiled callable; None before the first run.
        no_results: the results of each request if nothing is fetched.
    """

    kept: tuple[Any, ...]
    fetches: list[Any]
    positions: tuple[int | None, ...]
    lasts: bool
    work: tuple[Any, ...] = ()
    counting: Any = None
    feed_keys: tuple[Any, ...] = ()
    reusable_feeds: tuple[ReusableFeeds, ...] = ()
    is_work: bool = False
    timeout_in_ms: int = 0
    shares: bool = True
    slots: tuple[_Slot, ...] = ()
    options: Any = None
    build: Callable[[list[Any]], list[Any]] | None = None
    call: Call | None = None
    no_results: list[None] = attrs.field(factory=list)

    def compile(self, sess: Any, compiled: MutableMapping[bytes, Call], *, tries_threads: bool = False) -> Call:
        """Compile the run, unless another plan of the session has done so.

        Args:
            sess: the raw session.
            compiled: the callables of the session, by their options.
            tries_threads: whether the run may be made in the calling thread, if that is faster.
        """
        key = self.options.SerializeToString()
        found = compiled.get(key)
        call = compiled[key] = compile_run(sess, self.options) if found is None else found
        if tries_threads and not self.timeout_in_ms:
            call = faster_of(call, lambda: self._compile_for_caller(sess), self._settle)
        self.call = call
        return call

    def results(self, values: list[Any]) -> list[Any]:
        """Return the results of each request from what `call` returned."""
        return self.no_results if self.build is None else self._distribute(self.build(values))

    def results_of_session(self, merged: Sequence[Any]) -> list[Any]:
        """Return the results of each request from what `Session.run` returned for `fetches`."""
        return self._distribute(rebuild(merged, unshared) if self.shares else merged)

    def take(self, feeds: Sequence[Feed]) -> list[Feed]:
        """Take the values of the reusable feeds, and return all feeds of a run."""
        values = {each: iter(each.take()) for each in self.reusable_feeds}
        taken = []
        for feed in feeds:
            if not isinstance(feed.value, ReusableFeeds):
                taken.append(feed)
            elif feed.value in values:
                taken.append(feed._replace(value=next(values[feed.value])))
        return taken

    def convert(self, feeds: Sequence[Feed]) -> list[np.ndarray] | None:
        """Return the values of `feeds` as arrays, as `Session.run` would; None if only `Session.run` can tell."""
        arrays = []
        for feed, slot in zip(feeds, self.slots, strict=True):
            array = slot.convert(feed.value)
            if array is None:
                return None
            arrays.append(array)
        return arrays

    def _compile_for_caller(self, sess: Any) -> Call | None:
        names = [name.partition(":")[0] for name in (*self.options.fetch, *self.options.target)]
        ops = list(map(sess.graph.get_operation_by_name, names))
        return compile_for_caller(sess, self.options) if most_steps_in_caller(sess, ops, self.feed_keys) else None

    def _settle(self, call: Call) -> None:
        self.call = call

    def _distribute(self, merged: Sequence[Any]) -> list[Any]:
        return [None if position is None else merged[position] for position in self.positions]


@attrs.frozen
class _Slot:
    """The arrays that a fed tensor takes."""

    dtype: Any
    fits: Callable[[tuple[int, ...]], bool]

    def convert(self, value: Any) -> np.ndarray | None:
        if type(value) is not np.ndarray or value.dtype != self.dtype:
            # For integers, tensors and handles, Session.run has its own checks.
            if not isinstance(value, np.ndarray | np.generic | float | str | bytes | list | tuple):
                return None
            try:
                value = np.asarray(value, dtype=self.dtype)
            except Exception:  # Session.run fails in the same way, and words it better.
                return None
        return value if self.fits(value.shape) else None


def make_plan(
    sess: Any,
    requests: Sequence[Any],
    feeds: Sequence[Feed],
    counter: StepCounter | None,
    counts_step: bool,
    timeout_in_ms: int = 0,
) -> RunPlan:
    """Plan a run of `requests`; nothing is compiled yet.

    Args:
        sess: the raw `tf.compat.v1.Session`.
        requests: the fetches of the caller, then of each hook, as `Session.run` takes them; None for a hook without
            fetches.
        feeds: the feeds, in order.
        counter: counts the run in the graph; None for nothing.
        counts_step: whether it is the run that counts a step.
        timeout_in_ms: after how long a run is cancelled; 0 for never.

    Raises:
        TypeError, ValueError: what `Session.run` raises if it cannot fetch one of them.
    """
    # The caller must fetch something; a hook need not.
    wanted = [index for index, request in enumerate(requests) if index == 0 or request is not None]
    positions = tuple(wanted.index(index) if index in wanted else None for index in range(len(requests)))
    # The fetch handler reads the keys of a dict again when it builds results, when the caller may have changed it.
    fetches = [rebuild(requests[index], lambda leaf: leaf) for index in wanted]
    kept = [each for request in requests for each in (*leaves(request), *names_in(request))]
    handler = fetch_handler(sess.graph, fetches)
    ops = _ops_of(handler)
    reusable = _needed_feeds(ops, feeds)
    feed_keys = [feed.key for feed in feeds if not isinstance(feed.value, ReusableFeeds) or feed.value in reusable]
    counting = None if counter is None else counter.op_for(ops, counts_step)
    targets = handler.targets() if counting is None else [*handler.targets(), counting]
    plan = RunPlan(
        kept=(*kept, *(feed.key for feed in feeds)),
        fetches=fetches if counting is None else [*fetches, counting],
        positions=positions,
        lasts=all(isinstance(leaf, _KNOWN) for request in fetches for leaf in leaves(request)),
        work=tuple(dict.fromkeys([*_ops_of(fetch_handler(sess.graph, requests[0])), *handler.targets()])),
        counting=counting,
        feed_keys=tuple(feed_keys),
        reusable_feeds=reusable,
        is_work=not handler.fetches(),
        timeout_in_ms=timeout_in_ms,
        no_results=[None] * len(positions),
    )

    slots = _slots(sess.graph, feed_keys) if plan.lasts else None
    fed = {id(key) for key in feed_keys}
    tensors = handler.fetches()
    # A debugger of TensorFlow that wraps the session must see the fetches.
    is_wrapped = not isinstance(sess, tf.compat.v1.Session | tf.compat.v1.InteractiveSession)
    if slots is None or is_wrapped or any(id(tensor) in fed for tensor in tensors) or not (tensors or targets):
        return plan
    plan.slots = slots
    plan.shares = _repeats(sess.graph, fetches)
    plan.options = callable_options(feed_keys, tensors, targets, timeout_in_ms)
    if any(request is not None and not isinstance(request, tf.Operation) for request in requests):
        plan.build = _builder(sess, handler, plan.shares)
    return plan


def _needed_feeds(ops: Sequence[Any], feeds: Sequence[Feed]) -> tuple[ReusableFeeds, ...]:
    """Return the reusable feeds on which a run of `ops` depends."""
    reusable = [feed for feed in feeds if isinstance(feed.value, ReusableFeeds)]
    if not reusable:
        return ()
    fed = {name for feed in feeds if not isinstance(feed.value, ReusableFeeds) for name in names_fed(feed.key)}
    needed = set(
        ops_from(ops, lambda op: [*(each.op for each in op.inputs if each.name not in fed), *op.control_inputs])
    )
    return tuple(dict.fromkeys(feed.value for feed in reusable if feed.key.op in needed))


def _ops_of(handler: Any) -> list[Any]:
    return [*(tensor.op for tensor in handler.fetches()), *handler.targets()]


def failing_request(sess: Any, requests: Sequence[Any]) -> int | None:
    """Return the index of the first request that `Session.run` cannot fetch; None if it can fetch each of them."""
    for index, request in enumerate(requests):
        if request is None and index > 0:
            continue
        try:
            fetch_handler(sess.graph, request)
        except Exception:
            return index
    return None


def callable_options(feeds: Sequence[Any], fetches: Sequence[Any], targets: Sequence[Any], timeout_in_ms: int) -> Any:
    """Return the `CallableOptions` of a run: tensors that are fed and fetched, ops, and a timeout, 0 for none."""
    options = CallableOptions(
        feed=[tensor.name for tensor in feeds],
        fetch=[tensor.name for tensor in fetches],
        target=[op.name for op in targets],
    )
    options.run_options.timeout_in_ms = timeout_in_ms
    return options


def compile_run(sess: Any, options: Any) -> Call:
    """Compile a run with `CallableOptions`, except on a TensorFlow server with a timeout, which callables ignore."""
    if options.run_options.timeout_in_ms and sess.sess_str:
        return partial(_run_on_server, sess, options)
    try:
        return make_callable(sess, options)
    except tf.errors.OpError as error:
        word_error(sess, error)


def _run_on_server(sess: Any, options: Any, *arrays: Any) -> list[Any]:
    feeds = dict(zip(options.feed, arrays, strict=True))
    values: list[Any] = sess.run([*options.fetch, *options.target], feeds, options.run_options)
    return values[: len(options.fetch)]


def _builder(sess: Any, handler: Any, shares: bool) -> Callable[[list[Any]], list[Any]]:
    """Return a function that makes results of the arrays of a callable, which are still the runtime's own memory.

    The value of a variable, a constant, a fed array or a queue element may be in the same memory. Scalars and strings
    are copies already.
    """
    if shares:
        return lambda values: list(rebuild(handler.build_results(sess, values), unshared))
    borrowed = [
        index
        for index, tensor in enumerate(handler.fetches())
        if tensor.shape.rank != 0 and tensor.dtype.base_dtype != tf.string
    ]

    def build(values: list[Any]) -> list[Any]:
        for index in borrowed:
            values[index] = unshared(values[index])
        results: list[Any] = handler.build_results(sess, values)
        return results

    return build


def _repeats(graph: Any, fetches: Sequence[Any]) -> bool:
    """Return whether the value of a tensor is in several places of the results, or belongs to several requests."""
    with graph.as_default():
        found = [
            id(element)
            for request in fetches
            for leaf in leaves(request)
            for element in fetched_elements(leaf)
            if isinstance(element, tf.Tensor) and element.shape.rank != 0
        ]
    return len(found) != len(set(found))


def _slots(graph: Any, feed_keys: Sequence[Any]) -> tuple[_Slot, ...] | None:
    slots = []
    for key in feed_keys:
        if not isinstance(key, tf.Tensor) or key.graph is not graph or not graph.is_feedable(key):
            return None
        fits = ArraySpec(tf.TensorSpec(key.shape, key.dtype)).fits
        slots.append(_Slot(np.dtype(key.dtype.as_numpy_dtype), fits))
    return tuple(slots)


def unshared(value: Any) -> Any:
    """Return a result in memory of its own."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return copy.deepcopy(value) if isinstance(value, tf.compat.v1.ragged.RaggedTensorValue) else value
