"""Threads that run a whole flow."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from tpk.argument_checks import check_positive
from tpk.dataflow.base import DataFlow, error_of_data, may_refill, seed_dataflow, shard
from tpk.dataflow.memory import allocate_arrays, copy_arrays
from tpk.dataflow.parallel.link import END, END_OF_PASS, ERROR, OBJECT, STATE, LinkClosed
from tpk.dataflow.parallel.runners import FlowRunner, RunFlow, Team, TeamState
from tpk.errors import ConfigError

logger = logging.getLogger(__name__)


class MultiThreadRunner(FlowRunner["FlowThread"]):
    """Run a flow in threads: each makes its share of the datapoints, ahead of their use.

    Use it for flows that wait (for a network or a disk) or compute without Python's lock, like NumPy, OpenCV and
    TensorFlow. For Python code, use `MultiProcessRunner`, which also describes how datapoints are divided, and their
    order.

    Args:
        get_flow: called once for each thread; returns a new, equal flow each time, which shares nothing with the
            others.
        num_thread: number of threads.
        num_prefetch: number of datapoints that each thread may be ahead.
        seed: seed of the flows whose seed was not chosen; by default drawn, or derived from the seed of the run.

    Attributes:
        warn_after: seconds without a datapoint until a warning shows the stack of the thread; repeated after
            twice that time.

    Raises:
        ConfigError: a number is not positive, or `get_flow` is not a function.
        Exception: (during iteration) an exception of a flow.

    Example:
        ```python
        flow = MultiThreadRunner(lambda: MapData(DataFromList(urls), download), num_thread=8)
        ```
    """

    warn_after: float = 60.0

    def __init__(
        self,
        get_flow: Callable[[], Iterable[Any]],
        num_thread: int,
        num_prefetch: int = 4,
        seed: int | None = None,
    ) -> None:
        check_positive(self, num_thread=num_thread, num_prefetch=num_prefetch)
        if not callable(get_flow):
            raise ConfigError(
                f"MultiThreadRunner takes a function that returns a flow, not {get_flow!r}: each thread needs its own "
                "flow. Write `lambda: ...`."
            )
        super().__init__(get_flow(), num_thread, seed)
        self.get_flow = get_flow
        self.num_prefetch = num_prefetch
        self._shares: tuple[tuple[int, int, int], ...] = ()

    @property
    def sources(self) -> tuple[Iterable[Any], ...]:
        """Empty: the flows are made when the threads start, all with the same seed."""
        return ()

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return a copy, with its own threads, on top of shares of the flows."""
        share = self.with_sources([shard(self.flow, index, count, block)])
        share._shares = (*self._shares, (index, count, block))
        return share

    def _share(self, index: int) -> Iterable[Any]:
        flow = self.get_flow()
        seed_dataflow(flow, self.seed)
        for share in (*self._shares, (index, self.num_workers, 1)):
            flow = shard(flow, *share)
        return flow

    def _start(self, state: TeamState, shares: Sequence[Iterable[Any]]) -> Team[FlowThread]:
        threads = []
        for index, (share, start) in enumerate(zip(shares, state.workers, strict=True)):
            name = f"thread {index + 1} of {self.num_workers} of {type(self).__name__}"
            threads.append(FlowThread(name, RunFlow(share, start), self.num_prefetch, self.warn_after))
        return Team(threads, state)

    def _stop(self, team: Team[FlowThread]) -> None:
        for thread in team.members:
            thread.stop()
        for thread in team.members:
            thread.wait()


class FlowThread:
    """A thread that puts the datapoints of a flow into a bounded buffer.

    After `stop`, or when this object is gone, it ends as soon as the user's code has finished its datapoint.

    Args:
        name: its name in messages.
        work: the work it does.
        num_prefetch: number of datapoints that it may be ahead.

    Attributes:
        owner: the process that started it. A fork of that process must not touch it.
    """

    def __init__(self, name: str, work: RunFlow, num_prefetch: int, warn_after: float) -> None:
        self.name = name
        self.owner = os.getpid()
        self._warn_after = warn_after
        self._buffer = Buffer(num_prefetch, may_refill(work.flow))
        self._state: Any = None
        self._items_since = 0
        self._thread = threading.Thread(target=_run, args=(work, self._buffer, name), name=f"tpk {name}", daemon=True)
        self._thread.start()
        self.stop = weakref.finalize(self, self._buffer.close)

    def receive(self) -> Any:
        """Return the next datapoint, or `END_OF_PASS`.

        Raises:
            Exception: an exception of the flow.
        """
        seconds = self._warn_after
        while True:
            try:
                kind, value = self._buffer.take(seconds)
            except Empty:
                self._warn("has delivered nothing for", seconds)
                seconds *= 2
                continue
            if kind == STATE:
                self._state, self._items_since = value, 0
            elif kind == ERROR:
                raise value
            else:
                self._items_since += 1
                return value

    def progress(self) -> tuple[Any, int]:
        """Return the last state from the thread, or None, and the number of items received since."""
        return self._state, self._items_since

    def wait(self) -> None:
        """Wait for the end of the thread after `stop`, but no longer than `warn_after` seconds."""
        if sys.is_finalizing():  # Python has stopped all daemon threads, but calls them alive.
            return
        self._thread.join(self._warn_after)
        if self._thread.is_alive():
            self._warn("was stopped, but has been making a datapoint for", self._warn_after)

    def _warn(self, what: str, seconds: float) -> None:
        frame = sys._current_frames().get(self._thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "its end"
        logger.warning("%s %s %g s; it is at\n%s", self.name, what, seconds, stack)


def _run(work: RunFlow, buffer: Buffer, name: str) -> None:
    try:
        work(buffer)
    except LinkClosed:
        pass  # The buffer was closed.
    except BaseException as error:
        buffer.put(ERROR, error_of_data(error, name))


class Buffer:
    """The datapoints of a thread that were not received yet, with ends of passes and states in between.

    States do not count. `SimpleQueue` may be used while the garbage collector runs, which may call `close`.
    """

    allocate = staticmethod(allocate_arrays)

    def __init__(self, size: int, copies: bool) -> None:
        self._copies = copies
        self._messages: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._is_closed = False
        self._room: SimpleQueue[None] = SimpleQueue()  # an item for each place that is free
        for _ in range(size):
            self._room.put(None)

    def send(self, datapoint: Any) -> None:
        """Send a datapoint; block while the receiver is too far behind."""
        self._put_item(OBJECT, copy_arrays(datapoint) if self._copies else datapoint)

    def send_end(self) -> None:
        """Send the end of the pass; block likewise."""
        self._put_item(END, END_OF_PASS)

    def send_state(self, state: Any) -> None:
        """Send the position of the flow."""
        self.put(STATE, state)

    def put(self, kind: int, value: Any) -> None:
        """Send a message that needs no room."""
        self._messages.put((kind, value))

    def _put_item(self, kind: int, value: Any) -> None:
        self._room.get()
        if self._is_closed:
            raise LinkClosed
        self.put(kind, value)

    def take(self, timeout: float) -> tuple[int, Any]:
        """Return the next message; raise `Empty` if none comes within `timeout` seconds."""
        message = self._messages.get(timeout=timeout)
        if message[0] in (OBJECT, END):
            self._room.put(None)
        return message

    def close(self) -> None:
        """Let the next `send` raise `LinkClosed`."""
        self._is_closed = True
        self._room.put(None)
