"""The thread that stages datapoints ahead of the steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import tensorflow as tf

from tpk.input_source.hang_watcher import ends_in_time


class StageThread(threading.Thread):
    """Stages datapoints as long as there is room, until the data ends or fails, or it is stopped.

    A step waits in Python for what was staged, not in the graph: so it can be told of the end.

    Args:
        stage: stages a datapoint for each tower.
        room: for how many steps it stages ahead.
        owner: the name of the source, for messages.

    Attributes:
        used: how many steps have taken what was staged.
        failure: what ended the data, other than its end; None while all is well.
        failure_was_seen: whether a step has raised it.
    """

    def __init__(self, stage: Callable[[], None], room: int, owner: str) -> None:
        super().__init__(name=f"tpk-{owner}", daemon=True)
        self.used = 0
        self.failure: BaseException | None = None
        self.failure_was_seen = False
        self._owner = owner
        self._stage = stage
        self._room: SimpleQueue[None] = SimpleQueue()
        self._staged: SimpleQueue[bool] = SimpleQueue()
        self._is_stopping = False
        for _ in range(room):
            self._room.put(None)

    def run(self) -> None:
        """Stage (in the thread)."""
        try:
            self._room.get()
            while not self._is_stopping:
                self._stage()
                self._staged.put(True)
                self._room.get()
        except tf.errors.OutOfRangeError:
            pass
        except BaseException as error:  # a SystemExit, too, must reach the step, or it would wait forever
            self.failure = error
        finally:
            self._staged.put(False)

    def take(self) -> None:
        """Wait for what the next step uses, and let the thread stage more.

        Raises:
            tf.errors.OutOfRangeError: the data has ended.
            BaseException: the data has failed.
        """
        if self._staged.get():
            self.used += 1
            self._room.put(None)
            return
        self._staged.put(False)  # for the next one who asks
        if self.failure is not None:
            self.failure_was_seen = True
            raise self.failure
        raise tf.errors.OutOfRangeError(None, None, f"{self._owner}: the data ended after {self.used} steps")

    def stop(self) -> None:
        """Ask the thread to end, which it does when the source has delivered the datapoint that it waits for."""
        self._is_stopping = True
        self._room.put(None)

    def wait(self, patience: float) -> bool:
        """Wait for the end of the thread.

        Args:
            patience: seconds to wait before a warning tells where the thread is.

        Returns:
            Whether it has ended.
        """
        return ends_in_time(self, patience, f"{self._owner}: its source has not delivered a datapoint")
