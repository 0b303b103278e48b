"""The parent's side of a worker process."""

from __future__ import annotations

import functools
import io
import logging
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from multiprocessing import spawn
from typing import Any

import cloudpickle

from tpk.dataflow.parallel.blocks import BlockFile, create_file
from tpk.dataflow.parallel.link import LinkClosed, Receiver, RemoteFailure, Sender
from tpk.dataflow.parallel.worker_main import Job
from tpk.errors import ConfigError, InputError

logger = logging.getLogger(__name__)


_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

_KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 26), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
"""Has glibc keep the memory of a datapoint for the next one. To get it from the system again, page by page and zeroed,
takes about as long as to write it. glibc sets this itself once a process has freed a large array."""

_GRACE = 5.0
"""Seconds that a worker has to end when it is told to; then it is killed."""

_MOST_STACKS = 1 << 20
"""The most bytes of stacks to show at a time."""


class RemoteTraceback(Exception):
    """The traceback of an error in a worker process, as the cause of the same error here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class WorkerProcess:
    """Starts a worker process and talks to it.

    Args:
        name: its name in messages, such as ``"worker 1 of 2 of MultiProcessRunner"``.
        work: called in the worker with a `Sender` and a `Receiver`. It is sent there by cloudpickle.
        num_prefetch: number of results that it may be ahead; None for `AHEAD_BYTES`.
        warn_after: seconds without a result until a warning shows the worker's stack.
        worker_init: ``"module:function"`` that the worker calls before it unpickles `work`; see `check_worker_init`.

    Attributes:
        owner: the process that started it. A fork of that process must not touch it.
        tasks: sends to the worker.
        results: receives from it.

    Raises:
        ConfigError: `work` cannot be pickled, or the platform has no Unix sockets.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sender, Receiver], None],
        num_prefetch: int | None,
        warn_after: float,
        worker_init: str | None = None,
    ) -> None:
        self.name = name
        self.owner = os.getpid()
        self._warn_after = self._next_warning = warn_after
        job = _pickle_job(name, Job(work, num_prefetch))
        results, results_there = _socket_pair()
        tasks, tasks_there = _socket_pair()
        self._sockets = [results, tasks]
        results_file, tasks_file = create_file(), create_file()
        results_blocks, tasks_blocks = BlockFile(results_file), BlockFile(tasks_file)
        self._stacks: Any = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._stacks_read = 0
        there = [results_there, tasks_there]
        descriptors = [*(each.fileno() for each in there), results_file, tasks_file, self._stacks.fileno()]
        try:
            self._process = subprocess.Popen(
                _command_line([*descriptors, self.owner], worker_init),
                stdin=subprocess.PIPE,
                pass_fds=descriptors,
                env={**_KEEP_FREED_MEMORY, **os.environ},
                start_new_session=True,  # A terminal's Ctrl-C is for the parent alone.
            )
        finally:
            for each in there:
                each.close()
        self.stop = weakref.finalize(self, _stop, self._process, self._sockets, self._stacks, self.owner)
        self.tasks = Sender(tasks, tasks_blocks)
        self.results = Receiver(results, results_blocks, num_prefetch, _log_from(name))
        try:
            with self._process.stdin as job_there:  # type: ignore[union-attr]
                pickle.dump(job, job_there)
        except OSError:
            self._raise_death()
        results.settimeout(warn_after)

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return self._process.pid

    def fileno(self) -> int:
        """Return the descriptor that is readable when the worker has sent something, for `select`."""
        return self._sockets[0].fileno()

    def receive(self) -> Any:
        """Return the worker's next result, or `END_OF_PASS`.

        Raises:
            InputError: the worker died.
            Exception: an exception of the user's code there, with its traceback as the cause.
        """
        while True:
            try:
                item = self.results.receive()
            except TimeoutError:
                self._warn_of_silence()
            except LinkClosed:
                self._raise_death()
            except RemoteFailure as failure:
                self._raise(failure.payload)
            else:
                self._next_warning = self._warn_after
                return item

    def progress(self) -> tuple[Any, int]:
        """Return the last state from the worker, or None, and the number of items received since."""
        return self.results.state, self.results.items - self.results.state_items

    @property
    def has_room(self) -> bool:
        """Whether a task can be sent without blocking; True if the worker has ended."""
        try:
            return self.tasks.has_room
        except LinkClosed:
            return True

    def send(self, task: Any) -> None:
        """Send the worker a task. If the worker has ended, `receive` says why, after the results that it has sent."""
        with suppress(LinkClosed):
            self.tasks.send(task)

    def _raise(self, payload: bytes) -> None:
        error, text, summary = pickle.loads(payload)
        cause = RemoteTraceback(f"in {self.name}:\n{text}")
        # Some exceptions would end an iteration or this process here.
        if not isinstance(error, Exception) or isinstance(error, StopIteration):
            raise InputError(f"{self.name} failed: {summary}") from cause
        raise error from cause

    def _raise_death(self) -> None:
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            status = None
        raise InputError(f"{self.name} (process {self.pid}) died: {_reason(status)}{self._new_stacks()}") from None

    def _warn_of_silence(self) -> None:
        logger.warning(
            "%s (process %d) has delivered nothing for %g s; it is %s",
            self.name,
            self.pid,
            self._next_warning,
            self._ask_where_it_is(),
        )
        self._next_warning *= 2
        self._sockets[0].settimeout(self._next_warning)

    def _ask_where_it_is(self) -> str:
        self._new_stacks()
        if not self._stacks_read:  # Without its handler, the signal would kill it.
            return "still starting"
        os.kill(self.pid, signal.SIGUSR1)
        pause = threading.Event()
        for _ in range(50):
            pause.wait(0.02)
            if os.fstat(self._stacks.fileno()).st_size > self._stacks_read or self._process.poll() is not None:
                break
        pause.wait(0.02)
        return f"at{self._new_stacks() or ' an unknown place'}"

    def _new_stacks(self) -> str:
        """Return the stacks that the worker has written since the last call."""
        # Both processes share the position of the file, which must stay at its end.
        content = os.pread(self._stacks.fileno(), _MOST_STACKS, self._stacks_read)
        self._stacks_read += len(content)
        text = content.decode(errors="replace").strip()
        return f"\n{text}" if text else ""


def start_workers(
    owner: str,
    works: Sequence[Callable[[Sender, Receiver], None]],
    num_prefetch: int | None,
    warn_after: float,
    worker_init: str | None,
) -> list[WorkerProcess]:
    """Start a worker for each piece of work; if one cannot be started, end the others.

    Args:
        owner: the name of the flow, for messages.
        works: see `WorkerProcess`, as for the other arguments.
    """
    workers: list[WorkerProcess] = []
    try:
        for number, work in enumerate(works, 1):
            name = f"worker {number} of {len(works)} of {owner}"
            workers.append(WorkerProcess(name, work, num_prefetch, warn_after, worker_init))
    except BaseException:
        stop_all(workers)
        raise
    return workers


def check_worker_init(owner: object, worker_init: Any) -> None:
    """Check that `worker_init` has the form of a function's name; the worker looks it up.

    Raises:
        ConfigError: it does not.
    """
    if worker_init is None or (isinstance(worker_init, str) and _FUNCTION.fullmatch(worker_init)):
        return
    kind = type(owner).__name__
    raise ConfigError(
        f"{kind}(worker_init={worker_init!r}): expected the name of a function without arguments, "
        '"module:function". It is called before anything is unpickled, so put it into a separate module that can be '
        "imported."
    )


def stop_all(workers: Iterable[WorkerProcess]) -> None:
    """End workers, all at the same time, and wait for them; ignore workers that a forked parent started."""
    workers = [worker for worker in workers if worker.owner == os.getpid()]
    for worker in workers:
        _close(worker._sockets)
    for worker in workers:
        worker.stop()


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    if not hasattr(socket, "AF_UNIX") or not hasattr(socket, "send_fds"):
        raise ConfigError(
            f"worker processes need Unix sockets, which Python on {sys.platform} does not have. "
            "Use the flows with threads (MultiThreadMapData) instead."
        )
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def _pickle_job(name: str, job: Job) -> bytes:
    try:
        file = io.BytesIO()
        _JobPickler(file, protocol=5).dump(job)
    except Exception as error:
        raise ConfigError(
            f"the flow or function of {name} cannot be sent to another process: {type(error).__name__}: {error}. Open "
            "files and connections in reset_state(), which is called in the worker, and keep locks, generators and "
            "TensorFlow objects out of the flow and its functions."
        ) from error
    return file.getvalue()


_MEMOIZED = type(functools.lru_cache(print))


class _JobPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles memoized functions like other functions: by value if they belong to the script."""

    def reducer_override(self, obj: Any) -> Any:
        by_value = ("__main__", *cloudpickle.list_registry_pickle_by_value())
        if isinstance(obj, _MEMOIZED) and obj.__module__ in by_value:
            return _memoized, (obj.__wrapped__, obj.cache_parameters())
        return super().reducer_override(obj)


def _memoized(function: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    memoized: Callable[..., Any] = functools.lru_cache(**parameters)(function)
    return memoized


def _command_line(arguments: list[int], worker_init: str | None) -> list[str]:
    # The worker gets this process's path before it imports anything, so it can import the same modules.
    path = [entry for entry in sys.path if isinstance(entry, str)]
    code = (
        f"import sys; sys.path[:] = {path!r}; from tpk.dataflow.parallel.worker_main import main; "
        f"main({', '.join(map(str, arguments))}, worker_init={worker_init!r})"
    )
    executable = spawn.get_executable()
    return [os.fsdecode(executable or sys.executable), *subprocess._args_from_interpreter_flags(), "-c", code]  # type: ignore[attr-defined]


def _log_from(name: str) -> Callable[[Any], None]:
    def log(record: tuple[str, int, str]) -> None:
        source, level, message = record
        logging.getLogger(source).log(level, "%s: %s", name, message)

    return log


def _reason(status: int | None) -> str:
    if status is None:
        return "it closed its connection"
    if status >= 0:
        return f"it exited with status {status}"
    reason = f"killed by signal {-status} ({signal.Signals(-status).name})"
    if -status == signal.SIGKILL:
        reason += "; unless somebody did that, the machine or container ran out of memory"
    return reason


def _close(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        # Closing is not enough: a process forked from this one may have the sockets, too.
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


def _stop(process: Any, sockets: list[socket.socket], stacks: Any, owner: int) -> None:
    if os.getpid() != owner:  # a fork of the owner
        return
    _close(sockets)
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    stacks.close()
