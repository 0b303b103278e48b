"""The thread that fills a queue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import tensorflow as tf

from tpk.input_source.hang_watcher import ends_in_time
from tpk.input_source.stream import DatapointStream

# A run in a closed session is a RuntimeError, one that the closing interrupts a CancelledError. Either way the
# queue is gone, and nobody waits for it.
_SESSION_MAY_BE_CLOSED = suppress(RuntimeError, tf.errors.OpError)


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

    def wait(self, patience: float) -> bool:
        """Wait for the end of the thread.

        Args:
            patience: seconds to wait before a warning tells where the thread is.

        Returns:
            Whether it has ended.
        """
        return ends_in_time(self, patience, f"{self._stream.owner}: the dataflow has not finished its datapoint")

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
