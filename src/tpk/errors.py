"""The errors of tpk.

Every error that tpk raises on purpose is a `TpkError` and also the matching built-in type, so both
``except tpk.TpkError`` and ``except ValueError`` work. A message says what happened, to which object, what was
expected, and what to do about it.
"""

from __future__ import annotations

import functools
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import ParamSpec, TypeVar

__all__ = [
    "CheckpointError",
    "ConfigError",
    "HangError",
    "HookError",
    "InputError",
    "MismatchError",
    "NonFiniteError",
    "PeerError",
    "PluginError",
    "PluginImportError",
    "Preempted",
    "SessionError",
    "StopTraining",
    "TowerError",
    "TpkError",
    "TrainerStateError",
    "UnknownOptionError",
    "UnknownPluginError",
    "UnknownScalarError",
]


P = ParamSpec("P")
R = TypeVar("R")


class TpkError(Exception):
    """Base of all errors that tpk raises on purpose.

    Cure:
        Read the first line of the message: it names the object, what was expected, and what to write. ``except
        tpk.TpkError`` catches all errors of this list.
    """


class ConfigError(TpkError, ValueError):
    """An option of a run has an invalid value, or two options cannot be combined.

    Cure:
        Change the option that the message names. ``help()`` of the class or function lists the options with their
        defaults; a run file has the options of `TrainConfig`.
    """


class TrainerStateError(TpkError, RuntimeError):
    """A trainer was used in a wrong phase, for example to train twice.

    Cure:
        Move the call to the phase that the message names. Create ops in ``with self.graph.as_default():`` or in
        `setup_graph`; values are available from `before_train` on. Create another trainer to train again.
    """


class PluginError(TpkError, ValueError):
    """A plugin cannot be used: its type, its hooks or its name is wrong.

    Cure:
        Pass an instance, a class, a name of ``tpk plugins``, ``"module:attr"``, or ``tpk.use(name, **options)``.
        ``tpk plugins show NAME`` lists the options, and ``tpk plugins --check`` finds mistakes in installed plugins.
    """


class UnknownPluginError(PluginError, LookupError):
    """No plugin has this name; the message lists the nearest and the known ones.

    Cure:
        Correct the spelling, or install the package of the plugin in the same environment: ``tpk plugins`` lists
        what is installed.
    """


class PluginImportError(PluginError, ImportError):
    """A plugin that was named could not be imported; the cause is chained.

    Cure:
        Fix the chained error: usually a missing package, which ``pip install`` installs. ``python -c "import
        module"`` shows the error alone.
    """


class UnknownOptionError(ConfigError, TypeError):
    """An argument has a name from another framework; the message says what to write.

    Cure:
        Use the argument that the message names instead.
    """


class HookError(PluginError, TypeError):
    """A hook implementation does not fit its specification (name, arguments, options).

    Cure:
        Give the method the name and the arguments of a hook; `tpk.Callback` has all of them. If the method is not
        meant to be a hook, begin its name with an underscore.
    """


class UnknownScalarError(TpkError, KeyError):
    """No scalar with this name has been reported; the message lists the nearest and the known names.

    Cure:
        Use one of the names in the message. Statistics of an evaluation exist after its first run, at the end of
        the first epoch.
    """

    __str__ = Exception.__str__  # KeyError's shows the message in quotes, with escapes


class InputError(TpkError, ValueError):
    """Data does not fit the input signature, or the source of the data failed.

    Cure:
        Look at one datapoint with ``next(iter(flow))`` or `PrintData`, and compare it with ``inputs()`` of the
        model: the number and order of components, their dtypes, and the batch as the first dimension. If the source
        failed, its error is chained.
    """


class TowerError(TpkError, ValueError):
    """A tower function broke one of the rules of tower functions, or a tower does not have the requested tensor.

    Cure:
        Fix the line of the tower function that the message names: use TensorFlow's ops instead of Python's on
        values, and create variables with `tpk.layers` or ``tf.compat.v1.get_variable``, so that towers share them.
    """


class SessionError(TpkError, RuntimeError):
    """A session was run with requests that contradict each other, or cannot be created as asked.

    Cure:
        Fetch and feed tensors of the trainer's own graph, and feed each in one plugin only. Let tpk create and close
        the session.
    """


class CheckpointError(TpkError, ValueError):
    """A checkpoint is missing, incomplete, or does not match the graph.

    Cure:
        ``tpk checkpoint ls RUN --verify`` and ``tpk checkpoint show RUN`` show what exists. To load a part of the
        weights of another model, use `SmartInit` with ``ignore_mismatch=True`` or with names to ignore.
    """


class NonFiniteError(TpkError, FloatingPointError):
    """A tensor or variable contains NaN or infinity where only finite values are allowed.

    Cure:
        Find the op with `CheckNumerics`. Lower or warm up the learning rate, clip the gradients, add a small number
        before ``log``, ``sqrt`` and ``/``, and look for NaN in the data.

    Attributes:
        tensors: the names of the tensors or variables.
        epoch_num: the current epoch.
        local_step: the step of the epoch, from 0.
        global_step: the number of steps completed before.
        checkpoint: the path of the last good checkpoint, or None.
        datapoints: the numbers of the datapoints of the step, from 0 over all passes (in a multi-process run, within
            the share of this process); empty if unknown.
    """

    tensors: tuple[str, ...] = ()
    epoch_num: int = 0
    local_step: int = 0
    global_step: int = 0
    checkpoint: str | None = None
    datapoints: range = range(0)


class HangError(TpkError, TimeoutError):
    """A training run made no progress within its timeout.

    Cure:
        Read the stacks in the message: the last line of each is where the thread waits. Usually it waits for data or
        for a process that has died. If a step can take that long, set a longer timeout.
    """


class PeerError(TpkError, ConnectionError):
    """Another process of the run has died, does not answer in time, or is at another point of the program.

    Cure:
        Read the log of the rank in the message, which failed first. Then start the same command again with
        ``resume="auto"``. If processes are slow to start, raise the strategy's option ``timeouts={"start": 600}``.
    """


class MismatchError(ConfigError):
    """The processes of a run differ in something on which they must agree; the message says which, and in what.

    Cure:
        Start all processes with the same code, versions, plugins and options. If only one process may do something,
        ask for ``trainer.is_chief`` inside a callback; do not give the processes different callbacks.
    """


class StopTraining(Exception):
    """Raised anywhere inside a run to end it cleanly.

    If a hook raises it, the same hook of the other plugins is still called (except for ``before_run``, before the
    step). A saver writes a checkpoint of the last step, ``after_train`` runs, the session and the workers are closed,
    and ``train()`` returns normally.

    Cure:
        Not needed: it ends a run early and cleanly. It reaches you only if it was raised outside a run.

    Example:
        ```python
        class StopWhenGood(tpk.Callback):
            def trigger_epoch(self, trainer):
                if trainer.monitors.get_latest("val-error") < 0.01:
                    raise tpk.StopTraining("validation error is below 1 %")
        ```
    """


class Preempted(SystemExit):
    """A signal such as SIGTERM ended the run; `train()` raises it after everything is saved and closed.

    If it is not caught, the process ends with the conventional status, 128 plus the number of the signal.

    Cure:
        Not needed: everything is saved. Start the same command again with ``resume="auto"``: on SLURM by ``scontrol
        requeue``, on Kubernetes by a ``restartPolicy``.

    Attributes:
        signum: the number of the signal.
        SIGNALS: the signals that ask a process to end. A second signal has its default effect.
    """

    SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1", "SIGINT") if hasattr(signal, name))

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signum

    @classmethod
    def by(cls, signum: int, message: str = "") -> BaseException:
        """Return the exception for a process that a signal ends: a `KeyboardInterrupt` for SIGINT."""
        return interruption(message) if signum == signal.SIGINT else cls(signum)


def interruption(message: str) -> KeyboardInterrupt:
    """Return the `KeyboardInterrupt` after Ctrl-C, with a message about what was saved and how to resume.

    A notebook shows that line instead of a traceback. It is not a subclass, because only `KeyboardInterrupt` itself
    makes Python end the process by the signal, as a shell expects.
    """
    error = KeyboardInterrupt(message)
    error._render_traceback_ = lambda: [f"KeyboardInterrupt: {message}"]  # type: ignore[attr-defined]  # IPython asks.
    return error


def short_tracebacks(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function by which errors leave tpk, so that their tracebacks are short; see `shorten`."""

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except (TpkError, KeyboardInterrupt) as error:
            shorten(error)
            raise error

    return call


def shorten(error: BaseException) -> None:
    """Leave out frames that would hide the message of a `TpkError`, or of a `KeyboardInterrupt` that has one.

    These are the frames of tpk and of the libraries through which it calls the user's code. Its causes stay as they
    are. In any other error, each frame may be the one to look at. With ``TPK_TRACEBACK=1``, all are kept.
    """
    if not keeps_tracebacks() and (isinstance(error, TpkError) or error.args):
        error.__traceback__ = _without_hidden(error.__traceback__)


def keeps_tracebacks() -> bool:
    """Return whether ``TPK_TRACEBACK`` asks for tracebacks with all frames."""
    return os.environ.get("TPK_TRACEBACK", "") not in ("", "0")


_HIDDEN = re.compile(r"(tpk(_\w+)?|click|contextlib|importlib|pluggy|tensorflow)(\.|$)")
"""Matches the modules whose frames are left out: those of tpk, of its packages, and of libraries."""


def _without_hidden(frames: TracebackType | None) -> TracebackType | None:
    kept = []
    while frames is not None:
        if not _HIDDEN.match(str(frames.tb_frame.f_globals.get("__name__"))):
            kept.append(frames)
        frames = frames.tb_next
    for each in reversed(kept):
        frames = TracebackType(frames, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return frames


_ABOUT_AN_OP = re.compile(
    r"Graph execution error:\n(?:.*\nNode: '[^\n]*'\n)?"
    r"\s*(?:\d+ root error\(s\) found\.\s*\(0\) (?:[A-Z_]+: )?)?([^\n]*)",
    re.DOTALL,
)


def in_one_line(error: BaseException) -> str:
    """Return the type and message of an error; for TensorFlow's long errors about an op, the essential line."""
    found = _ABOUT_AN_OP.match(str(error))
    message = " ".join((found[1] if found else str(error)).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def add_note(error: BaseException, note: str) -> None:
    """Attach `note` to `error`, as `BaseException.add_note` of Python 3.11 does.

    On Python 3.10, pytest finds the notes in ``__notes__``, but the interpreter does not print them, so the loop logs
    them, too.
    """
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        error.__notes__ = [*getattr(error, "__notes__", []), note]


@contextmanager
def noting(note: str, kinds: type[Exception] | tuple[type[Exception], ...] = Exception) -> Iterator[None]:
    """Attach `note` to an error of `kinds` that is raised within the context."""
    try:
        yield
    except kinds as error:
        add_note(error, note)
        raise
