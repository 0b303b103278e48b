"""Failures of other processes: how they reach this one, what they are called then, and when one is given up.

Horovod finds out by itself who is gone, so there is no heartbeat of tpk's own here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

import tpk
from tpk.cluster.spec import Timeouts
from tpk.errors import MismatchError, PeerError
from tpk.plugin import hookimpl
from tpk_horovod.bootstrap import Board

logger = logging.getLogger(f"tpk.{__name__}")

_NO_REASONS = ("Graph execution error", "Detected at", "File ", "Node:", "[[", "(")


class Peers:
    """The other processes of a training: how long they are waited for, and what it means that they fail.

    Horovod notices at once that a process is gone. But one that is alive and never comes would be waited for without
    end (Horovod's own check for that finds nothing if it runs on Gloo). So this does not wait longer than
    `Timeouts.barrier`: it shuts Horovod down then, by which whatever waits fails, in all processes.

    Args:
        rank: the number of this process.
        timeouts: how long to wait.
        shut_down: shuts Horovod down; called by a thread.
        board: by which the processes tell each other who waits, and so who is late; None if there is none.
        clock: returns the time, in seconds.
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
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="horovod-peers", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Take note that something begins that may wait for others."""
        self._since = self._clock()

    def end(self) -> None:
        """Take note that it is done."""
        self._since = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within the context, this process may wait for others; what fails because of them is raised as that.

        Raises:
            PeerError, MismatchError: as `translate_error` says.
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
        """Wait for nobody any more."""
        self._is_over.set()
        self._thread.join()

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return what it means that one of Horovod's operations has failed, or None if `error` is something else.

        Args:
            error: by which a run of a session failed.

        Returns:
            A `PeerError`; or a `MismatchError`, if the processes do not agree about a tensor.
        """
        if not isinstance(error, tf.errors.OpError) or "horovod" not in error.message.lower():
            return None
        reason = _reason(error.message)
        if "Mismatched" in reason:
            return MismatchError(
                f"the processes of the training do not agree about a tensor: {reason} All of them have to run the same "
                "script, with the same model."
            )
        if self._given_up is not None:
            return PeerError(self._given_up)
        return PeerError(
            f"rank {self._rank} cannot go on: another process of the training is gone, has ended, or does not answer. "
            f"The log of that process tells why. (Horovod says: {reason})"
        )

    def _watch(self) -> None:
        while not self._is_over.wait(min(1.0, self._timeouts.barrier / 10)):
            since = self._since
            waited = 0.0 if since is None else self._clock() - since
            # The others wait as long by then as this one does when it asks who is late.
            self._tell(waited > self._timeouts.late_warning / 2)
            if waited > self._timeouts.barrier:
                self._given_up = (
                    f"rank {self._rank} has waited for {waited:.0f} s{self._for_whom()}. What keeps it? "
                    "timeouts=tpk.Timeouts(barrier=<seconds>) says how long to wait."
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

    def _for_whom(self) -> str:
        late = self._board.late() if self._board is not None else []
        return f" for {', '.join(late)}" if late else " for another process"


class PeerErrors(tpk.Callback):
    """Lets a step that fails because of another process fail with an error that says so, and not wait without end.

    Args:
        peers: the other processes.
    """

    chief_only = False

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    @hookimpl(trylast=True)
    def before_run(self, run_context: Any) -> None:
        """Begin to watch the step, when all that feeds it has come."""
        self._peers.begin()

    @hookimpl(tryfirst=True)
    def after_run(self, run_context: Any, run_values: Any) -> None:
        """The step is done."""
        self._peers.end()

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return what `error` means, if it is one of Horovod's."""
        return self._peers.translate_error(error)


def _reason(message: str) -> str:
    """Return the line of a TensorFlow error that is no description of a place."""
    lines = [line.strip() for line in message.splitlines()]
    return next((line for line in lines if line and not line.startswith(_NO_REASONS)), message)
