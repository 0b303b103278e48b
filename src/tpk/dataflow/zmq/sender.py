"""Sender of a dataflow to another process or machine."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from tpk.checks import check_positive
from tpk.dataflow.base import check_iterable, reset_state
from tpk.dataflow.position import close_iterator
from tpk.dataflow.zmq.key import check_key
from tpk.dataflow.zmq.message import HEARTBEAT, Kind, Message, pack_datapoint
from tpk.dataflow.zmq.sockets import Sockets, check_addresses
from tpk.errors import InputError, add_note
from tpk.plugin.optional import import_optional

logger = logging.getLogger(__name__)


def send_dataflow_zmq(
    flow: Iterable[Any],
    address: str | Sequence[str],
    hwm: int = 8,
    bind: bool = False,
    *,
    key: bytes | str | None = None,
    name: str | None = None,
    warn_after: float = 60.0,
) -> None:
    """Send one pass over a flow to a `RemoteDataZMQ`, and return when it has it all.

    It waits while the receiver is busy, is not there yet, or comes back; what was under way to a receiver that
    died is lost. Arrays are sent from where they lie, so the flow must not change one that it has delivered. To send
    without end, wrap the flow in `RepeatedData`. An error of the flow is sent, and raised here, too.

    Datapoints travel pickled, and a pickle can run any code, so sender and receiver have to have the same key: by it,
    ZeroMQ's CURVE makes sure on both sides who the other one is, encrypts, and refuses what is forged or sent twice.
    By default it is that of this user, `tpk/zmq.key` in ``$XDG_CONFIG_HOME`` (``~/.config``), which is made by whoever
    needs it first. Other users, and machines that do not share the home, need a copy of that file, or `key`.

    To encrypt takes time: on 2 cores of an AMD EPYC, batches of 19 MB came from one sender at 400 MB/s over tcp, and at
    2,900 MB/s over ``ipc://`` without a key. That is what to use on one machine: where the socket is in a directory
    that is this user's alone (as `tempfile.mkdtemp` makes one), the kernel keeps all others out, and there is no key
    unless you give one.

    Args:
        flow: any iterable of datapoints.
        address: ``"tcp://host:port"`` or ``"ipc:///path"``. Each address is of one receiver; given several, each
            datapoint goes to one that has room.
        hwm: how many datapoints may wait in this process for each receiver (ZeroMQ's high water mark).
        bind: whether the receiver connects to this address, rather than the sender to the receiver's.
        key: a secret that sender and receiver share, such as that of `secrets.token_hex`; see above.
        name: who this is, for the receiver's messages. A sender that begins again under a name takes the
            place of the one that died. By default host, process and thread.
        warn_after: seconds after which a warning says that nobody takes the data; also how long an error waits to be
            taken.

    Raises:
        ConfigError: an option has a value that it cannot have, the address is taken, or the file of the key cannot be
            used.
        PluginImportError: pyzmq is not installed.
        InputError: a datapoint cannot be pickled.

    Example:
        ```python
        send_dataflow_zmq(flow, "tcp://127.0.0.1:8877")  # in one process
        flow = RemoteDataZMQ("tcp://127.0.0.1:8877")  # in another one
        ```
    """
    check_iterable(flow, "send_dataflow_zmq")
    with closing(_Outlet(address, hwm, bind, key, name, warn_after)) as outlet:
        try:
            reset_state(flow)
            iterator = iter(flow)
            try:
                for datapoint in iterator:
                    outlet.send(datapoint)
            finally:
                close_iterator(iterator, flow)
        except Exception as error:
            outlet.fail(error, warn_after)
            raise
        except BaseException as error:  # Ctrl-C, say: nobody wants to wait for long
            outlet.fail(error, 2 * HEARTBEAT)
            raise
        outlet.finish()


class _Outlet:
    """The sockets of a sender, one for each receiver, and the thread that gives signs of life meanwhile."""

    def __init__(
        self,
        address: str | Sequence[str],
        hwm: int,
        bind: bool,
        key: bytes | str | None,
        name: str | None,
        warn_after: float,
    ) -> None:
        owner = "send_dataflow_zmq"
        addresses = check_addresses(address, owner)
        own_key = check_key(key, owner)
        self._zmq = import_optional("zmq", owner, "'tpk[zmq]'")
        check_positive(owner, warn_after=warn_after)
        self._id = uuid.uuid4().bytes
        self._name = name or f"{socket.gethostname()}:{os.getpid()}:{threading.get_native_id()}"
        self._warn_after = warn_after
        self._sockets = Sockets(self._zmq, "DEALER", addresses, hwm, bind, own_key, owner)
        self._addresses = dict(zip(self._sockets.all, addresses, strict=True))
        self._sent = dict.fromkeys(self._sockets.all, 0)
        # The next datapoint goes to the first one that has room.
        self._turns = list(self._sockets.all)
        # A socket is used by one thread at a time: by this one, or by the other while the flow makes a datapoint.
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._give_signs_of_life, name=f"tpk-{owner}", daemon=True)
        self._thread.start()

    def send(self, datapoint: Any) -> None:
        """Hand a datapoint to a receiver that has room; wait for one."""
        try:
            parts = pack_datapoint(datapoint)
        except Exception as error:
            index = sum(self._sent.values())
            raise InputError(
                f"send_dataflow_zmq: datapoint {index}, a {type(datapoint).__name__}, cannot be pickled: {error}"
            ) from error
        with self._lock:
            target = self._wait_for_room()
            message = Message(Kind.DATAPOINT, self._id, self._sent[target], self._name, parts)
            target.send_multipart(message.frames(), copy=False)
            self._sent[target] += 1
            self._turns.remove(target)
            self._turns.append(target)

    def finish(self) -> None:
        """Tell every receiver that this was all, and wait until each has got there."""
        self._tell_all(Kind.END, b"", None)

    def fail(self, error: BaseException, limit: float) -> None:
        """Tell every receiver of the error; wait no longer than `limit` seconds until they know."""
        report = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            self._tell_all(Kind.FAILURE, report.encode(errors="replace"), limit)
        except KeyboardInterrupt:
            add_note(error, "interrupted while the receiver was being told")

    def close(self) -> None:
        """Leave nothing behind."""
        self._closing.set()
        self._thread.join()
        # Whoever had to get something has confirmed it, or has had the time to.
        self._sockets.close(0)

    def _wait_for_room(self) -> Any:
        while True:
            ready = self._sockets.poll(self._zmq.POLLOUT, self._warn_after)
            if ready:
                return next(one for one in self._turns if one in ready)
            logger.warning(
                "send_dataflow_zmq: nobody at %s has taken a datapoint for %g s; still waiting%s",
                ", ".join(self._addresses.values()),
                self._warn_after,
                self._hint(),
            )

    def _tell_all(self, kind: Kind, content: bytes, limit: float | None) -> None:
        began = warned = time.monotonic()
        waiting = self._sockets.all
        with self._lock:
            while waiting and (limit is None or time.monotonic() - began < limit):
                for one in waiting:
                    # Again and again: it is lost with a receiver that dies, and its successor must know.
                    self._send_if_there_is_room(one, Message(kind, self._id, self._sent[one], self._name, [content]))
                confirmed = self._sockets.poll(self._zmq.POLLIN, HEARTBEAT, waiting)
                waiting = [one for one in waiting if one not in confirmed]
                if waiting and time.monotonic() - warned >= self._warn_after:
                    warned = time.monotonic()
                    logger.warning(
                        "send_dataflow_zmq: all is sent, but nobody at %s has taken the last of it; still waiting%s",
                        ", ".join(self._addresses[one] for one in waiting),
                        self._hint(),
                    )

    def _give_signs_of_life(self) -> None:
        while not self._closing.wait(HEARTBEAT):
            # Whoever holds the lock is sending, or waits for room because the receiver has enough to read.
            if self._lock.acquire(blocking=False):
                try:
                    for one in self._sockets.all:
                        self._send_if_there_is_room(one, Message(Kind.ALIVE, self._id, self._sent[one], self._name))
                finally:
                    self._lock.release()

    def _send_if_there_is_room(self, target: Any, message: Message) -> None:
        try:
            target.send_multipart(message.frames(), self._zmq.NOBLOCK)
        except self._zmq.Again:
            pass

    def _hint(self) -> str:
        strangers = self._sockets.strangers
        return f"; {strangers} connections failed, as when the other side has another key" if strangers else ""
