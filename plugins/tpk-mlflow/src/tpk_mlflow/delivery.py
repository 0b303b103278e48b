"""Delivery of reports by a thread of its own, so that a training never waits for a server."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

logger = logging.getLogger(f"tpk.{__name__}")

MAX_WAITING = 1_000_000
"""How many reports wait at most for a server that does not answer; some 200 MB."""


class RefusedError(Exception):
    """The receiver does not take a report, and never will."""


class Delivery:
    """Hands on items in their order, in a thread; what fails is tried again.

    The first failure is logged, and when it is over. While `MAX_WAITING` items wait, no more are taken, which is
    logged, as is what the receiver refuses.

    Args:
        receiver: what it is called in the log.
        deliver: takes the first of the items that wait, and returns how many of them it has delivered. It raises
            `RefusedError` if the first can never be.
        batch: how many items `deliver` takes at most.
        flush_secs: how long items wait before they are handed on, in seconds.
        retry_secs: how long to wait after a failure, in seconds.
        first: what is done before all else; it is tried again if it raises.

    Attributes:
        begun: set when `first` was tried for the first time.
    """

    def __init__(
        self,
        receiver: str,
        deliver: Callable[[Sequence[Any]], int],
        *,
        batch: int,
        flush_secs: float,
        retry_secs: float,
        first: Callable[[], None],
    ) -> None:
        self._receiver = receiver
        self._deliver = deliver
        self._batch = batch
        self._flush_secs = flush_secs
        self._retry_secs = retry_secs
        self._first = first
        self.begun = threading.Event()
        self._waiting: deque[Any] = deque()
        self._changed = threading.Condition()
        self._delivered = 0
        self._lost = 0
        self._last_refusal = ""
        self._is_due = self._is_closing = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"delivery to {receiver}", daemon=True)

    @property
    def waiting(self) -> list[Any]:
        """What is not delivered yet."""
        with self._changed:
            return list(self._waiting)

    @property
    def failure(self) -> Exception | None:
        """Why the last attempt failed; None if it did not."""
        return self._failure

    @property
    def lost(self) -> int:
        """How many items were given up."""
        return self._lost

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def put(self, item: Any) -> None:
        """Take an item."""
        with self._changed:
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append(item)
                return
            self._lost += 1
        if self._lost == 1:
            logger.error("%d reports wait for %s; no more are taken until it has some", MAX_WAITING, self._receiver)

    def flush(self) -> None:
        """Have what waits delivered now; this does not wait for that."""
        with self._changed:
            self._is_due = bool(self._waiting)
            self._changed.notify_all()

    def wait(self, timeout: float) -> bool:
        """Wait until all is delivered, or nothing has been for `timeout` seconds; return whether all is."""
        self.flush()
        with self._changed:
            while self._waiting:
                before, end = self._delivered, time.monotonic() + timeout
                while self._waiting and self._delivered == before:
                    left = end - time.monotonic()
                    if left <= 0:
                        return False
                    self._changed.wait(left)
            return True

    def close(self) -> None:
        """Stop after the attempt under way, without waiting for that: it may hang."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            self._first()
        except Exception as error:  # The first item that is delivered tries it again.
            self._note(error)
        self.begun.set()
        while self._wait_for_work():
            with self._changed:
                head = list(islice(self._waiting, self._batch))
            # The lock is not held while the receiver is at work. Nobody else takes items off the front.
            number, failure = self._try(head)
            self._note(failure)
            with self._changed:
                for _ in range(number):
                    self._waiting.popleft()
                self._delivered += number
                self._is_due = self._is_due and bool(self._waiting)
                self._changed.notify_all()

    def _wait_for_work(self) -> bool:
        """Wait until there is something to deliver, and it is time; return false when it is the end."""
        with self._changed:
            while not self._is_closing:
                if self._failure is not None:
                    self._changed.wait_for(lambda: self._is_closing, self._retry_secs)
                else:
                    self._changed.wait_for(lambda: self._is_closing or self._is_due, self._flush_secs)
                if self._waiting and not self._is_closing:
                    return True
            return False

    def _try(self, head: Sequence[Any]) -> tuple[int, Exception | None]:
        try:
            return self._deliver(head), None
        except RefusedError as error:
            if str(error) != self._last_refusal:
                logger.error("%s refuses a report of this run, which is lost: %s", self._receiver, error)
            self._last_refusal = str(error)
            self._lost += 1
            return 1, None
        except Exception as error:
            return 0, error

    def _note(self, failure: Exception | None) -> None:
        if failure is not None and self._failure is None:
            logger.error(
                "%s takes no reports: %s. The training goes on; they wait, and are tried again every %g seconds",
                self._receiver,
                failure,
                self._retry_secs,
            )
        elif failure is None and self._failure is not None:
            logger.info("%s takes reports again; %d wait", self._receiver, len(self._waiting))
        self._failure = failure
