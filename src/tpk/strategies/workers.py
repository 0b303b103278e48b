"""Threads that each call a function over and over, can be paused, and do not fail in silence."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)


class Workers:
    """A thread for each function, which calls it over and over from `resume` to `pause`.

    Args:
        functions: what each thread calls.
        ends: errors that mean that there is nothing more to do; a thread that meets one ends quietly.
        timeout: how many seconds `stop` waits for a call that does not return.
    """

    def __init__(
        self,
        functions: Sequence[Callable[[], object]],
        ends: tuple[type[Exception], ...] = (),
        timeout: float = 10.0,
    ) -> None:
        self.counts = [0] * len(functions)
        self._ends = ends
        self._timeout = timeout
        self._failure: BaseException | None = None
        self._state = threading.Condition()
        self._may_run = False
        self._is_stopped = False
        self._busy = 0
        self._threads = [
            threading.Thread(target=self._work, args=(index, function), name=f"tpk-worker-{index + 1}", daemon=True)
            for index, function in enumerate(functions)
        ]
        for thread in self._threads:
            thread.start()

    def resume(self) -> None:
        """Let the threads go on."""
        with self._state:
            self._may_run = True
            self._state.notify_all()

    def pause(self) -> None:
        """Let the threads finish their calls, and wait until they have."""
        with self._state:
            self._may_run = False
            self._state.wait_for(lambda: self._busy == 0)

    def stop(self) -> None:
        """End the threads, for good."""
        with self._state:
            self._may_run, self._is_stopped = False, True
            self._state.notify_all()
        for thread in self._threads:
            thread.join(self._timeout)
            if thread.is_alive():
                logger.warning(
                    "%s is still in its call after %g seconds; it is left behind", thread.name, self._timeout
                )

    def raise_failure(self) -> None:
        """Raise the error by which a thread has failed, if one has, with the traceback that it has from there."""
        failure = self._failure
        if failure is not None:
            self._failure = None
            raise failure

    def _work(self, index: int, function: Callable[[], object]) -> None:
        while self._begin_call():
            try:
                function()
                self.counts[index] += 1
            except self._ends:
                return
            except BaseException as failure:
                self._failure = self._failure or failure
                return
            finally:
                self._end_call()

    def _begin_call(self) -> bool:
        """Wait until a call may begin; return whether one may."""
        with self._state:
            self._state.wait_for(lambda: self._may_run or self._is_stopped)
            if self._is_stopped:
                return False
            self._busy += 1
            return True

    def _end_call(self) -> None:
        with self._state:
            self._busy -= 1
            self._state.notify_all()
