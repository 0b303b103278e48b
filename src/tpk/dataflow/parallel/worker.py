"""What runs in a worker process.

It is started as a fresh interpreter that imports neither the user's main module (which cloudpickle makes unnecessary)
nor TensorFlow, unless the user's functions do.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress

import attrs
import cloudpickle

from tpk.dataflow.parallel.receiver import Receiver
from tpk.dataflow.parallel.sender import Sender
from tpk.dataflow.parallel.wire import LinkClosed

LENGTH = struct.Struct("<Q")
"""Before the pickled job on the socket: its bytes."""

_GRACE = 2.0
"""Seconds that the user's code has to end by itself when the parent is gone."""


@attrs.frozen
class Job:
    """What a worker is to do.

    Attributes:
        work: called with the sender of results and the receiver of tasks; may be a lambda or closure.
        num_prefetch: how many results to be ahead; None for what fits.
    """

    work: Callable[[Sender, Receiver], None]
    num_prefetch: int | None


def main(results: int, results_side: int, tasks: int, tasks_side: int, stacks: int, parent: int) -> None:
    """Do the job that comes over a socket, until it is done or the parent is gone.

    Args:
        results: descriptor of the socket over which results go, and over which the job comes.
        results_side: of the one for their blocks.
        tasks: of the socket over which tasks come.
        tasks_side: of the one for their blocks.
        stacks: of a file that takes the stacks of all threads, on SIGUSR1 or when the process crashes.
        parent: the process id of the parent.
    """
    _prepare_signals(stacks)
    sockets = [socket.socket(fileno=descriptor) for descriptor in (results, results_side, tasks, tasks_side)]
    over = threading.Event()
    threading.Thread(target=_end_with_parent, args=(sockets[1], parent, over), daemon=True).start()
    sender = Sender(sockets[0], sockets[1])
    try:
        job = pickle.loads(_receive_exactly(sockets[0]))
        sender = Sender(sockets[0], sockets[1], job.num_prefetch)
        logging.getLogger("tpk").addHandler(_ToParent(sender))
        logging.getLogger("tpk").setLevel(logging.INFO)
        job.work(sender, Receiver(sockets[2], sockets[3]))
    except LinkClosed:
        pass  # The parent wants no more.
    except BaseException as error:
        with suppress(LinkClosed):
            sender.send_error(_describe(error))
    finally:
        gc.collect()  # Generators of the user close what they opened.
        over.set()


def _prepare_signals(stacks: int) -> None:
    # The parent decides when the workers end: what a terminal or a scheduler sends goes to all processes alike.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks)
    os.write(stacks, b"\n")  # The parent sees that it may send the signal now.


def _end_with_parent(side: socket.socket, parent: int, over: threading.Event) -> None:
    """End this process when the parent is gone, even if the user's code is at something that takes long."""
    # The parent sends nothing here, so there is something to read only when it has closed its end.
    while os.getppid() == parent and not select.select([side], [], [], 1.0)[0]:
        pass
    if not over.wait(_GRACE):
        os._exit(1)


def _receive_exactly(connection: socket.socket) -> bytes:
    (length,) = LENGTH.unpack(_read(connection, LENGTH.size))
    return _read(connection, length)


def _read(connection: socket.socket, length: int) -> bytes:
    data = bytearray(length)
    view, place = memoryview(data), 0
    while place < length:
        received = connection.recv_into(view[place:])
        if not received:
            raise LinkClosed("the parent is gone")
        place += received
    return bytes(data)


def _describe(error: BaseException) -> bytes:
    """Return the error with its traceback as text and a summary, pickled; without the error if that cannot be."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    summary = traceback.format_exception_only(type(error), error)[0].strip()  # after which come its notes
    try:
        payload: bytes = cloudpickle.dumps((error, text, summary))
        pickle.loads(payload)  # Some can be pickled, and not be unpickled.
    except Exception:
        return pickle.dumps((None, text, summary))
    return payload


class _ToParent(logging.Handler):
    """Hands log records of the main thread on to the parent, where the log is."""

    def __init__(self, sender: Sender) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        if record.threadName != "MainThread":
            sys.stderr.write(self.format(record) + "\n")
            return
        self._sender.send_log((record.name, record.levelno, record.getMessage()))
