"""TensorFlow queues as a source of data, filled by a thread ahead of the steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

import tensorflow as tf

from tpk.argument_checks import check_at_least
from tpk.dataflow.base import flow_length
from tpk.errors import ConfigError, InputError
from tpk.input_source.base import ConsumedCounter, FlowInput, InputSource, InputStartStop, is_error_source
from tpk.input_source.data_thread import DataThread
from tpk.input_source.meter import GraphMeter
from tpk.input_source.stream import DatapointStream
from tpk.plugin.callback import Callback
from tpk.tf_internals import CallableOptions, make_callable

logger = logging.getLogger(__name__)

_UNBOUNDED_HORIZON = 2**20
_BATCHES_AHEAD = 5

# A run in a closed session raises RuntimeError; a run interrupted by the closing raises CancelledError. Either way the
# queue is gone, and nothing waits for it.
_SESSION_MAY_BE_CLOSED = suppress(RuntimeError, tf.errors.OpError)


class QueueInput(FlowInput):
    """Takes each datapoint from a queue that a thread fills, so that data and steps overlap.

    Arrays enter the queue without a copy if they are contiguous, start on a multiple of 64 bytes, and are known to stay
    unchanged, such as arrays from `BatchData`, worker processes, or a list. Arrays that the flow may write to again are
    copied; see `refills_arrays` of `DataFlow`.

    When the user's data code fails, the datapoints before the failure are still used; then the step raises
    that failure.

    Args:
        flow: any iterable of datapoints: lists or tuples by position, or dicts by name. It is iterated in the
            thread.
        queue: a `tf.queue.QueueBase` to fill, made in the trainer's graph; by default a FIFO queue. A queue that does
            not keep the order has no position in the data: a resumed run starts the data from the beginning.
        queue_size: the capacity of the default queue, in datapoints.
        infinite: whether to start the flow again when it is exhausted. Otherwise the training ends once its
            last datapoint has been used.

    Attributes:
        queue: the queue; None until `setup` if none was given.

    Raises:
        ConfigError: `flow` cannot be iterated, or `queue_size` is less than 1.
    """

    _per_take = 1
    """How many datapoints of the flow a tower takes at once."""

    def __init__(
        self,
        flow: Iterable[Any],
        queue: Any = None,
        queue_size: int = 50,
        infinite: bool = True,
    ) -> None:
        super().__init__(flow, infinite)
        check_at_least(self, 1, queue_size=queue_size)
        self.queue = queue
        self._queue_size = queue_size
        self._dequeue_ops: list[Any] = []
        self._thread: FillThread | None = None
        self._counter: ConsumedCounter | None = None
        self._warned_of_order = False

    @property
    def consumed(self) -> int:
        """How many times a tower has taken from the queue."""
        return 0 if self._counter is None else self._counter.value

    def datapoints_of(self, takes: range) -> range:
        """Return the datapoints of the flow; empty if the queue does not keep the order."""
        if not self._keeps_order or takes.start < 0:
            return range(0)
        # The last take of a finite flow may get fewer than the others.
        return range(self._used_after(takes.start), min(self._used_after(takes.stop), self._stream.index))

    def state_after(self, count: int) -> dict[str, Any]:
        """Return the position in the flow; empty if the queue does not keep the order."""
        if self._keeps_order:
            return self._stream.state_after(self._used_after(count))
        if not self._warned_of_order:
            self._warned_of_order = True
            logger.warning(
                "%s: a %s does not keep the order, so the position in the data is unknown: a resumed run will "
                "start the data from the beginning",
                type(self).__name__,
                type(self.queue).__name__,
            )
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the data from there."""
        if self._keeps_order:
            super().load_state_dict(state)
        else:
            InputSource.load_state_dict(self, state)

    def interrupt(self) -> None:
        """Close the queue: once it is empty, nothing waits for more."""
        if self._thread is not None:
            self._thread.stop()  # Closing would wait for a datapoint that waits for room.
            self._thread.close_queue()

    def make_meter(self) -> GraphMeter:
        """Return a meter of how long runs wait for the queue, and of how full it is."""
        return GraphMeter(self._dequeue_ops, self._current_size, self._capacity)

    def start(self, session: Any) -> None:
        """Start the thread that fills the queue; called in `before_train`."""
        assert self._counter is not None
        capacity = self._capacity
        room = _UNBOUNDED_HORIZON if capacity < 0 else capacity
        # In addition to the datapoints in the queue, one waits for room there.
        self._stream.rewind(horizon=room + 1 + self.max_ahead * self._per_take)
        self._counter.start(session, -(-self._stream.resumed_at // self._per_take))

        def make_room() -> None:
            if session.run(self._current_size) == capacity:
                session.run(self._discard)

        self._thread = FillThread(
            self._stream,
            session,
            enqueue=make_callable(session, self._enqueue_options),
            make_room=make_room,
            close=lambda: session.run(self._close),
        )
        self._watch()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; called in `after_train`."""
        thread, self._thread = self._thread, None
        if thread is not None:
            assert self._counter is not None
            self._counter.stop()
            thread.stop()
            if thread.wait():
                self._stream.finish()
            self._unwatch()
            thread.log_unseen_failure()

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return why the data failed, if that closed the queue and so caused `error` in a step."""
        thread = self._thread
        if thread is None or thread.failure is None:
            return None
        if not is_error_source([op.name for op in self._dequeue_ops], error):
            return None
        thread.failure_was_seen = True
        return thread.failure

    def _used_after(self, takes: int) -> int:
        """Return how many datapoints of the flow have been used after `takes` takes."""
        resumed_at = 0 if self._counter is None else self._counter.resumed_at
        return self._stream.resumed_at + (takes - resumed_at) * self._per_take

    @property
    def _keeps_order(self) -> bool:
        return self.queue is None or "FIFO" in self.queue.queue_ref.op.type

    @property
    def _capacity(self) -> int:
        return int(self.queue.queue_ref.op.get_attr("capacity"))

    def _element_specs(self) -> Sequence[Any]:
        """Return the signature of the flow's datapoints."""
        return self.signature

    def _make_queue(self, specs: Sequence[Any]) -> Any:
        return tf.queue.FIFOQueue(self._queue_size, [spec.dtype for spec in specs], name="queue")

    def _take(self) -> Any:
        """Return the op or tensors that take the next datapoint out of the queue."""
        return self.queue.dequeue(name="dequeue")

    def _setup(self) -> list[Callback]:
        specs = self._element_specs()
        self._stream.bind(tuple(specs), self.converter)
        with tf.device("/cpu:0"), tf.compat.v1.name_scope(type(self).__name__):
            if self.queue is None:
                self.queue = self._make_queue(specs)
            self._check_queue([spec.dtype for spec in specs])
            self._counter = ConsumedCounter()
            placeholders = [tf.compat.v1.placeholder(spec.dtype, spec.shape, name=spec.name) for spec in specs]
            enqueue = self.queue.enqueue(placeholders, name="enqueue")
            self._close = self.queue.close(name="close")
            self._current_size = self.queue.size(name="size")
            self._discard = tf.nest.flatten(self.queue.dequeue(name="discard"))[0].op
            # A closed queue cannot be opened again, but its op makes a new one when the old one is gone.
            self._destroy = tf.raw_ops.DestroyResourceOp(resource=self.queue.queue_ref, name="destroy")
        # These two ops run in the calling thread: waking another thread takes longer than they do.
        self._enqueue_options = CallableOptions(
            feed=[placeholder.name for placeholder in placeholders],
            target=[enqueue.name],
            run_options=tf.compat.v1.RunOptions(inter_op_thread_pool=-1),
        )
        return [InputStartStop(self)]

    def _check_queue(self, dtypes: list[Any]) -> None:
        owner = type(self).__name__
        if getattr(self.queue.queue_ref, "graph", None) is not tf.compat.v1.get_default_graph():
            raise InputError(f"{owner}: the queue was not made in the trainer's graph; make it there")
        if [dtype.base_dtype for dtype in self.queue.dtypes] != dtypes or self.queue.names:
            raise InputError(
                f"{owner}: the queue must have the dtypes of the signature, {[d.name for d in dtypes]}, and "
                f"no names, but it has {[d.name for d in self.queue.dtypes]} and {self.queue.names}"
            )

    def _get_input_tensors(self) -> list[Any]:
        assert self._counter is not None
        # On the device of the queue, whatever the device of the tower.
        with tf.device("/cpu:0"), tf.control_dependencies([self._counter.count()]):
            tensors: list[Any] = tf.nest.flatten(self._take())
        for tensor, spec in zip(tensors, self.signature, strict=True):
            tensor.set_shape(spec.shape)
        self._dequeue_ops.append(tensors[0].op)
        return tensors

    def _reset_state(self) -> None:
        # Before the training, the data is at its beginning.
        if self._thread is not None:
            session = self._thread.session
            self._thread.finish()
            session.run(self._destroy)
            self.start(session)


class BatchQueueInput(QueueInput):
    """Fills a queue with single datapoints and takes a batch of them at once: the graph does the batching.

    The signature describes a batch: its first dimension is the batch size or unknown, the others are known. If
    `infinite`, a batch may have the last datapoints of a pass and the first ones of the next. Otherwise, the last batch
    may be smaller than the others if the first dimension is unknown for all inputs; if it is known, datapoints that do
    not make a whole batch are left out.

    Everything else is as for `QueueInput`. If the flow can deliver batches itself, as `BatchData` does, a `QueueInput`
    of those costs less per datapoint.

    Args:
        flow: any iterable of single datapoints: lists or tuples by position, or dicts by name.
        batch_size: how many datapoints a tower takes.
        queue: a `tf.queue.QueueBase` with the dtypes and shapes of one datapoint, made in the trainer's graph; by
            default a FIFO queue.
        queue_size: the capacity of the default queue, in single datapoints; by default five batches.
        infinite: as for `QueueInput`.

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
    ) -> None:
        check_at_least(self, 1, batch_size=batch_size)
        queue_size = _BATCHES_AHEAD * batch_size if queue_size is None else queue_size
        super().__init__(flow, queue, queue_size, infinite)
        if queue is None and queue_size < batch_size:
            raise ConfigError(f"BatchQueueInput: a queue of {queue_size} never holds a batch of {batch_size}")
        self.batch_size = batch_size
        self._per_take = batch_size

    def keep_first(self, count: int) -> None:
        """Keep the datapoints of the first `count` batches."""
        super().keep_first(count * self.batch_size)

    @property
    def size(self) -> int | None:
        """The number of batches in a pass over the flow, if its length is known; rounded down if it is infinite."""
        length = flow_length(self.flow)
        if length is None:
            return None
        is_last_smaller = length % self.batch_size > 0 and not self._stream.infinite and self._takes_smaller_batches
        return length // self.batch_size + is_last_smaller

    @property
    def left_out(self) -> int:
        """How many datapoints at the end of a pass are known to be left out; none if a next pass follows."""
        if self._stream.infinite or self._takes_smaller_batches:
            return 0
        return (flow_length(self.flow) or 0) % self.batch_size

    @property
    def _takes_smaller_batches(self) -> bool:
        return all(tf.compat.dimension_value(spec.shape[0]) is None for spec in self.signature)

    def _why_empty(self) -> str:
        length = flow_length(self.flow)
        if not length:
            return super()._why_empty()
        return f"it makes no batch of {self.batch_size} from {length} datapoints. Lower batch_size"

    def _element_specs(self) -> Sequence[Any]:
        for spec in self.signature:
            size = tf.compat.dimension_value(spec.shape[0]) if spec.shape.rank else 0
            if size not in (None, self.batch_size):
                raise InputError(
                    f"BatchQueueInput: the input {spec.name!r} of shape {spec.shape} is not a batch of "
                    f"{self.batch_size}; its first dimension must be {self.batch_size} or None"
                )
            if not spec.shape[1:].is_fully_defined():
                raise InputError(
                    f"BatchQueueInput: datapoints of {spec.name!r} may differ in shape, {spec.shape[1:]}, so they make "
                    "no batch; give a known shape, or batch them in the flow and use QueueInput"
                )
        return [tf.TensorSpec(spec.shape[1:], spec.dtype, spec.name) for spec in self.signature]

    def _make_queue(self, specs: Sequence[Any]) -> Any:
        dtypes, shapes = [spec.dtype for spec in specs], [spec.shape for spec in specs]
        return tf.queue.FIFOQueue(self._queue_size, dtypes, shapes, name="queue")

    def _take(self) -> Any:
        if self._takes_smaller_batches:
            return self.queue.dequeue_up_to(self.batch_size, name="dequeue")
        return self.queue.dequeue_many(self.batch_size, name="dequeue")


class FillThread(DataThread):
    """Puts the datapoints of a stream into a queue.

    However it ends, it closes the queue, so that no step waits for more. Steps still use the datapoints in the queue;
    then they fail with `tf.errors.OutOfRangeError`.

    Args:
        stream: the datapoints, rewound; started and closed in the thread.
        session: the session of the queue.
        enqueue: puts one datapoint, given as arrays, into the queue; waits for room.
        make_room: takes a datapoint out of the queue if it is full.
        close: closes the queue.
    """

    def __init__(
        self,
        stream: DatapointStream,
        session: Any,
        enqueue: Callable[..., Any],
        make_room: Callable[[], Any],
        close: Callable[[], Any],
    ) -> None:
        super().__init__(stream.owner, "the dataflow did not finish its datapoint")
        self.session = session
        self._stream = stream
        self._enqueue = enqueue
        self._make_room = make_room
        self._close = close

    def close_queue(self) -> None:
        """Close the queue, unless it is gone."""
        with _SESSION_MAY_BE_CLOSED:
            self._close()

    def stop(self) -> None:
        """Ask the thread to end."""
        self._is_stopping = True
        # From now on it enqueues at most once. Cancelling would work too, but TensorFlow warns about it.
        with _SESSION_MAY_BE_CLOSED:
            self._make_room()

    def _move_data(self) -> None:
        with closing(self._stream):
            self._stream.start()
            for arrays in self._stream:
                if self._is_stopping:
                    return
                try:
                    self._enqueue(*arrays)
                except tf.errors.CancelledError:  # The queue or its session was closed.
                    return

    def _end_data(self) -> None:
        self.close_queue()
