"""Errors of tpk: what can go wrong, by name.

Every error that tpk raises on purpose is a `TpkError` and also the built-in type that fits, so
both ``except tpk.TpkError`` and ``except ValueError`` do what one expects. A message says what happened, to which
named thing, what was expected, and what to do about it.
"""

from __future__ import annotations

import re
import signal

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


class TpkError(Exception):
    """Base of all errors that tpk raises on purpose.

    Cure:
        Read the first line of the message: it names the thing, what was expected, and what to write. ``except
        tpk.TpkError`` catches all errors of this list.
    """


class ConfigError(TpkError, ValueError):
    """An option of a run has a value that it cannot have, or two options exclude each other.

    Cure:
        Change the option that the message names, as it says. ``help()`` of the class or function has the
        options with their defaults; what a run file may say is what `TrainConfig` takes.
    """


class TrainerStateError(TpkError, RuntimeError):
    """A trainer was asked for something at a time when it cannot do it, e.g. to train twice.

    Cure:
        Move the call to the moment that the message names: ops are made in ``with self.graph.as_default():`` or
        in `setup_graph`, values are there from `before_train` on, and for another training there is another
        trainer.
    """


class PluginError(TpkError, ValueError):
    """A plugin cannot be used as it is: what it is, what it offers, or how it was named is wrong.

    Cure:
        Give an instance, a class, a name of ``tpk plugins``, ``"module:attr"``, or ``tpk.use(name,
        **options)``. ``tpk plugins show NAME`` has the options, and ``tpk plugins --check`` says what is wrong
        with those that are installed.
    """


class UnknownPluginError(PluginError, LookupError):
    """No plugin has this name; the message lists the nearest and the known ones.

    Cure:
        Take the nearest name, if it was misspelled. If it is a name of a package that is not installed, install
        it in this very environment: ``tpk plugins`` lists what is found.
    """


class PluginImportError(PluginError, ImportError):
    """A plugin that was named could not be imported; the cause is chained.

    Cure:
        Mend the error that is chained beneath: mostly a package that is missing, and that ``pip install`` gets.
        ``python -c "import module"`` shows it alone.
    """


class UnknownOptionError(ConfigError, TypeError):
    """An argument has a name that it has in other systems only; the message says what to write.

    Cure:
        Write the argument that the message names in place of that of the other system.
    """


class HookError(PluginError, TypeError):
    """A hook implementation does not fit its specification (name, arguments, options).

    Cure:
        Give the method the name and the arguments of a hook; `tpk.Callback` has all of them. A helper of
        yours whose name merely looks like a hook gets an underscore in front.
    """


class UnknownScalarError(TpkError, KeyError):
    """No scalar of this name was reported so far; the message has the nearest name, and lists those that were.

    Cure:
        Ask for one of the names in the message. What an evaluation reports is there once it has run, at the
        end of the first epoch.
    """

    __str__ = Exception.__str__  # KeyError's shows the message in quotes, with escapes


class InputError(TpkError, ValueError):
    """Data does not fit the input signature, or the source of the data failed.

    Cure:
        Look at one datapoint with ``next(iter(flow))`` or `PrintData`, and compare it with ``inputs()`` of the
        model: as many components, in that order, of that dtype, with the batch as the first dimension. If the
        source has failed, its own error is chained beneath.
    """


class TowerError(TpkError, ValueError):
    """A tower function broke one of the rules of tower functions, or a tower was asked for what it has not.

    Cure:
        Mend the line of the tower function that the message names: write TensorFlow's ops in place of Python's
        on values, and make variables by `tpk.layers` or ``tf.compat.v1.get_variable``, so that each tower
        shares them.
    """


class SessionError(TpkError, RuntimeError):
    """A session was run with requests that contradict each other, or cannot be created as asked.

    Cure:
        Fetch and feed tensors of the trainer's own graph, each fed by one plugin only, and leave it to tpk to
        make and to close the session.
    """


class CheckpointError(TpkError, ValueError):
    """A checkpoint is missing, torn, or does not fit the graph.

    Cure:
        See what is there with ``tpk checkpoint ls RUN --verify`` and ``tpk checkpoint show RUN``. Weights of
        another model are loaded in part: with `SmartInit` and ``ignore_mismatch=True``, or names to ignore.
    """


class NonFiniteError(TpkError, FloatingPointError):
    """A training has met a NaN or an infinity where there must be none.

    Cure:
        Let `CheckNumerics` name the op. Lower the learning rate or warm it up, clip the gradients, add a small
        number before ``log``, ``sqrt`` and ``/``, and look for NaN in the data.

    Attributes:
        tensors: the names of the tensors or variables that have one.
        epoch_num: the epoch under way.
        local_step: the step within it, from 0 on.
        global_step: how many steps had completed before.
        checkpoint: the path of the last good checkpoint, or None if there is none.
        datapoints: the numbers of the datapoints that the step had, from 0 on over all passes (in a training of
            several processes, of the share of this one); empty if the input cannot tell.
    """

    tensors: tuple[str, ...] = ()
    epoch_num: int = 0
    local_step: int = 0
    global_step: int = 0
    checkpoint: str | None = None
    datapoints: range = range(0)


class HangError(TpkError, TimeoutError):
    """A training has not gone on for longer than it may take.

    Cure:
        Read the stacks in the message: the last line of each is where that thread waits. Mostly it is the data,
        or a process that is gone; a step that may take that long needs a longer timeout.
    """


class PeerError(TpkError, ConnectionError):
    """Another process of the training is gone, does not answer in time, or is at another point of the program.

    Cure:
        Read the log of the rank that is named: it has failed first. Then start the same command again with
        ``resume="auto"``. Where processes are only slow to start, raise ``timeouts=tpk.Timeouts(start=...)``.
    """


class MismatchError(ConfigError):
    """The processes of a training differ in something in which they must agree; the message says which, and in what.

    Cure:
        Start all processes with the same code, versions, plugins and options; let what only one of them may do
        ask ``trainer.is_chief`` inside of a callback, rather than decide which callbacks there are.
    """


class StopTraining(Exception):
    """Raise it anywhere inside a training to end the training in good order.

    In a hook, it lets the other plugins' hooks of that moment finish first (but for ``before_run``, where there has
    been no step yet). A checkpoint of the last step is left where there is a saver, ``after_train`` runs, the session
    and the workers are closed, and ``train()`` returns normally.

    Cure:
        None is needed: it is how a training ends early in good order. It reaches you only if it was raised
        outside of a training.

    Example:
        ```python
        class StopWhenGood(tpk.Callback):
            def trigger_epoch(self, trainer):
                if trainer.monitors.get_latest("val-error") < 0.01:
                    raise tpk.StopTraining("validation error is below 1 %")
        ```
    """


class Preempted(SystemExit):
    """A signal, such as SIGTERM, has ended the training; `train()` raises it once all is saved and closed.

    Not caught, it ends the process with the conventional status, 128 and the number of the signal.

    Cure:
        None is needed: all is saved. Start the same command again with ``resume="auto"``; a job is queued again
        by SLURM's ``--requeue``, or a ``restartPolicy``.

    Attributes:
        signum: the number of the signal.
        SIGNALS: the signals that ask a process to end. A second one has its default effect.
    """

    SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1", "SIGINT") if hasattr(signal, name))

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signum

    @classmethod
    def by(cls, signum: int, message: str = "") -> BaseException:
        """Return what a process raises that a signal has ended: after SIGINT, a `KeyboardInterrupt`."""
        return interruption(message) if signum == signal.SIGINT else cls(signum)


def interruption(message: str) -> KeyboardInterrupt:
    """Return what Python raises after Ctrl-C, with a message that says what was saved, and how to go on.

    A notebook shows that line in place of a traceback. It is no class of its own, because only a `KeyboardInterrupt`
    itself lets Python end the process by the signal, as a shell expects.
    """
    error = KeyboardInterrupt(message)
    error._render_traceback_ = lambda: [f"KeyboardInterrupt: {message}"]  # type: ignore[attr-defined]  # IPython asks.
    return error


def without_frames(error: KeyboardInterrupt) -> KeyboardInterrupt:
    """Return the error without its traceback if it has a message, which the frames of tpk would hide."""
    return error.with_traceback(None) if error.args else error


_ABOUT_AN_OP = re.compile(
    r"Graph execution error:\n(?:.*\nNode: '[^\n]*'\n)?\s*(?:\d+ root error\(s\) found\.\s*\(0\) )?([^\n]*)", re.DOTALL
)


def in_one_line(error: BaseException) -> str:
    """Return the type and message of an error; where TensorFlow fills a page about an op, what went wrong there."""
    found = _ABOUT_AN_OP.match(str(error))
    message = " ".join((found[1] if found else str(error)).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def add_note(error: BaseException, note: str) -> None:
    """Attach `note` to `error`, as `BaseException.add_note` does from Python 3.11 on.

    On Python 3.10 the notes are kept in ``__notes__`` all the same, where pytest finds them; the interpreter does
    not print them there, so the loop logs them too.
    """
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        error.__notes__ = [*getattr(error, "__notes__", []), note]
