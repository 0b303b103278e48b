"""TensorFlow queue as a source of data, filled by a thread ahead of the steps."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

import tensorflow as tf

from tpk.checks import check_at_least
from tpk.dataflow.base import flow_length
from tpk.errors import ConfigError, InputError
from tpk.input_source.base import ConsumedCounter, FlowInput, InputSource, InputStartStop, is_error_source
from tpk.input_source.hang_watcher import ends_in_time
from tpk.input_source.meter import GraphMeter
from tpk.input_source.stream import DatapointStream
from tpk.plugin.callback import Callback
from tpk.tf_internals import CallableOptions, make_callable

logger = logging.getLogger(__name__)

_UNBOUNDED_HORIZON = 2**20
_BATCHES_AHEAD = 5

# A run in a closed session is a RuntimeError, one that the closing interrupts a CancelledError. Either way the
# queue is gone, and nobody waits for it.
_SESSION_MAY_BE_CLOSED = suppress(RuntimeError, tf.errors.OpError)


class QueueInput(FlowInput):
    """Takes each datapoint from a queue that a thread fills, so that data and steps go on at the same time.

    The thread hands arrays to the queue without a copy where they are contiguous, start on a multiple of 64 bytes, and
    are known to stay as they are: those of `BatchData` and of worker processes are, and those
    of a list. Of what a flow may write to again it hands on copies; see `refills_arrays` of
    `DataFlow`.

    When the user's data code fails, the datapoints before the failure are still used; then the step raises
    what that code raised.

    Args:
        flow: any iterable of datapoints: lists or tuples by position, or dicts by name. It is iterated in the
            thread.
        queue: a `tf.queue.QueueBase` to fill, made in the trainer's graph; by default a FIFO queue is made. One that
            does not keep the order has no position in the data: a resumed run begins with new data.
        queue_size: how many datapoints the queue that is made by default holds.
        infinite: whether the flow is started again when it is exhausted. Otherwise the training ends when its
            last datapoint has been used.
        stop_timeout: seconds that the end of the training waits for the user's data code to finish the datapoint
            that it is at; it is left behind then, with a warning that shows where it is.
        warn_after: seconds in which the data code has to deliver a datapoint; else a warning tells where it is,
            and again after twice that time.

    Attributes:
        queue: the queue; None until `setup` if none was given.

    Raises:
        ConfigError: `flow` cannot be iterated, `queue_size` is less than 1, or `warn_after` is not positive.
    """

    # How many datapoints of the flow a tower takes at once.
    _per_take = 1

    def __init__(
        self,
        flow: Iterable[Any],
        queue: Any = None,
        queue_size: int = 50,
        infinite: bool = True,
        stop_timeout: float = 10.0,
        warn_after: float = 60.0,
    ) -> None:
        super().__init__(flow, infinite, warn_after)
        check_at_least(self, 1, queue_size=queue_size)
        self.queue = queue
        self._queue_size = queue_size
        self._stop_timeout = stop_timeout
        self._dequeue_ops: list[Any] = []
        self._thread: FillThread | None = None
        self._counter: ConsumedCounter | None = None
        self._said_that_no_position = False

    @property
    def consumed(self) -> int:
        """How many times a tower has taken from the queue."""
        return 0 if self._counter is None else self._counter.value

    def datapoints_of(self, takes: range) -> range:
        """Return the datapoints of the flow; empty if the queue does not keep the order."""
        if not self._keeps_order or takes.start < 0:
            return range(0)
        # The last take of a flow that ends may get fewer than the others.
        return range(self._used_after(takes.start), min(self._used_after(takes.stop), self._stream.index))

    def state_after(self, count: int) -> dict[str, Any]:
        """Return the position in the flow; empty if the queue does not keep the order."""
        if self._keeps_order:
            return self._stream.state_after(self._used_after(count))
        if not self._said_that_no_position:
            self._said_that_no_position = True
            logger.warning(
                "%s: a %s does not keep the order, so there is no position in the data: a resumed run will begin "
                "with the data from its start",
                type(self).__name__,
                type(self.queue).__name__,
            )
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the data start from there."""
        if self._keeps_order:
            super().load_state_dict(state)
        else:
            InputSource.load_state_dict(self, state)

    def interrupt(self) -> None:
        """Close the queue: when it is empty, nobody waits for more."""
        if self._thread is not None:
            self._thread.stop()  # The closing would wait for a datapoint that waits for room.
            self._thread.close_queue()

    def make_meter(self) -> GraphMeter:
        """Return what measures how long runs wait for the queue, and how full it is."""
        return GraphMeter(self._dequeue_ops, self._current_size, self._capacity)

    def _used_after(self, count: int) -> int:
        """Return how many datapoints of the flow have been used after so many takes."""
        resumed_at = 0 if self._counter is None else self._counter.resumed_at
        return self._stream.resumed_at + (count - resumed_at) * self._per_take

    @property
    def _keeps_order(self) -> bool:
        return self.queue is None or "FIFO" in self.queue.queue_ref.op.type

    @property
    def _capacity(self) -> int:
        return int(self.queue.queue_ref.op.get_attr("capacity"))

    def _element_specs(self) -> Sequence[Any]:
        """What the flow's datapoints must be."""
        return self.signature

    def _make_queue(self, dtypes: list[Any]) -> Any:
        return tf.queue.FIFOQueue(self._queue_size, dtypes, name="queue")

    def _take(self) -> Any:
        """What takes the next datapoint out of the queue."""
        return self.queue.dequeue(name="dequeue")

    def _setup(self) -> list[Callback]:
        specs = self._element_specs()
        self._stream.bind(tuple(specs))
        dtypes = [spec.dtype for spec in specs]
        with tf.device("/cpu:0"), tf.compat.v1.name_scope(type(self).__name__):
            if self.queue is None:
                self.queue = self._make_queue(dtypes)
            self._check_queue(dtypes)
            self._counter = ConsumedCounter("consumed")
            placeholders = [tf.compat.v1.placeholder(spec.dtype, spec.shape, name=spec.name) for spec in specs]
            enqueue = self.queue.enqueue(placeholders, name="enqueue")
            self._close = self.queue.close(name="close")
            self._current_size = self.queue.size(name="size")
            discarded = self.queue.dequeue(name="discard")
            self._discard = (discarded[0] if isinstance(discarded, list) else discarded).op
            # A closed queue cannot be opened again, but its op makes a new one when the old one is gone.
            self._destroy = tf.raw_ops.DestroyResourceOp(resource=self.queue.queue_ref, name="destroy")
        # Of two ops, so they run in the thread that calls: to wake another one for them takes longer than they do.
        self._enqueue_options = CallableOptions(
            feed=[placeholder.name for placeholder in placeholders],
            target=[enqueue.name],
            run_options=tf.compat.v1.RunOptions(inter_op_thread_pool=-1),
        )
        return [InputStartStop(self)]

    def _check_queue(self, dtypes: list[Any]) -> None:
        owner = type(self).__name__
        if getattr(self.queue.queue_ref, "graph", None) is not tf.compat.v1.get_default_graph():
            raise InputError(f"{owner}: the queue was not made in the trainer's graph; make it in there")
        if [dtype.base_dtype for dtype in self.queue.dtypes] != dtypes or self.queue.names:
            raise InputError(
                f"{owner}: the queue must have the dtypes of the signature, {[d.name for d in dtypes]}, and "
                f"no names, but it has {[d.name for d in self.queue.dtypes]} and {self.queue.names}"
            )

    def _get_input_tensors(self) -> list[Any]:
        assert self._counter is not None
        # Where the queue is, whatever the device of the tower.
        with tf.device("/cpu:0"), tf.control_dependencies([self._counter.count("count")]):
            dequeued = self._take()
        tensors = dequeued if isinstance(dequeued, list) else [dequeued]
        for tensor, spec in zip(tensors, self.signature, strict=True):
            tensor.set_shape(spec.shape)
        self._dequeue_ops.append(tensors[0].op)
        return tensors

    def _reset_state(self) -> None:
        # Before the training there is no thread, and nothing has been taken from the data.
        if self._thread is not None:
            session = self._thread.session
            self._thread.stop()
            while not self._thread.wait(self._stop_timeout):
                pass
            self._warn_of_unseen_failure()
            session.run(self._destroy)
            self.start(session)

    def start(self, session: Any) -> None:
        """Start to fill the queue, in a thread; called in `before_train`."""
        assert self._counter is not None
        room = _UNBOUNDED_HORIZON if self._capacity < 0 else self._capacity
        # Besides what is in the queue, one waits for room there.
        self._stream.rewind(horizon=room + 1 + self.max_ahead * self._per_take)
        self._counter.start(session, -(-self._stream.resumed_at // self._per_take))
        self._thread = FillThread(
            self._stream,
            session,
            enqueue=make_callable(session, self._enqueue_options),
            make_room=lambda: self._make_room(session),
            close=lambda: session.run(self._close),
        )
        self._watch()
        self._thread.start()

    def _make_room(self, session: Any) -> None:
        if session.run(self._current_size) == self._capacity:
            session.run(self._discard)

    def stop(self) -> None:
        """Stop the thread; called in `after_train`."""
        if self._thread is not None:
            assert self._counter is not None
            self._counter.stop()
            self._thread.stop()
            if self._thread.wait(self._stop_timeout):
                self._stream.finish()
            self._unwatch()
            self._warn_of_unseen_failure()
            self._thread = None

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return why the data failed, if `error` is how a step noticed that the queue ended."""
        thread = self._thread
        if (
            thread is None
            or thread.failure is None
            or not is_error_source([op.name for op in self._dequeue_ops], error)
        ):
            return None
        thread.failure_was_seen = True
        return thread.failure

    def _warn_of_unseen_failure(self) -> None:
        thread = self._thread
        if thread is not None and thread.failure is not None and not thread.failure_was_seen:
            logger.warning("%s: the data failed ahead of what was used", type(self).__name__, exc_info=thread.failure)


class BatchQueueInput(QueueInput):
    """Fills a queue with single datapoints, and takes a batch of them at once: the graph does the batching.

    The signature is that of a batch: its first dimension is the batch size or unknown, the others are known. Where
    it is unknown for all inputs, the last batch of a finite flow is smaller than the others if the flow's length is
    no multiple of the batch size. Otherwise what does not make a whole batch is not used.

    Everything else is as with `QueueInput`. Where the flow can deliver batches itself,
    as `BatchData` does, a `QueueInput` of those costs less for each datapoint.

    Args:
        flow: any iterable of single datapoints: lists or tuples by position, or dicts by name.
        batch_size: how many datapoints a tower takes.
        queue: a `tf.queue.QueueBase` with the dtypes and shapes of one datapoint, made in the trainer's graph; by
            default a FIFO queue is made.
        queue_size: how many single datapoints the queue that is made by default holds; by default five batches.
        infinite: as for `QueueInput`.
        stop_timeout: as for `QueueInput`.
        warn_after: as for `QueueInput`.

    Raises:
        ConfigError: `batch_size` is less than 1, or more than `queue_size`.
        InputError: (at `setup`) the signature or the queue does not fit.

    Example:
        ```python
        source = BatchQueueInput(DataFromList(images_and_labels, shuffle=True), 32)
        ```
    """

    def __init__(
        self,
        flow: Iterable[Any],
        batch_size: int,
        queue: Any = None,
        queue_size: int | None = None,
        infinite: bool = True,
        stop_timeout: float = 10.0,
        warn_after: float = 60.0,
    ) -> None:
        check_at_least(self, 1, batch_size=batch_size)
        queue_size = _BATCHES_AHEAD * batch_size if queue_size is None else queue_size
        super().__init__(flow, queue, queue_size, infinite, stop_timeout, warn_after)
        if queue is None and queue_size < batch_size:
            raise ConfigError(f"BatchQueueInput: a queue of {queue_size} never holds a batch of {batch_size}")
        self.batch_size = batch_size
        self._per_take = batch_size

    def keep_first(self, count: int) -> None:
        """Keep the datapoints of so many batches."""
        super().keep_first(count * self.batch_size)

    @property
    def size(self) -> int | None:
        """How many batches a pass over the flow makes, if its length is known; one that spans two passes is not one."""
        length = flow_length(self.flow)
        if length is None:
            return None
        last = length % self.batch_size > 0 and not self._stream.infinite and self._takes_less_at_the_end
        return length // self.batch_size + last

    @property
    def _takes_less_at_the_end(self) -> bool:
        return all(tf.compat.dimension_value(spec.shape[0]) is None for spec in self.signature)

    def _element_specs(self) -> Sequence[Any]:
        for spec in self.signature:
            size = tf.compat.dimension_value(spec.shape[0]) if spec.shape.rank else 0
            if size not in (None, self.batch_size):
                raise InputError(
                    f"BatchQueueInput: the input {spec.name!r} of shape {spec.shape} is no batch of {self.batch_size}; "
                    f"its first dimension must be {self.batch_size} or None"
                )
            if not spec.shape[1:].is_fully_defined():
                raise InputError(
                    f"BatchQueueInput: datapoints of {spec.name!r} may differ in shape, {spec.shape[1:]}, so they make "
                    "no batch; give a known shape, or batch them in the flow and use QueueInput"
                )
        return [tf.TensorSpec(spec.shape[1:], spec.dtype, spec.name) for spec in self.signature]

    def _make_queue(self, dtypes: list[Any]) -> Any:
        shapes = [spec.shape for spec in self._element_specs()]
        return tf.queue.FIFOQueue(self._queue_size, dtypes, shapes, name="queue")

    def _check_queue(self, dtypes: list[Any]) -> None:
        super()._check_queue(dtypes)
        expected = [spec.shape.as_list() for spec in self._element_specs()]
        if [shape.as_list() if shape.rank is not None else None for shape in self.queue.shapes] != expected:
            raise InputError(
                f"BatchQueueInput: the queue must have the shapes of one datapoint, {expected}, but it has "
                f"{self.queue.shapes}"
            )

    def _take(self) -> Any:
        if self._takes_less_at_the_end:
            return self.queue.dequeue_up_to(self.batch_size, name="dequeue")
        return self.queue.dequeue_many(self.batch_size, name="dequeue")


class FillThread(threading.Thread):
    """Puts the datapoints of a stream into a queue until the stream ends or fails, or it is stopped.

    However it ends, it closes the queue, so that no step waits for more: what is in the queue is still used,
    then the step fails with `tf.errors.OutOfRangeError`.

    Args:
        stream: the datapoints, rewound; started and closed in the thread.
        session: the session that has the queue.
        enqueue: puts one datapoint, given as arrays, into the queue; waits for room.
        make_room: takes a datapoint out of the queue if it is full.
        close: closes the queue.

    Attributes:
        session: the session that has the queue.
        failure: what the data raised; None while all is well.
        failure_was_seen: whether a step has raised it.
    """

    def __init__(
        self,
        stream: DatapointStream,
        session: Any,
        enqueue: Callable[..., Any],
        make_room: Callable[[], Any],
        close: Callable[[], Any],
    ) -> None:
        super().__init__(name=f"tpk-{stream.owner}", daemon=True)
        self.session = session
        self.failure: BaseException | None = None
        self.failure_was_seen = False
        self._stream = stream
        self._enqueue = enqueue
        self._make_room = make_room
        self._close = close
        self._stopping = threading.Event()

    def run(self) -> None:
        """Fill the queue (in the thread)."""
        try:
            self._fill()
        except BaseException as error:  # a SystemExit, too, must reach the step, or it would wait forever
            # An error of data that nobody waits for any more, such as that of a source that was closed, is ignored.
            if not self._stopping.is_set():
                self.failure = error
        finally:
            self.close_queue()

    def close_queue(self) -> None:
        """Close the queue, unless it is gone."""
        with _SESSION_MAY_BE_CLOSED:
            self._close()

    def stop(self) -> None:
        """Ask the thread to end, which it does when the user's code has finished its datapoint."""
        self._stopping.set()
        # From now on it enqueues once more at most. Cancelling would do, too, but TensorFlow warns of that.
        with _SESSION_MAY_BE_CLOSED:
            self._make_room()

    def wait(self, timeout: float) -> bool:
        """Wait for the end of the thread.

        Args:
            timeout: seconds to wait before a warning tells where the thread is.

        Returns:
            Whether it has ended.
        """
        return ends_in_time(self, timeout, f"{self._stream.owner}: the dataflow has not finished its datapoint")

    def _fill(self) -> None:
        with closing(self._stream):
            self._stream.start()
            for arrays in self._stream:
                if self._stopping.is_set():
                    return
                try:
                    self._enqueue(*arrays)
                except tf.errors.CancelledError:  # somebody closed the queue or its session
                    return
