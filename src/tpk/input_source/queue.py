"""Data that a thread puts into a TensorFlow queue, ahead of the steps."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from tpk.errors import ConfigError, InputError
from tpk.input_source.base import InputCallback, InputSource, flow_size
from tpk.input_source.fill import FillThread
from tpk.input_source.origin import comes_from
from tpk.input_source.stream import DatapointStream
from tpk.plugin.callback import Callback

logger = logging.getLogger(__name__)


class QueueInput(InputSource):
    """Takes each datapoint from a queue that a thread fills, so that data and steps go on at the same time.

    The thread hands arrays to the queue without a copy where they are contiguous and start on a multiple of
    64 bytes (as those of [`BatchData`][tpk.dataflow.BatchData] do), so a flow must not write again into an
    array that it has delivered.

    When the user's data code fails, the datapoints before the failure are still used; then the step raises
    what that code raised.

    Args:
        flow: any iterable of datapoints: lists or tuples by position, or dicts by name. It is iterated in the
            thread.
        queue: a `tf.queue.QueueBase` to fill, made in the trainer's graph; by default a FIFO queue is made.
        queue_size: how many datapoints the queue that is made by default holds.
        infinite: whether the flow is started again when it is exhausted. Otherwise the training ends when its
            last datapoint has been used.
        patience: seconds that the end of the training waits for the user's data code to finish the datapoint
            that it is at; it is left behind then, with a warning that shows where it is.

    Attributes:
        queue: the queue; None until `setup` if none was given.

    Raises:
        ConfigError: `flow` cannot be iterated, or `queue_size` is less than 1.
    """

    def __init__(
        self,
        flow: Iterable[Any],
        queue: Any = None,
        queue_size: int = 50,
        infinite: bool = True,
        patience: float = 10.0,
    ) -> None:
        if queue_size < 1:
            raise ConfigError(f"QueueInput: queue_size must be 1 or more, not {queue_size}")
        self.flow = flow
        self.queue = queue
        self._queue_size = queue_size
        self._patience = patience
        self._stream = DatapointStream(flow, infinite=infinite, owner=type(self).__name__)
        self._dequeue_ops: set[str] = set()
        self._thread: FillThread | None = None

    @property
    def size(self) -> int | None:
        """The length of the flow, or None if it has none."""
        return flow_size(self.flow)

    def _setup(self) -> list[Callback]:
        self._stream.bind(self.signature)
        dtypes = [spec.dtype for spec in self.signature]
        with tf.device("/cpu:0"), tf.compat.v1.name_scope(type(self).__name__):
            if self.queue is None:
                self.queue = tf.queue.FIFOQueue(self._queue_size, dtypes, name="queue")
            self._check_queue(dtypes)
            placeholders = [tf.compat.v1.placeholder(spec.dtype, spec.shape, name=spec.name) for spec in self.signature]
            enqueue = self.queue.enqueue(placeholders, name="enqueue")
            self._close = self.queue.close(name="close")
            self._current_size = self.queue.size(name="size")
            discarded = self.queue.dequeue(name="discard")
            self._discard = (discarded[0] if isinstance(discarded, list) else discarded).op
            # A closed queue cannot be opened again, but its op makes a new one when the old one is gone.
            self._destroy = tf.raw_ops.DestroyResourceOp(resource=self.queue.queue_ref, name="destroy")
        self._enqueue_options = config_pb2.CallableOptions(
            feed=[placeholder.name for placeholder in placeholders], target=[enqueue.name]
        )
        return [_QueueCallback(self)]

    def _check_queue(self, dtypes: list[Any]) -> None:
        if getattr(self.queue.queue_ref, "graph", None) is not tf.compat.v1.get_default_graph():
            raise InputError("QueueInput: the queue was not made in the trainer's graph; make it in there")
        if [dtype.base_dtype for dtype in self.queue.dtypes] != dtypes or self.queue.names:
            raise InputError(
                f"QueueInput: the queue must have the dtypes of the signature, {[d.name for d in dtypes]}, and "
                f"no names, but it has {[d.name for d in self.queue.dtypes]} and {self.queue.names}"
            )

    def _get_input_tensors(self) -> list[Any]:
        with tf.device("/cpu:0"):  # where the queue is, whatever the device of the tower
            dequeued = self.queue.dequeue(name="dequeue")
        tensors = dequeued if isinstance(dequeued, list) else [dequeued]
        for tensor, spec in zip(tensors, self.signature, strict=True):
            tensor.set_shape(spec.shape)
        self._dequeue_ops.add(tensors[0].op.name)
        return tensors

    def _reset_state(self) -> None:
        # Before the training there is no thread, and nothing has been taken from the data.
        if self._thread is not None:
            session = self._thread.session
            self._thread.stop()
            while not self._thread.wait(self._patience):
                pass
            self._warn_of_unseen_failure()
            session.run(self._destroy)
            self.start(session)

    def start(self, session: Any) -> None:
        """Start to fill the queue, in a thread; called in `before_train`."""
        self._thread = FillThread(
            self._stream,
            session,
            enqueue=session._make_callable_from_options(self._enqueue_options),
            make_room=lambda: self._make_room(session),
            close=lambda: session.run(self._close),
        )
        self._thread.start()

    def _make_room(self, session: Any) -> None:
        if session.run(self._current_size) == self.queue.queue_ref.op.get_attr("capacity"):
            session.run(self._discard)

    def stop(self) -> None:
        """Stop the thread; called in `after_train`."""
        if self._thread is not None:
            self._thread.stop()
            self._thread.wait(self._patience)
            self._warn_of_unseen_failure()
            self._thread = None

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return why the data failed, if `error` is how a step noticed that the queue ended."""
        thread = self._thread
        if thread is None or thread.failure is None or not comes_from(error, self._dequeue_ops):
            return None
        thread.failure_was_seen = True
        return thread.failure

    def _warn_of_unseen_failure(self) -> None:
        thread = self._thread
        if thread is not None and thread.failure is not None and not thread.failure_was_seen:
            logger.warning("QueueInput: the data failed ahead of what was used", exc_info=thread.failure)


class _QueueCallback(InputCallback):
    """Fills the queue during the training."""

    def __init__(self, source: QueueInput) -> None:
        self._source = source

    def before_train(self, trainer: Any) -> None:
        self._source.start(trainer.sess)

    def after_train(self, trainer: Any) -> None:
        self._source.stop()

    def translate_error(self, error: BaseException) -> BaseException | None:
        return self._source.translate_error(error)
