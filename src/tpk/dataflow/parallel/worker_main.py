"""Main function of a worker process.

It is started as a fresh interpreter that imports neither the user's main module (which cloudpickle makes unnecessary)
nor TensorFlow, unless the user's functions do.
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

if sys.platform != "win32":  # where there are no workers, but this module is imported all the same
    import fcntl

_GRACE = 2.0
"""Seconds that the user's code has to end by itself when the parent wants no more."""


@attrs.frozen
class Job:
    """What a worker is to do.

    Attributes:
        work: called with the sender of results and the receiver of tasks; may be a lambda or closure.
        num_prefetch: how many results to be ahead; None for what fits.
    """

    work: Callable[[Sender, Receiver], None]
    num_prefetch: int | None


def main(
    results: int,
    tasks: int,
    lifeline: int,
    results_file: int,
    tasks_file: int,
    stacks: int,
    parent: int,
    worker_init: str | None = None,
) -> None:
    """Do the job that comes through standard input, until it is done or the parent is gone.

    Args:
        results: descriptor of the socket over which results go.
        tasks: of the socket over which tasks come.
        lifeline: of a socket whose other end the parent has as long as it lives and has not waited for this process.
        results_file: of the file for the blocks of results.
        tasks_file: of the one for those of tasks.
        stacks: of a file that takes the stacks of all threads, on SIGUSR1 or when the process crashes.
        parent: the process id of the parent.
        worker_init: ``"module:function"`` of what is called before anything of the user's is unpickled.
    """
    _prepare_signals(stacks)
    _die_with_parent(lifeline, parent)
    results_socket, tasks_socket = socket.socket(fileno=results), socket.socket(fileno=tasks)
    results_blocks = BlockFile(results_file)
    over = threading.Event()
    threading.Thread(target=_end_with_parent, args=(results_socket, parent, over), daemon=True).start()
    sender = Sender(results_socket, results_blocks)
    try:
        pickled = pickle.load(sys.stdin.buffer)
        if worker_init is not None:
            _call_worker_init(worker_init)
        job = pickle.loads(pickled)
        sender = Sender(results_socket, results_blocks, job.num_prefetch)
        logging.getLogger("tpk").addHandler(_ToParent(sender))
        logging.getLogger("tpk").setLevel(logging.INFO)
        job.work(sender, Receiver(tasks_socket, BlockFile(tasks_file)))
    except LinkClosed:
        pass  # The parent wants no more.
    except BaseException as error:
        with suppress(LinkClosed):
            sender.send_error(_describe(error))
    finally:
        gc.collect()  # Generators of the user close what they opened.
        over.set()


def _call_worker_init(target: str) -> None:
    try:
        function = pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"worker_init={target!r} is not there in the worker process: {type(error).__name__}: {error}. Name a "
            'function "module:function" of a module that can be imported; the main script cannot.'
        ) from error
    try:
        function()
    except BaseException as error:
        add_note(error, f"raised by worker_init={target!r}, which begins a worker process")
        raise


def _prepare_signals(stacks: int) -> None:
    # The parent decides when the workers end: what a terminal or a scheduler sends goes to all processes alike.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks)
    os.write(stacks, b"\n")  # The parent sees that it may send the signal now.


def _die_with_parent(lifeline: int, parent: int) -> None:
    """Have the kernel kill this process when the parent is gone, where it can (Linux).

    No thread could do so while the user's code keeps Python's lock. That the parent dies is not the signal
    (`PR_SET_PDEATHSIG`): it would come when the thread ends that has started this process.
    """
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        # Nothing is ever sent here, so that all that can happen is the closing of the other end.
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if os.getppid() != parent:
        os._exit(1)


def _end_with_parent(connection: socket.socket, parent: int, over: threading.Event) -> None:
    """End this process when the parent wants no more, even if the user's code is at something that takes long."""
    closed = select.poll()
    closed.register(connection, select.POLLHUP)
    while os.getppid() == parent and not closed.poll(1000):
        pass
    if not over.wait(_GRACE):
        os._exit(1)


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
