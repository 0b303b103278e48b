"""Delivery of reports in a background thread, so that training never waits for a server."""

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
"""The maximum number of reports that are kept for a server that does not answer; about 200 MB."""


class RefusedError(Exception):
    """Raised when the receiver rejects a report permanently, so that retrying is useless."""


class Delivery:
    """Delivers items in order, in a thread, and retries after failures.

    The first of several failures is logged, and the recovery. While `MAX_WAITING` items wait, new items are dropped.
    Dropped and rejected items are logged.

    Args:
        receiver: the name of the receiver in the log.
        deliver: is called with the first waiting items, and returns how many of them it has delivered. It raises
            `RefusedError` if the first item can never be delivered.
        batch: the maximum number of items per call of `deliver`.
        flush_secs: how long items are collected before they are delivered, in seconds.
        retry_secs: how long to wait after a failure, in seconds.
        first: is called once before anything is delivered. If it raises, `deliver` must retry it.

    Attributes:
        begun: set after the call of `first`, even if it failed.
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
        """The items that are not delivered yet."""
        with self._changed:
            return list(self._waiting)

    @property
    def failure(self) -> Exception | None:
        """The error of the last attempt; None if it succeeded."""
        return self._failure

    @property
    def lost(self) -> int:
        """The number of items that were dropped or rejected."""
        return self._lost

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, item: Any) -> None:
        """Queue an item."""
        with self._changed:
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append(item)
                return
            self._lost += 1
        if self._lost == 1:
            logger.error("%d reports wait for %s; new reports are dropped for now", MAX_WAITING, self._receiver)

    def flush(self) -> None:
        """Ask the thread to deliver now, without waiting for it."""
        with self._changed:
            self._is_due = bool(self._waiting)
            self._changed.notify_all()

    def wait(self, timeout: float) -> bool:
        """Wait until everything is delivered, or nothing was for `timeout` seconds; return whether everything is."""
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
        """Stop after the current attempt, without waiting for it, because it may hang."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            self._first()
        except Exception as error:  # `deliver` retries it with the first item.
            self._note(error)
        self.begun.set()
        while self._wait_for_work():
            with self._changed:
                head = list(islice(self._waiting, self._batch))
            # The lock is not held during delivery: only this thread removes items from the front.
            number, failure = self._try(head)
            self._note(failure)
            with self._changed:
                for _ in range(number):
                    self._waiting.popleft()
                self._delivered += number
                self._is_due = self._is_due and bool(self._waiting)
                self._changed.notify_all()

    def _wait_for_work(self) -> bool:
        """Wait until it is time to deliver something; return False if the delivery was closed."""
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
                logger.error("%s rejected a report of this run, which is lost: %s", self._receiver, error)
            self._last_refusal = str(error)
            self._lost += 1
            return 1, None
        except Exception as error:
            return 0, error

    def _note(self, failure: Exception | None) -> None:
        if failure is not None and self._failure is None:
            logger.error(
                "%s does not accept reports: %s. Training continues; reports are kept, retrying every %g seconds",
                self._receiver,
                failure,
                self._retry_secs,
            )
        elif failure is None and self._failure is not None:
            logger.info("%s accepts reports again; %d are waiting", self._receiver, len(self._waiting))
        self._failure = failure
