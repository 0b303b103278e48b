"""Statistics sent elsewhere, by a command of the shell."""

from __future__ import annotations

import logging
import os
import signal
import string
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from tpk.errors import ConfigError
from tpk.plugin import Callback, hookimpl

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

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
