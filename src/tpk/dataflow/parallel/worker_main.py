"""Main function of a worker process.

The process is a fresh interpreter. It does not import the user's main module, because cloudpickle does not need it, and
imports TensorFlow only if the user's functions do.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import pickle
import pkgutil
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress

import attrs
import cloudpickle

from tpk.dataflow.parallel.blocks import BlockFile
from tpk.dataflow.parallel.link import LinkClosed, Receiver, Sender
from tpk.errors import ConfigError, add_note

_GRACE = 2.0
"""Seconds that the user's code has to end by itself when the parent has closed the connection."""


@attrs.frozen
class Job:
    """The job of a worker.

    Attributes:
        work: called with the sender of results and the receiver of tasks; may be a lambda or closure.
        num_prefetch: number of results that it may be ahead; None for `AHEAD_BYTES`.
    """

    work: Callable[[Sender, Receiver], None]
    num_prefetch: int | None


def main(
    results: int,
    tasks: int,
    results_file: int,
    tasks_file: int,
    stacks: int,
    parent: int,
    worker_init: str | None = None,
) -> None:
    """Do the job that comes through standard input, until it is done or the parent is gone.

    Args:
        results: descriptor of the socket for results.
        tasks: descriptor of the socket for tasks.
        results_file: descriptor of the file for the blocks of results.
        tasks_file: descriptor of the file for the blocks of tasks.
        stacks: descriptor of a file for the stacks of all threads, on SIGUSR1 or when the process crashes.
        parent: the process id of the parent.
        worker_init: ``"module:function"`` that is called before the user's objects are unpickled; likewise the function
            that ``TPK_WORKER_INIT`` names, which comes first.
    """
    _prepare_signals(stacks)
    results_socket, tasks_socket = socket.socket(fileno=results), socket.socket(fileno=tasks)
    results_blocks = BlockFile(results_file)
    over = threading.Event()
    threading.Thread(target=_end_with_parent, args=(results_socket, parent, over), daemon=True).start()
    sender = Sender(results_socket, results_blocks)
    try:
        pickled = pickle.load(sys.stdin.buffer)
        for target in filter(None, [os.environ.get("TPK_WORKER_INIT"), worker_init]):
            _call_worker_init(target)
        job = pickle.loads(pickled)
        sender = Sender(results_socket, results_blocks, job.num_prefetch)
        logging.getLogger("tpk").addHandler(_ToParent(sender))
        logging.getLogger("tpk").setLevel(logging.INFO)
        job.work(sender, Receiver(tasks_socket, BlockFile(tasks_file)))
    except LinkClosed:
        pass  # The parent has closed the connection.
    except BaseException as error:
        with suppress(LinkClosed):
            sender.send_error(_describe(error))
    finally:
        gc.collect()  # to close the user's generators
        over.set()


def _call_worker_init(target: str) -> None:
    try:
        function = pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"worker_init={target!r} cannot be imported in the worker process: {type(error).__name__}: {error}. Name a "
            'function "module:function" of a module that can be imported; the main script cannot.'
        ) from error
    try:
        function()
    except BaseException as error:
        add_note(error, f"raised by worker_init={target!r} at the start of a worker process")
        raise


def _prepare_signals(stacks: int) -> None:
    # Terminals and schedulers signal all processes; the parent decides when the workers end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks)
    os.write(stacks, b"\n")  # From now on the parent may send the signal.


def _end_with_parent(connection: socket.socket, parent: int, over: threading.Event) -> None:
    """End this process when the parent dies or closes the connection, even if the user's code takes long.

    The connection stays open if a fork of the parent lives on.
    """
    closed = select.poll()
    closed.register(connection, select.POLLHUP)
    while os.getppid() == parent and not closed.poll(1000):
        pass
    if not over.wait(_GRACE):
        os._exit(1)


def _describe(error: BaseException) -> bytes:
    """Return the pickled error, its traceback as text and a summary; without the error if it cannot be pickled."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    summary = traceback.format_exception_only(type(error), error)[0].strip()  # after which come its notes
    try:
        payload: bytes = cloudpickle.dumps((error, text, summary))
        pickle.loads(payload)  # Some errors can be pickled but not unpickled.
    except Exception:
        return pickle.dumps((None, text, summary))
    return payload


class _ToParent(logging.Handler):
    """Sends log records of the main thread to the parent."""

    def __init__(self, sender: Sender) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        if record.threadName != "MainThread":
            sys.stderr.write(self.format(record) + "\n")
            return
        self._sender.send_log((record.name, record.levelno, record.getMessage()))
