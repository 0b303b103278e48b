"""Receiver of datapoints from other processes or machines, as a dataflow."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from tpk.checks import check_at_least
from tpk.dataflow.base import DataFlow
from tpk.dataflow.zmq.key import check_key
from tpk.dataflow.zmq.message import HEARTBEAT, Kind, Message, unpack_datapoint
from tpk.dataflow.zmq.sockets import Sockets, check_addresses
from tpk.errors import ConfigError, InputError
from tpk.plugin.optional import import_optional

logger = logging.getLogger(__name__)


class RemoteDataZMQ(DataFlow):
    """Deliver what one `send_dataflow_zmq` or several of them send.

    A pass ends when all senders have sent the end of theirs: as many as were promised, and all that were heard of.
    A sender that begins again belongs to the next pass, or to this one if others are still sending. The datapoints
    of one sender arrive in their order.

    The sockets stay open between two passes, so that nothing sent meanwhile is lost; `close`, an error, and an
    iteration that is given up close them. A resumed run goes on with what the senders send next: their position is
    theirs to keep.

    Args:
        address: ``"tcp://host:port"`` or ``"ipc:///path"``, or several of them. With `bind`, port ``*`` takes
            a free one; see `addresses`.
        hwm: how many datapoints of each sender may wait in this process (ZeroMQ's high water mark).
        bind: whether the senders connect to this address, rather than the receiver to the senders'.
        key: a secret that sender and receiver share, by default that of this user; see `send_dataflow_zmq`. Nothing
            is unpickled of what those send who do not know it.
        senders: how many there are at least.
        timeout: seconds; when a wait for data has lasted so long and a sender has given no sign of life all
            the while, this is an error. A slow sender gives signs of life.

    Raises:
        ConfigError: an option has a value that it cannot have; and, when it is iterated, the address is taken, or there
            is no key.
        PluginImportError: pyzmq is not installed.
        InputError: a sender's flow failed (with its traceback), a sender fell silent, or none came.

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
        owner = type(self).__name__
        self._given_addresses = check_addresses(address, owner)
        self._key = check_key(key, owner)
        self._zmq = import_optional("zmq", owner, "'tpk[zmq]'")
        check_at_least(self, 1, senders=senders)
        if timeout < 2 * HEARTBEAT:
            raise ConfigError(
                f"{owner}: timeout must be {2 * HEARTBEAT:g} s or more, not {timeout:g}: "
                f"senders give a sign of life each {HEARTBEAT:g} s"
            )
        self.hwm = hwm
        self.bind = bind
        self.senders = senders
        self.timeout = timeout
        self._forget_sockets()

    def _forget_sockets(self) -> None:
        self._sockets: Sockets | None = None
        self._ready: list[Any] = []
        self._finished: set[bytes] = set()
        self._dropped = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def __getstate__(self) -> dict[str, Any]:
        unpicklable = ("_zmq", "_sockets", "_ready", "_finished", "_dropped", "_lock", "_closing", "_destroy")
        return {name: value for name, value in vars(self).items() if name not in unpicklable}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._zmq = import_optional("zmq", type(self).__name__, "'tpk[zmq]'")
        self._forget_sockets()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the sockets are, with the ports that were taken; before `reset_state`, the addresses given."""
        if self.bind and self._sockets is not None:
            return tuple(one.getsockopt(self._zmq.LAST_ENDPOINT).rstrip(b"\0").decode() for one in self._sockets.all)
        return self._given_addresses

    def reset_state(self) -> None:
        """Open the sockets, so that senders can connect from now on."""
        with self._lock:
            if self._sockets is not None:
                return
            owner = type(self).__name__
            self._sockets = Sockets(self._zmq, "ROUTER", self._given_addresses, self.hwm, self.bind, self._key, owner)
            # A second, so that the last confirmation is still sent.
            self._destroy = weakref.finalize(self, self._sockets.close, 1000)
            self._ready = []
            self._closing.clear()

    def close(self) -> None:
        """Close the sockets; an iteration that waits in another thread ends."""
        self._closing.set()
        with self._lock:
            if self._sockets is not None:
                self._sockets = None
                self._destroy()

    def __iter__(self) -> Iterator[Any]:
        self.reset_state()
        complete = False
        try:
            yield from self._pass()
            complete = True
        finally:
            if not complete:
                self.close()

    def shard(self, index: int, count: int) -> DataFlow:
        """Raise: one process receives; let each worker have an address and senders of its own."""
        raise ConfigError(
            f"{type(self).__name__} at {', '.join(self._given_addresses)} cannot be divided among {count} workers: "
            "one process receives. Give each worker an address of its own, and the senders all of them; or map the "
            "data in parallel, behind it"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return an empty position: where the data stands is known to the senders alone."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take it back: the next iteration goes on with what the senders send next."""

    def break_off(self) -> None:
        """Let the next iteration begin a pass, which with senders is what every iteration does."""

    def _pass(self) -> Iterator[Any]:
        roll: dict[bytes, _Sender] = {}
        ended = 0
        while ended < self.senders or roll:
            received = self._receive_from(roll, ended)
            if received is None:
                return
            message, confirm = received
            sender = roll.get(message.sender)
            if sender is None:
                sender = self._enroll(message, roll)
            sender.expect(message)
            if message.kind is Kind.DATAPOINT:
                yield unpack_datapoint(message.parts)
            elif message.kind is not Kind.ALIVE:
                confirm()
                del roll[message.sender]
                self._finished.add(message.sender)
                ended += 1
                if message.kind is Kind.FAILURE:
                    raise InputError(
                        f"the flow of the sender {message.name!r} failed after {message.index} datapoints; "
                        f"there it was:\n\n{bytes(message.parts[0]).decode()}"
                    )

    def _enroll(self, message: Message, roll: dict[bytes, _Sender]) -> _Sender:
        for old_id, old in list(roll.items()):
            if old.name == message.name:
                logger.warning("the sender %r began again, after %d datapoints", old.name, old.expected)
                del roll[old_id]
                self._finished.add(old_id)
        roll[message.sender] = _Sender(message.name)
        return roll[message.sender]

    def _receive_from(self, roll: Mapping[bytes, _Sender], ended: int) -> tuple[Message, Any] | None:
        """Wait for the next message of a sender that has not ended; None when the sockets were closed."""
        wait = _Wait()
        while True:
            with self._lock:
                if self._sockets is None or self._closing.is_set():
                    return None
                received = self._poll(self._sockets)
            if received is None:
                self._check_signs_of_life(roll, ended, wait)
                continue
            source, identity, frames = received
            try:
                message = Message.from_frames(frames)
            except InputError as error:
                self._dropped += 1
                if self._dropped == 1:
                    logger.warning(
                        "%s at %s drops what it does not understand; the log does not tell of more. %s",
                        type(self).__name__,
                        ", ".join(self.addresses),
                        error,
                    )
                continue
            if message.sender in self._finished:
                if message.kind in (Kind.END, Kind.FAILURE):
                    self._confirm(source, identity, message)
            elif message.kind is Kind.ALIVE and message.sender in roll:
                roll[message.sender].heard = time.monotonic()
                self._check_signs_of_life(roll, ended, wait)
            else:
                return message, partial(self._confirm, source, identity, message)

    def _poll(self, sockets: Sockets) -> tuple[Any, Any, list[Any]] | None:
        # Each socket that has something gets its turn before they are asked again. The wait is short, since
        # whoever closes has to wait for its end.
        if not self._ready:
            self._ready = sockets.poll(self._zmq.POLLIN, 0.1)
        if not self._ready:
            return None
        source = self._ready.pop()
        identity, *frames = source.recv_multipart(copy=False)
        return source, identity, [frame.buffer for frame in frames]

    def _confirm(self, source: Any, identity: Any, message: Message) -> None:
        answer = Message(Kind.RECEIVED, message.sender, message.index, "")
        with self._lock:
            if not self._closing.is_set():
                try:
                    source.send_multipart([identity, *answer.frames()], self._zmq.NOBLOCK)
                except self._zmq.Again:  # it will ask again
                    pass

    def _check_signs_of_life(self, roll: Mapping[bytes, _Sender], ended: int, wait: _Wait) -> None:
        now = time.monotonic()
        if now - wait.began < self.timeout:
            return
        me = f"{type(self).__name__} at {', '.join(self.addresses)}"
        strangers = 0 if self._sockets is None else self._sockets.strangers
        hint = f"; {strangers} connections failed, as when the other side has another key" if strangers else ""
        hint += f"; {self._dropped} messages were not understood" if self._dropped else ""
        if not roll:
            raise InputError(
                f"{me} waited {self.timeout:g} s (its timeout) for data, and only {ended} of {self.senders} "
                f"senders came{hint}; start them, or give it a longer timeout"
            )
        for sender in roll.values():
            if now - max(sender.heard, wait.began) >= self.timeout:
                raise InputError(
                    f"{me}: the sender {sender.name!r} has given no sign of life for {self.timeout:g} s (the "
                    f"timeout), after {sender.expected} datapoints; it died, or the network did{hint}. A sender "
                    "with the same name= that begins within that time takes its place"
                )
        if now - wait.warned >= self.timeout:
            wait.warned = now
            names = ", ".join(sender.name for sender in roll.values())
            logger.warning("%s has waited %.0f s for data; alive, but slow: %s", me, now - wait.began, names)


@attrs.define
class _Wait:
    """One wait for data."""

    began: float = attrs.field(factory=time.monotonic)
    warned: float = attrs.field(factory=time.monotonic)


@attrs.define
class _Sender:
    """What the receiver knows of a sender that has not ended."""

    name: str
    expected: int = 0
    heard: float = attrs.field(factory=time.monotonic)

    def expect(self, message: Message) -> None:
        """Note that a message came, and warn if datapoints before it did not."""
        self.heard = time.monotonic()
        if message.index > self.expected:
            logger.warning(
                "%d datapoints of the sender %r were lost on the way, before the one numbered %d: the connection "
                "broke, or the receiver was started anew",
                message.index - self.expected,
                self.name,
                message.index,
            )
        self.expected = message.index + (message.kind is Kind.DATAPOINT)
