"""One merged run, compiled: many requests become a single call of TensorFlow's callable interface.

`Session.run` resolves the structure of its fetches and feeds anew each time. A step asks for the same structure a
million times, so a `RunPlan` resolves it once. What cannot be compiled (sparse and composite feeds, feeds by name,
tensors both fed and fetched, tensor handles) is left to `Session.run`; results are always those of `Session.run`,
because its own fetch handler builds them.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.graph.steps import ReusableFeeds, leaves, names_in, ops_from, rebuild
from tpk.session.caller_thread import Call, ThreadTrial, compile_for_caller, most_steps_in_caller
from tpk.session.request import Feed, names_fed, own
from tpk.tf_internals import CallableOptions, fetch_handler, fetched_elements, make_callable, word_error

_KNOWN = (str, tf.Operation, tf.Tensor, tf.Variable, tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)
"""What always fetches the same. Of other types that `Session.run` was taught to fetch, nobody knows that."""

CountOp = Callable[[Sequence[Any], bool], Any]
"""Given the operations that a run makes for its fetches, and whether it counts a step, returns what counts it."""


@attrs.define(eq=False)
class RunPlan:
    """How to run one structure of requests.

    Attributes:
        kept: what cache keys refer to by id, kept so that the ids stay those of these objects.
        fetches: the merged structure, for the calls that `Session.run` has to make; a copy, which nobody changes.
        positions: where in the merged results the results of each request stand; None where it asked for nothing.
        lasts: whether a request with the same structure asks for the same again.
        shares: whether `Session.run` would return results that share memory with one another, or with a feed.
        work: what is run in each step, if a run makes several of them: what the step itself runs, and the operations
            that hooks ask for. Tensors that hooks ask for are fetched from the last one.
        counting: what counts the step, if something does besides.
        feed_keys: the tensors that are fed.
        reusable_feeds: those reusable feeds on which the run depends; the others are left out.
        is_work: whether that is all, so that there is nothing to fetch.
        slots: dtype and dimensions of each feed, in the order in which the callable takes them.
        options: what to compile; None if this structure needs `Session.run`.
        build: makes the merged results of what `call` returned; None if no request fetches anything, so that all
            results are None.
        call: the compiled callable, once there is one.
        no_results: the results of each request if none fetches anything.
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
    shares: bool = True
    slots: tuple[_Slot, ...] = ()
    options: Any = None
    build: Callable[[list[Any]], list[Any]] | None = None
    call: Call | None = None
    no_results: list[None] = attrs.field(init=False)

    @no_results.default
    def _no_results(self) -> list[None]:
        return [None] * len(self.positions)

    def compile(self, sess: Any, compiled: MutableMapping[bytes, Call], *, tries_threads: bool = False) -> Call:
        """Compile the run, which must have `options`, unless another plan of the session has done so.

        Args:
            sess: the raw session.
            compiled: what has been compiled in it.
            tries_threads: whether the run may be made in the thread that calls, if that is faster.
        """
        key = self.options.SerializeToString()
        found = compiled.get(key)
        call = compiled[key] = _make_callable(sess, self.options) if found is None else found
        if tries_threads:
            call = ThreadTrial(call, lambda: self._compile_for_caller(sess), self._settle)
        self.call = call
        return call

    def results(self, values: list[Any]) -> list[Any]:
        """Return the results of each request from what `call` returned."""
        return self.no_results if self.build is None else self._distribute(self.build(values))

    def results_of_session(self, merged: Sequence[Any]) -> list[Any]:
        """Return the results of each request from those that `Session.run` has for `fetches`."""
        return self._distribute(rebuild(merged, own) if self.shares else merged)

    def take(self, feeds: Sequence[Feed]) -> list[Feed]:
        """Return the feeds of a run, for which the values of its reusable feeds are taken."""
        values = {each: iter(each.take()) for each in self.reusable_feeds}
        taken = []
        for feed in feeds:
            if not isinstance(feed.value, ReusableFeeds):
                taken.append(feed)
            elif feed.value in values:
                taken.append(feed._replace(value=next(values[feed.value])))
        return taken

    def convert(self, feeds: Sequence[Feed]) -> list[np.ndarray] | None:
        """Return the values of `feeds` as arrays, as `Session.run` would; None where only it can tell."""
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
    """What a fed tensor takes."""

    dtype: Any
    dims: tuple[int | None, ...] | None

    def convert(self, value: Any) -> np.ndarray | None:
        if type(value) is not np.ndarray or value.dtype != self.dtype:
            # Whole numbers, tensors, handles and the like have checks of their own in Session.run.
            if not isinstance(value, np.ndarray | np.generic | float | str | bytes | list | tuple):
                return None
            try:
                value = np.asarray(value, dtype=self.dtype)
            except Exception:  # Session.run meets the same one, and words it better.
                return None
        return value if self._fits(value.shape) else None

    def _fits(self, shape: tuple[int, ...]) -> bool:
        if self.dims is None:
            return True
        return len(shape) == len(self.dims) and all(
            dim is None or dim == size for dim, size in zip(self.dims, shape, strict=True)
        )


def make_plan(
    sess: Any, requests: Sequence[Any], feeds: Sequence[Feed], count_op: CountOp, counts_step: bool
) -> RunPlan:
    """Plan a run of `requests`; nothing is compiled yet.

    Args:
        sess: the raw `tf.compat.v1.Session`.
        requests: a structure of fetches each, as `Session.run` takes it: that of the caller, then those of the
            hooks, where None is nothing.
        feeds: what is fed, in order.
        count_op: tells what runs along to count it.
        counts_step: whether it is the run that counts a step.

    Raises:
        TypeError, ValueError: what `Session.run` raises if it cannot fetch one of them.
    """
    # A caller has to want something; a hook need not.
    wanted = [index for index, request in enumerate(requests) if index == 0 or request is not None]
    positions = tuple(wanted.index(index) if index in wanted else None for index in range(len(requests)))
    # The fetch handler looks at the keys of a dict again when it builds results: it shall not see the caller's.
    fetches = [rebuild(requests[index], _itself) for index in wanted]
    kept = [each for request in requests for each in (*leaves(request), *names_in(request))]
    handler = fetch_handler(sess.graph, fetches)
    ops = [*(tensor.op for tensor in handler.fetches()), *handler.targets()]
    reusable = _needed_feeds(ops, feeds)
    feed_keys = [feed.key for feed in feeds if not isinstance(feed.value, ReusableFeeds) or feed.value in reusable]
    counting = count_op(ops, counts_step)
    targets = handler.targets() if counting is None else [*handler.targets(), counting]
    plan = RunPlan(
        kept=(*kept, *(feed.key for feed in feeds)),
        fetches=fetches if counting is None else [*fetches, counting],
        positions=positions,
        lasts=all(isinstance(leaf, _KNOWN) for request in fetches for leaf in leaves(request)),
        work=tuple(dict.fromkeys([*_ops_of(sess.graph, requests[0]), *handler.targets()])),
        counting=counting,
        feed_keys=tuple(feed_keys),
        reusable_feeds=reusable,
        is_work=not handler.fetches(),
    )

    slots = _slots(sess.graph, feed_keys) if plan.lasts else None
    fed = {id(key) for key in feed_keys}
    tensors = handler.fetches()
    # A debugger of TensorFlow that wraps the session is to see what is fetched.
    is_wrapped = not isinstance(sess, tf.compat.v1.Session | tf.compat.v1.InteractiveSession)
    if slots is None or is_wrapped or any(id(tensor) in fed for tensor in tensors) or not (tensors or targets):
        return plan
    plan.slots = slots
    plan.shares = _repeats(sess.graph, fetches)
    plan.options = CallableOptions(
        feed=[key.name for key in feed_keys],
        fetch=[tensor.name for tensor in tensors],
        target=[op.name for op in targets],
    )
    if any(request is not None and not isinstance(request, tf.Operation) for request in requests):
        plan.build = _builder(sess, handler, plan.shares)
    return plan


def _needed_feeds(ops: Sequence[Any], feeds: Sequence[Feed]) -> tuple[ReusableFeeds, ...]:
    """Return those reusable feeds on which a run of `ops` depends."""
    reusable = [feed for feed in feeds if isinstance(feed.value, ReusableFeeds)]
    if not reusable:
        return ()
    fed = {name for feed in feeds if not isinstance(feed.value, ReusableFeeds) for name in names_fed(feed.key)}
    needed = set(
        ops_from(ops, lambda op: [*(each.op for each in op.inputs if each.name not in fed), *op.control_inputs])
    )
    return tuple(dict.fromkeys(feed.value for feed in reusable if feed.key.op in needed))


def _ops_of(graph: Any, request: Any) -> list[Any]:
    handler = fetch_handler(graph, request)
    return [*(tensor.op for tensor in handler.fetches()), *handler.targets()]


def failing_request(sess: Any, requests: Sequence[Any]) -> int | None:
    """Return the number of the first request that `Session.run` cannot fetch, if it is due to one of them."""
    for index, request in enumerate(requests):
        if request is None and index > 0:
            continue
        try:
            fetch_handler(sess.graph, request)
        except Exception:
            return index
    return None


def _make_callable(sess: Any, options: Any) -> Call:
    try:
        return make_callable(sess, options)
    except tf.errors.OpError as error:
        word_error(sess, error)


def _itself(leaf: Any) -> Any:
    return leaf


def _builder(sess: Any, handler: Any, shares: bool) -> Callable[[list[Any]], list[Any]]:
    """Return what makes results of the arrays that a callable returns, which are still the runtime's own memory.

    A variable, a constant, a fed array, or what waits in a queue, may have its value in the same memory. A scalar is
    a copy already, and so is a string.
    """
    if shares:
        return lambda values: list(rebuild(handler.build_results(sess, values), own))
    borrowed = [index for index, tensor in enumerate(handler.fetches()) if _is_borrowed(tensor)]

    def build(values: list[Any]) -> list[Any]:
        for index in borrowed:
            values[index] = own(values[index])
        results: list[Any] = handler.build_results(sess, values)
        return results

    return build


def _is_borrowed(tensor: Any) -> bool:
    return bool(tensor.shape.rank != 0 and tensor.dtype.base_dtype != tf.string)


def _repeats(graph: Any, fetches: Sequence[Any]) -> bool:
    """Whether the value of a tensor would stand in several places of the results, or belong to several requests."""
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
        dims = None if key.shape.rank is None else tuple(key.shape.as_list())
        slots.append(_Slot(np.dtype(key.dtype.as_numpy_dtype), dims))
    return tuple(slots)
