"""Data flows in other processes or on other machines, over ZeroMQ.

The protocol is tensorpack 0.11's: either side may be tensorpack itself. Datapoints are pickled, a pickle can run any
code, and senders are not authenticated. So use it only within a private network; `tpk_zmq.RemoteDataZMQ` requires a
key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import zmq

from tpk.argument_checks import check_positive
from tpk.dataflow.base import check_iterable, reset_state
from tpk.errors import ConfigError, InputError
from tpk_tensorpack.dataflow.base import DataFlow
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.serialize import dumps, loads

__all__ = ["RemoteDataZMQ", "send_dataflow_zmq"]


def send_dataflow_zmq(df: Any, addr: str, hwm: int = 50, format: str | None = None, bind: bool = False) -> None:
    """Send a data flow repeatedly to a `RemoteDataZMQ`; it does not return.

    Args:
        df: the data flow.
        addr: ``"tcp://host:port"`` or ``"ipc:///path"``.
        hwm: the maximum number of datapoints that wait for the receiver.
        format: None.
        bind: whether to listen here for the receiver, instead of connecting to it.

    Raises:
        ConfigError: the address cannot be used, or `format` is not None.
        InputError: the data flow is empty.
    """
    check_iterable(df, "send_dataflow_zmq")
    if format is not None:
        raise CheckError(
            f"send_dataflow_zmq(format={format!r}): expected None. 'zmq_ops' is for an operation in C++ that builds "
            "for TensorFlow 1 only: send with format=None, and train with QueueInput(RemoteDataZMQ(...))"
        )
    context = zmq.Context()
    try:
        socket = _socket(context, zmq.PUSH, addr, hwm, bind)
        reset_state(df)
        logger.info("Sending a data flow to %s ...", addr)
        while True:
            count = 0
            for datapoint in df:
                count += 1
                socket.send(dumps(datapoint), copy=False)
            if not count:
                raise InputError(f"send_dataflow_zmq: a pass of {type(df).__name__} has no datapoint")
    finally:
        logger.info("Exiting send_dataflow_zmq ...")
        context.destroy(linger=0)


class RemoteDataZMQ(DataFlow):
    """Receives the datapoints that `send_dataflow_zmq` sends from other processes. It never ends.

    Args:
        addr1: the address to receive from: ``"tcp://*:port"``, ``"ipc:///path"``.
        addr2: a second address, for example of another protocol.
        hwm: the maximum number of waiting datapoints per address.
        bind: whether to listen here for senders, instead of connecting to one.

    Attributes:
        cnt1: the number of datapoints received from `addr1`.
        cnt2: the number received from `addr2`.

    Raises:
        ConfigError: (when iterating) an address cannot be used.
        InputError: (when iterating) a message is not a datapoint.
    """

    refills_arrays = False

    def __init__(self, addr1: str, addr2: str | None = None, hwm: int = 50, bind: bool = True) -> None:
        check_positive(self, hwm=hwm)
        if not addr1:
            raise CheckError("RemoteDataZMQ takes an address, such as 'tcp://*:8877'")
        self._addr1, self._addr2 = addr1, addr2
        self._hwm, self._bind = hwm, bind
        self.cnt1 = self.cnt2 = 0

    def reset_state(self) -> None:
        """Reset the counters."""
        self.cnt1 = self.cnt2 = 0

    def __iter__(self) -> Iterator[Any]:
        context = zmq.Context()
        try:
            poller, sockets = zmq.Poller(), {}
            for number, address in enumerate((self._addr1, self._addr2), 1):
                if address:
                    socket = _socket(context, zmq.PULL, address, self._hwm, self._bind)
                    poller.register(socket, zmq.POLLIN)
                    sockets[socket] = number
            while True:
                for socket, _ in poller.poll():
                    received = socket.recv(copy=False).bytes
                    if sockets[socket] == 1:
                        self.cnt1 += 1
                    else:
                        self.cnt2 += 1
                    yield _datapoint(received)
        finally:
            context.destroy(linger=0)


def _datapoint(received: bytes) -> Any:
    try:
        return loads(received)
    except Exception as error:  # pickle can raise anything for invalid bytes
        raise InputError(
            f"RemoteDataZMQ got {len(received)} bytes that send_dataflow_zmq did not send ({error}). Does the "
            "sender use the same TENSORPACK_SERIALIZE?"
        ) from error


def _socket(context: Any, kind: int, address: str, hwm: int, bind: bool) -> Any:
    socket = context.socket(kind)
    socket.set_hwm(hwm)
    try:
        (socket.bind if bind else socket.connect)(address)
    except zmq.ZMQError as error:
        raise ConfigError(f"the address {address} cannot be used: {error}") from error
    return socket
