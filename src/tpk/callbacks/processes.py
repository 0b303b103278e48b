"""Processes and threads of the user's that live as long as a training: simulators, evaluators."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import string
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.process import BaseProcess
from typing import IO, TYPE_CHECKING, Any

import tensorflow as tf

from tpk.errors import ConfigError, TrainerStateError
from tpk.input_source.hang_watcher import ends_in_time
from tpk.plugin import Callback, hookimpl
from tpk.plugin.creation import also_spelled

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

_OURS_TO_STOP = "all are stopped when the training ends. Start yourself what is to live longer."


@also_spelled(stop_at_last=_OURS_TO_STOP)
class StartProcOrThread(Callback):
    """Starts processes and threads before the first step, and stops them when the training ends, however it ends.

    A process is told to end (SIGTERM), and killed if it has not done so in `stop_timeout`. A thread must have a method
    ``stop()``, which lets its ``run()`` return; one that does not return in `stop_timeout` is a warning that shows
    where it is. Processes ignore Ctrl-C, which a terminal sends to all processes alike: the training decides when they
    end. (If the training itself is killed, by SIGKILL, nobody stops them; let them look at `os.getppid`.) One that ends
    before is told of in the log, at the end of that epoch.

    When it runs: once before the first step, once after the last one, and a look at each of them at the end of an
    epoch. It works on every strategy; each process of a training starts its own.

    Args:
        startable: processes (`multiprocessing`, started by ``spawn`` or ``forkserver``) and threads, none of which was
            started before; or one of them.
        stop_timeout: how many seconds all of them together have to end.

    Raises:
        ConfigError: if one of them is something else, a thread has no ``stop()``, or a process would be forked: a fork
            of a process that has TensorFlow's threads may hang at any time.
        TrainerStateError: when the training begins, if one of them was started before.

    Example:
        ```python
        class Evaluator(threading.Thread):
            def __init__(self):
                super().__init__()
                self.stopped = threading.Event()

            def run(self):
                while not self.stopped.wait(60):
                    evaluate()

            def stop(self):
                self.stopped.set()

        spawn = multiprocessing.get_context("spawn")
        callbacks=[tpk.StartProcOrThread([Evaluator(), spawn.Process(target=simulate)])]
        ```
    """

    chief_only = False

    def __init__(self, startable: Any, stop_timeout: float = 10.0) -> None:
        if not stop_timeout > 0:
            raise ConfigError(f"StartProcOrThread(stop_timeout={stop_timeout!r}): expected a positive number.")
        given = startable if isinstance(startable, list | tuple) else [startable]
        for each in given:
            _check(each)
        self._all: Sequence[Any] = tuple(given)
        self._stop_timeout = stop_timeout
        self._started: list[Any] = []

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Start them.

        Raises:
            TrainerStateError: if one was started before.
        """
        for each in self._all:
            if (each.pid if isinstance(each, BaseProcess) else each.ident) is not None:
                raise TrainerStateError(
                    f"StartProcOrThread: {each.name!r} was started before, and nothing starts twice. Make a new one, "
                    "and leave the start to the training."
                )
            with _interrupts_ignored() if isinstance(each, BaseProcess) else nullcontext():
                each.start()
            self._started.append(each)
        logger.info("started: %s", ", ".join(each.name for each in self._all) or "nothing")

    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Tell of those that have ended."""
        for each in [each for each in self._started if not each.is_alive()]:
            self._started.remove(each)
            code = each.exitcode if isinstance(each, BaseProcess) else 0
            level = logging.ERROR if code else logging.INFO
            logger.log(level, "%r has ended before the training%s", each.name, f", with exit code {code}" * bool(code))

    # Last, since what others do at the end may need them.
    @hookimpl(trylast=True)
    def after_train(self, trainer: TrainerProtocol) -> None:
        """Stop them."""
        started, self._started = self._started, []
        for each in started:
            (each.terminate if isinstance(each, BaseProcess) else each.stop)()
        deadline = time.monotonic() + self._stop_timeout
        for each in started:
            left = max(deadline - time.monotonic(), 0.0)
            if isinstance(each, BaseProcess):
                _end(each, left)
            else:
                ends_in_time(each, left, f"the thread {each.name!r} has not ended when its stop() was called")


class ShareSessionThread(threading.Thread):
    """Runs a thread with the session and the graph of a training as the default ones.

    Each thread has defaults of its own, so without this ``tf.compat.v1.get_default_session()`` is None in it. The
    session and graph are those that are the default where it is started; `StartProcOrThread` starts it where that is so
    (as would any callback in ``before_train``). What it runs triggers no hook, and the graph is complete: build what it
    runs before.

    It costs nothing in steps, but what it computes takes its part of the devices. It works on every strategy.

    Args:
        thread: what is run, by its ``run()``; it is stopped by its ``stop()``.

    Raises:
        ConfigError: if `thread` is none, or one that was started itself.
        TrainerStateError: in `start`, if there is no default session.

    Example:
        ```python
        callbacks=[tpk.StartProcOrThread(tpk.ShareSessionThread(Evaluator()))]
        ```
    """

    def __init__(self, thread: threading.Thread) -> None:
        if not isinstance(thread, threading.Thread) or thread.ident is not None:
            raise ConfigError(f"ShareSessionThread({thread!r}): expected a threading.Thread that was not started.")
        super().__init__(name=thread.name, daemon=thread.daemon)
        self._thread = thread
        self._session: Any = None
        if hasattr(thread, "stop"):
            self.stop: Callable[[], Any] = thread.stop

    def start(self) -> None:
        """Start it, with the defaults of the caller.

        Raises:
            TrainerStateError: if there is no default session.
        """
        self._session = tf.compat.v1.get_default_session()
        if self._session is None:
            raise TrainerStateError(
                f"ShareSessionThread: {self.name!r} is started where there is no default session. Leave the start to "
                "tpk.StartProcOrThread, or start it in a before_train."
            )
        super().start()

    def run(self) -> None:
        """Run the thread that was given."""
        with self._session.graph.as_default(), self._session.as_default():
            self._thread.run()


def _check(startable: Any) -> None:
    if isinstance(startable, BaseProcess):
        method = getattr(startable, "_start_method", None) or multiprocessing.get_start_method()
        if method == "fork":
            raise ConfigError(
                f"StartProcOrThread: {startable.name!r} would be a fork of a process with TensorFlow's threads, which "
                "may hang at any time. Make it by multiprocessing.get_context('spawn').Process(...), or derive its "
                "class from that."
            )
        return
    if not isinstance(startable, threading.Thread):
        raise ConfigError(f"StartProcOrThread: {startable!r} is neither a process of multiprocessing nor a thread.")
    if not callable(getattr(startable, "stop", None)):
        raise ConfigError(
            f"StartProcOrThread: the thread {startable.name!r} has no stop(), so nobody could end it with the training."
            " Give its class a method stop() that lets run() return."
        )


def _end(process: BaseProcess, timeout: float) -> None:
    process.join(timeout)
    if process.is_alive():
        logger.warning("%r has not ended when it was told to, and is killed", process.name)
        process.kill()
        process.join()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Within the context, SIGINT is ignored, which a process that is started inherits; if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


_OWN_NAMES = ("epoch_num", "global_step")
_SHOWN_OF_OUTPUT = 1000


class SendStat(Callback):
    """Runs a command of the shell with the latest values of statistics in it, at the end of each epoch.

    What goes wrong does not stop the training: a command that fails is logged with what it has written, one that takes
    longer than `timeout` is killed with all that it has started, and one for which there is no value yet is not run;
    that is said once.

    When it runs: at the end of each epoch, or when `PeriodicTrigger` says, after all that may report statistics. The
    training waits for the command, so append ``&`` where that is too long. It costs nothing in steps. It works on every
    strategy, in the chief.

    Args:
        command: for the shell, with names of statistics in braces, formatted as by `str.format`; ``{epoch_num}`` and
            ``{global_step}`` are there, too. A brace itself is written twice.
        names: the statistics; by default those that the command mentions.
        timeout: how many seconds a command may take.

    Raises:
        ConfigError: if the command is no text, its braces make no sense, it mentions no statistic or one that is not in
            `names`, or `timeout` is not positive.

    Example:
        ```python
        tpk.SendStat("curl -sS -d 'epoch {epoch_num}: error {validation_error:.2%}' https://ntfy.sh/my-runs")
        ```
    """

    def __init__(self, command: str, names: str | Sequence[str] | None = None, timeout: float = 60.0) -> None:
        mentioned = _names_in(command)
        known = mentioned if names is None else [names] if isinstance(names, str) else list(names)
        unknown = [name for name in mentioned if name not in (*known, *_OWN_NAMES)]
        if unknown:
            raise ConfigError(
                f"SendStat({command!r}): it mentions {', '.join(unknown)}, which is not among names={known}. Add it, "
                "or leave names out."
            )
        self._names = [name for name in known if name not in _OWN_NAMES]
        if not self._names:
            raise ConfigError(
                f"SendStat({command!r}): it mentions no statistic. Write the name of one in braces, such as "
                "'echo {validation_error}'."
            )
        if not timeout > 0:
            raise ConfigError(f"SendStat(timeout={timeout!r}): expected a positive number of seconds.")
        self._command = command
        self._timeout = timeout
        self._has_told_of_missing = False

    @hookimpl(trylast=True)
    def trigger(self, trainer: TrainerProtocol) -> None:
        """Run the command."""
        monitors = trainer.monitors
        missing = [name for name in self._names if name not in monitors.names]
        if not missing:
            values = {name: monitors.get_latest(name) for name in self._names}
            own = {name: getattr(self, name) for name in _OWN_NAMES}
            self._run(_Formatter().vformat(self._command, (), {**own, **values}))
        elif not self._has_told_of_missing:
            self._has_told_of_missing = True
            logger.warning(
                "SendStat sends nothing: %s was not reported yet. There is %s.",
                ", ".join(missing),
                ", ".join(monitors.names) or "nothing",
            )

    def _run(self, command: str) -> None:
        # A file and not a pipe, which whatever the command leaves behind would keep open.
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # So that it is killed with all that it has started.
            )
            try:
                code: int | None = process.wait(self._timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _kill(process)
            said = _end_of(output)
        if code is None:
            logger.error("SendStat: %r took longer than %g s, and was killed%s", command, self._timeout, said)
        elif code:
            logger.error("SendStat: %r failed with exit code %d%s", command, code, said)


def _names_in(command: Any) -> list[str]:
    if not isinstance(command, str):
        raise ConfigError(f"SendStat({command!r}): expected a command as text.")
    with _explaining_format(command):
        fields = [field for _, field, _, _ in string.Formatter().parse(command) if field is not None]
    if "" in fields:
        raise ConfigError(f"SendStat({command!r}): an empty pair of braces names no statistic.")
    with _explaining_format(command):
        _Formatter().vformat(command, (), {**dict.fromkeys(fields, 0.5), **dict.fromkeys(_OWN_NAMES, 1)})
    return list(dict.fromkeys(fields))


@contextmanager
def _explaining_format(command: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ConfigError(
            f"SendStat({command!r}): it is formatted as by str.format, which says: {error}. Write a brace itself twice."
        ) from error


class _Formatter(string.Formatter):
    """Takes the whole of a field as a name: those of statistics may have dots in them."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        return kwargs[field_name], field_name


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that has not ended, and all that it has started."""
    if process.poll() is not None:
        return
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _end_of(output: IO[bytes]) -> str:
    """Return the last part of what a command has written, for a message."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(size - _SHOWN_OF_OUTPUT, 0))
    text = output.read().decode(errors="replace").strip()
    return f": {text}" if text else ""
