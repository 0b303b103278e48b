"""Threads that move data ahead of the steps."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from tpk.hang_watcher import ends_in_time

logger = logging.getLogger(__name__)

STOP_TIMEOUT = 10.0
"""Seconds until a warning shows where data code is that does not finish its datapoint when the data stops."""


class DataThread(threading.Thread, ABC):
    """A thread that moves data ahead of the steps until the data ends or fails, or the thread is stopped.

    Args:
        owner: the name of the input source, for messages.
        complaint: what a stopped thread that does not end has failed to do, for that warning.

    Attributes:
        failure: what the data raised, or None.
        failure_was_seen: whether a step has raised it.
    """

    def __init__(self, owner: str, complaint: str) -> None:
        super().__init__(name=f"tpk-{owner}", daemon=True)
        self.failure: BaseException | None = None
        self.failure_was_seen = False
        self._is_stopping = False
        self._owner = owner
        self._complaint = complaint

    def run(self) -> None:
        """Move the data (in the thread)."""
        try:
            self._move_data()
        except BaseException as error:  # A SystemExit must reach the step as well, or the step would wait forever.
            if not self._is_stopping:  # Afterwards nothing waits for the data.
                self.failure = error
        finally:
            self._end_data()

    @abstractmethod
    def stop(self) -> None:
        """Ask the thread to end, which it does once the data code has finished its current datapoint."""

    def wait(self) -> bool:
        """Wait for the end of a stopped thread; return False, with a warning, if it takes too long."""
        return ends_in_time(self, STOP_TIMEOUT, f"{self._owner}: {self._complaint}")

    def finish(self) -> None:
        """Stop the thread, wait until it has ended, however long that takes, and log a failure that no step saw."""
        self.stop()
        while not self.wait():
            pass
        self.log_unseen_failure()

    def log_unseen_failure(self) -> None:
        """Log the failure of the data, if no step has raised it."""
        if self.failure is not None and not self.failure_was_seen:
            logger.warning("%s: the data failed ahead of what was used", self._owner, exc_info=self.failure)

    @abstractmethod
    def _move_data(self) -> None:
        """Move data until it ends, or until `stop` is called (in the thread)."""

    @abstractmethod
    def _end_data(self) -> None:
        """Let no step wait for more data (in the thread, however it ends)."""
