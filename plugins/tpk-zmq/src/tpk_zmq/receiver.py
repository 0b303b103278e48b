"""A dataflow that receives datapoints from other processes or machines."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import zmq

from tpk.argument_checks import check_at_least, check_positive
from tpk.dataflow import DataFlow
from tpk.errors import ConfigError, InputError
from tpk_zmq.wire import Message, Sockets, check_addresses, unpack_datapoint

logger = logging.getLogger(__name__)


class RemoteDataZMQ(DataFlow):
    """Receive the datapoints that one or more calls of `send_dataflow_zmq` send.

    A pass ends when all senders have finished theirs: at least `senders` of them, and every other one that has sent
    something. A sender that starts again belongs to the next pass, or to this one if other senders are still active.
    The datapoints of one sender arrive in order.

    The sockets stay open between passes, so that nothing sent in between is lost. They are closed by `close`, by an
    error, and when an iteration is abandoned. Only the senders know their position: a resumed run continues with
    whatever they send next.

    Args:
        address: ``"tcp://host:port"`` or ``"ipc:///path"``, or several of them. With `bind`, port ``*`` picks a free
            port; see `addresses`.
        hwm: how many datapoints of each sender may wait in this process (ZeroMQ's high water mark).
        bind: True if this process binds to the address and the senders connect to it; False for the reverse.
        key: the key that sender and receiver share; by default the user's key; see `send_dataflow_zmq`. Nothing
            from a sender with another key is unpickled.
        senders: the minimum number of senders.
        timeout: how long to wait for a datapoint before an error is raised, in seconds. It must be longer than the
            slowest sender takes to produce one.

    Raises:
        ConfigError: if an option is invalid; in an iteration, if the address is in use or no key is available.
        InputError: if the dataflow of a sender fails (with its traceback), or nothing arrives in time.

    Example:
        ```python
        flow = RemoteDataZMQ("tcp://127.0.0.1:8877", senders=2)
        for images, labels in flow:
            ...
        ```
    """

    def __init__(
        self,
        address: str | Sequence[str],
        hwm: int = 8,
        bind: bool = True,
        *,
        key: bytes | str | None = None,
        senders: int = 1,
        timeout: float = 60.0,
    ) -> None:
        self._addresses = check_addresses(address, type(self).__name__)
        check_at_least(self, 1, senders=senders)
        check_positive(self, timeout=timeout)
        self.hwm = hwm
        self.bind = bind
        self.senders = senders
        self.timeout = timeout
        self._key = key
        self._sockets: Sockets | None = None
        self._finished: set[str] = set()
        # A socket may only be used by one thread at a time, and `close` may be called by another thread.
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_sockets": None, "_lock": None, "_close_sockets": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the sockets, with actual port numbers; before `reset_state`, the addresses given."""
        if self.bind and self._sockets is not None:
            return tuple(each.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode() for each in self._sockets.all)
        return self._addresses

    def reset_state(self) -> None:
        """Open the sockets, so that senders can connect from now on."""
        with self._lock:
            if self._sockets is None:
                owner = type(self).__name__
                self._sockets = Sockets(zmq.ROUTER, self._addresses, self.hwm, self.bind, self._key, owner)
                self._close_sockets = weakref.finalize(self, self._sockets.close)

    def close(self) -> None:
        """Close the sockets. An iteration that waits in another thread raises an `InputError`."""
        with self._lock:
            if self._sockets is not None:
                self._sockets = None
                self._close_sockets()

    def __iter__(self) -> Iterator[Any]:
        self.reset_state()
        is_complete = False
        try:
            yield from self._receive_pass()
            is_complete = True
        finally:
            if not is_complete:
                self.close()

    def shard(self, index: int, count: int) -> DataFlow:
        """Raise an error: only one process can receive at an address."""
        raise ConfigError(
            f"{type(self).__name__} at {', '.join(self._addresses)} cannot be divided among {count} workers. Give each "
            "worker its own address, and the senders all addresses; or process the received data in parallel"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return an empty position: only the senders know theirs."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: the next iteration continues with whatever the senders send next."""

    def break_off(self) -> None:
        """Do nothing: each iteration continues with whatever the senders send next."""

    def _receive_pass(self) -> Iterator[Any]:
        received: dict[str, int] = {}  # The number of datapoints of each active sender.
        ended = 0
        while ended < self.senders or received:
            message = self._receive(received, ended)
            sender = message.sender
            if sender in self._finished:
                continue
            expected = received.get(sender, 0)
            if message.index > expected:
                lost = message.index - expected
                logger.warning("%d datapoints of the sender %s were lost; was a process restarted?", lost, sender)
            if message.kind == "datapoint":
                received[sender] = message.index + 1
                yield unpack_datapoint(message.parts)
                continue
            received.pop(sender, None)
            self._finished.add(sender)
            ended += 1
            if message.kind == "failure":
                report = bytes(message.parts[0]).decode()
                raise InputError(
                    f"the dataflow of the sender {sender} failed after {message.index} datapoints:\n\n{report}"
                )

    def _receive(self, received: Mapping[str, int], ended: int) -> Message:
        """Wait for the next message; confirm a sender's end message."""
        deadline = time.monotonic() + self.timeout
        while time.monotonic() < deadline:
            with self._lock:
                if self._sockets is None:
                    raise InputError(f"{type(self).__name__} was closed while it waited for data")
                # Wait only briefly, because `close` has to wait for the lock.
                for each in self._sockets.ready(zmq.POLLIN, 0.1)[:1]:
                    identity, *frames = each.recv_multipart(copy=False)
                    message = Message.from_frames([frame.buffer for frame in frames])
                    if message.kind == "end":
                        each.send_multipart([identity, b""], zmq.NOBLOCK)
                    return message
        where = f"{type(self).__name__} at {', '.join(self.addresses)}"
        raise InputError(
            f"{where} has received nothing for {self.timeout:g} s (timeout); "
            f"active senders: {', '.join(received) or 'none'}; finished: {ended} of {self.senders}. A sender has died, "
            "has another key, or needs a longer timeout for a datapoint"
        )
