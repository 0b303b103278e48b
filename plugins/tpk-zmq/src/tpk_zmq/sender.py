"""Send a dataflow to another process or machine."""

from __future__ import annotations

import logging
import os
import socket
import traceback
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import zmq

from tpk.dataflow.base import check_iterable, reset_state
from tpk.errors import InputError
from tpk_zmq.wire import Message, Sockets, check_addresses, pack_datapoint

logger = logging.getLogger(__name__)

_OWNER = "send_dataflow_zmq"
_WARN_AFTER = 60


def send_dataflow_zmq(
    flow: Iterable[Any],
    address: str | Sequence[str],
    hwm: int = 8,
    bind: bool = False,
    *,
    key: bytes | str | None = None,
) -> None:
    """Send one pass over a dataflow to a `RemoteDataZMQ`, and return when everything has been received.

    It waits while the receiver is busy or not running yet. If a receiver dies, datapoints in transit are lost. Arrays
    are sent without a copy, so the dataflow must not modify an array after yielding it. To send forever,
    wrap the dataflow in `RepeatedData`. An error in the dataflow is sent to the receiver and raised here.

    Datapoints are pickled, and a pickle can run any code. Therefore sender and receiver must share a key: ZeroMQ's
    CURVE authenticates both sides with it, and encrypts. The default is the user's key, ``tpk/zmq.key`` in
    ``$XDG_CONFIG_HOME`` (``~/.config``), which the first process that needs it creates. Other users, and machines with
    another home directory, need a copy of that file, or `key`.

    On one machine, ``ipc://`` with a socket in a directory that only the user can access (`tempfile.mkdtemp` makes
    one) needs no key and is several times as fast, because nothing is encrypted.

    Args:
        flow: any iterable of datapoints.
        address: ``"tcp://host:port"`` or ``"ipc:///path"``. Each address belongs to one receiver. With several
            addresses, each datapoint goes to a receiver that has room.
        hwm: how many datapoints may wait in this process for each receiver (ZeroMQ's high water mark).
        bind: True if this process binds to the address and the receiver connects to it; False for the reverse.
        key: the shared key, such as the value of `secrets.token_hex`.

    Raises:
        ConfigError: if an option is invalid, the address is in use, or the key file cannot be used.
        InputError: if a datapoint cannot be pickled.

    Example:
        ```python
        send_dataflow_zmq(flow, "tcp://127.0.0.1:8877")  # in one process
        flow = RemoteDataZMQ("tcp://127.0.0.1:8877")  # in another
        ```
    """
    check_iterable(flow, _OWNER)
    with closing(_Outlet(check_addresses(address, _OWNER), hwm, bind, key)) as outlet:
        try:
            reset_state(flow)
            iterator = iter(flow)
            try:
                for datapoint in iterator:
                    outlet.send(datapoint)
            finally:
                if iterator is not flow and hasattr(iterator, "close"):
                    iterator.close()
        except BaseException as error:
            outlet.fail(error)
            raise
        outlet.finish()


class _Outlet:
    """The sockets of a sender, one for each receiver."""

    def __init__(self, addresses: Sequence[str], hwm: int, bind: bool, key: bytes | str | None) -> None:
        self._addresses = addresses
        self._name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._sockets = Sockets(zmq.DEALER, addresses, hwm, bind, key, _OWNER)
        self._sent = dict.fromkeys(self._sockets.all, 0)

    def send(self, datapoint: Any) -> None:
        """Send a datapoint to the receiver that has room and has received the fewest; wait if none has room."""
        try:
            parts = pack_datapoint(datapoint)
        except Exception as error:
            index = sum(self._sent.values())
            raise InputError(
                f"{_OWNER}: datapoint {index}, a {type(datapoint).__name__}, cannot be pickled: {error}"
            ) from error
        target = min(self._wait_for_room(), key=self._sent.__getitem__)
        self._send_to(target, "datapoint", parts)
        self._sent[target] += 1

    def finish(self) -> None:
        """Send an end message to each receiver until it is confirmed.

        ZeroMQ loses messages in transit when the sender closes its socket or a receiver is restarted.
        """
        waiting = set(self._sockets.all)
        while waiting:
            for target in waiting.intersection(self._wait_for_room()):
                self._send_to(target, "end")
            waiting.difference_update(self._sockets.ready(zmq.POLLIN, 1))

    def fail(self, error: BaseException) -> None:
        """Send the traceback of an error to each receiver that has room."""
        report = "".join(traceback.format_exception(error)).encode(errors="replace")
        for target in self._sockets.ready(zmq.POLLOUT, 1):
            self._send_to(target, "failure", [report])

    def close(self) -> None:
        """Close the sockets."""
        self._sockets.close()

    def _send_to(self, target: Any, kind: str, parts: Sequence[Any] = ()) -> None:
        target.send_multipart(Message(kind, self._name, self._sent[target], parts).frames(), copy=False)

    def _wait_for_room(self) -> list[Any]:
        seconds = 0
        while not (ready := self._sockets.ready(zmq.POLLOUT, 1)):
            seconds += 1
            if seconds % _WARN_AFTER == 0:
                logger.warning(
                    "%s: no receiver at %s has taken a datapoint for %d s. Both sides need the same key; still waiting",
                    _OWNER,
                    ", ".join(self._addresses),
                    seconds,
                )
        return ready
