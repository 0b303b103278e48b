"""Failures of other processes: how they are detected and reported, and when to stop waiting for a process.

Horovod itself detects dead processes, so tpk's own heartbeat is not used here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tpk_distributed import Timeouts

import tpk
from tpk.errors import MismatchError, PeerError
from tpk.plugin import hookimpl
from tpk_horovod.bootstrap import Board

logger = logging.getLogger(f"tpk.{__name__}")

_NO_REASONS = ("Graph execution error", "Detected at", "File ", "Node:", "[[", "(")


class Peers:
    """The other processes of a training run: limits the time spent waiting for them, and translates their failures.

    Horovod detects a dead process at once, but waits forever for a process that is alive and does not take part (its
    stall check does not work with Gloo). This class limits the wait to `Timeouts.barrier`; after that it shuts Horovod
    down, so that all waiting operations fail, in all processes.

    Args:
        rank: the rank of this process.
        timeouts: the time limits.
        shut_down: shuts Horovod down; called in a thread.
        board: where the processes publish whether they are waiting, which shows which one is late; None without a
            rendezvous server.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        rank: int,
        timeouts: Timeouts,
        shut_down: Callable[[], None],
        board: Board | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rank = rank
        self._timeouts = timeouts
        self._shut_down = shut_down
        self._board = board
        self._has_told = False
        self._clock = clock
        self._since: float | None = None
        self._reported: float | None = None
        self._given_up: str | None = None
        self._lost: list[str] | None = None
        self._finding_lost = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="horovod-peers", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Start timing an operation that may wait for others."""
        self._since = self._clock()

    def end(self) -> None:
        """Stop timing: the operation is complete."""
        self._since = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Limit the wait for other processes within the context, and translate errors that they cause.

        Raises:
            PeerError, MismatchError: see `translate_error`.
        """
        self.begin()
        try:
            yield
        except tf.errors.OpError as error:
            meaning = self.translate_error(error)
            if meaning is None:
                raise
            raise meaning from error
        finally:
            self.end()

    def close(self) -> None:
        """Stop the thread."""
        self._is_over.set()
        self._thread.join()

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Translate the error of a Horovod operation; return None for all other errors.

        Args:
            error: an error raised by running a session.

        Returns:
            A `MismatchError` if the processes have different tensors, otherwise a `PeerError`.
        """
        if not isinstance(error, tf.errors.OpError) or "horovod" not in error.message.lower():
            return None
        reason = _reason(error.message)
        if "Mismatched" in reason:
            return MismatchError(
                f"the processes of this training run have different tensors: {reason} All processes must run the same "
                "script with the same model."
            )
        if self._given_up is not None:
            return PeerError(self._given_up)
        lost = ", ".join(self._find_lost()) or "another process of this training run"
        return PeerError(
            f"rank {self._rank} cannot continue: {lost} has died, has ended, or does not answer. See the log of that "
            f"process. (Horovod reports: {reason})"
        )

    def _watch(self) -> None:
        interval = min(1.0, self._timeouts.barrier / 10)
        while not self._is_over.wait(interval):
            since = self._since
            waited = 0.0 if since is None else self._clock() - since
            # Half the time, so that the others have published that they wait before this process asks who is late.
            self._tell(waited > self._timeouts.late_warning / 2)
            if waited > interval:
                self._look_for_failure()
            if waited > self._timeouts.barrier:
                self._given_up = (
                    f"rank {self._rank} has waited for {waited:.0f} s{self._for_whom()}. Check why it is "
                    "late, or wait longer: timeouts={'barrier': <seconds>}."
                )
                logger.error("%s", self._given_up)
                self._shut_down()
                return
            if waited > self._timeouts.late_warning and self._reported != since:
                self._reported = since
                logger.warning("rank %d has been waiting for %.0f s%s", self._rank, waited, self._for_whom())

    def _tell(self, waits: bool) -> None:
        if self._board is not None and waits != self._has_told:
            self._has_told = waits
            self._board.tell_waiting(waits)

    def _look_for_failure(self) -> None:
        """Take part in finding who is lost: Horovod's operations fail at once only in some of the processes.

        In the others they wait until those end, and with the chief its board is gone.
        """
        if self._lost is None and self._board is not None and self._board.tells_of_failure():
            self._find_lost()

    def _find_lost(self) -> list[str]:
        with self._finding_lost:
            if self._lost is None:
                self._lost = self._board.lost() if self._board is not None else []
            return self._lost

    def _for_whom(self) -> str:
        late = self._board.late() if self._board is not None else []
        return f" for {', '.join(late)}" if late else " for another process"


class PeerErrors(tpk.Callback):
    """Limits how long a step waits for other processes, and explains errors that they cause.

    Args:
        peers: the other processes.
    """

    chief_only = False

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    @hookimpl(trylast=True)
    def before_run(self, run_context: Any) -> None:
        """Start timing the step, after its feeds are ready."""
        self._peers.begin()

    @hookimpl(tryfirst=True)
    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stop timing: the step is complete."""
        self._peers.end()

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Translate errors of Horovod operations; see `Peers.translate_error`."""
        return self._peers.translate_error(error)


def _reason(message: str) -> str:
    """Return the first line of a TensorFlow error that does not describe a location in the graph or the code."""
    lines = [line.strip() for line in message.splitlines()]
    return next((line for line in lines if line and not line.startswith(_NO_REASONS)), message)
