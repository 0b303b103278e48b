"""Shell inside of a training, opened from outside while it runs."""

from __future__ import annotations

import bdb
import importlib.util
import logging
import os
import pdb
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpk.callbacks.composition.trigger import Every
from tpk.errors import ConfigError, PluginImportError, StopTraining
from tpk.plugin import Callback

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

SHELLS = ("ipython", "pdb")


class InjectShell(Callback):
    """Opens a shell inside of the training when a file appears: ``touch INJECT_SHELL.tmp``.

    In the shell there are ``trainer``, ``sess``, ``graph`` and ``monitors``. The training goes on when it is left, by
    ``c`` in pdb and by Ctrl-D in IPython; ``q`` in pdb ends the training in good order. pdb can also go on step by
    step, and up to what called it. The file is removed when the shell opens, so that one ``touch`` opens one shell.

    Where nobody could type, because standard input is no terminal, it opens none, and a line in the log says so.
    Without the file, it never asks for anything.

    When it runs: at the end of each epoch, or `when` it shall, it looks whether the file is there, and does nothing
    else. It works on every strategy, in the chief; the other processes wait for it. A `Watchdog` counts the
    time in the shell as any other.

    Args:
        file: its path; a relative one is one of the directory in which the training was started.
        shell: ``"ipython"`` or ``"pdb"``; by default IPython where it is installed, else pdb.
        when: an `Every`: the times at which it looks; by default the end of each epoch.

    Raises:
        ConfigError: if `shell` or `when` is something else.
        PluginImportError: when the training is set up, if ``shell="ipython"`` and it is not installed.

    Example:
        ```python
        callbacks=[tpk.InjectShell(when=tpk.Every(steps=100))]
        ```
    """

    def __init__(
        self,
        file: str | os.PathLike[str] = "INJECT_SHELL.tmp",
        shell: str | None = None,
        *,
        when: Every | None = None,
    ) -> None:
        if shell not in (None, *SHELLS):
            raise ConfigError(f"InjectShell(shell={shell!r}): expected one of {', '.join(map(repr, SHELLS))}.")
        if not isinstance(when, Every | None):
            raise ConfigError(f"InjectShell(when={when!r}): expected a tpk.Every, such as tpk.Every(steps=100).")
        self._path = Path(file).absolute()
        self._shell = shell
        self._when = when

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of those times at which it looks."""
        hooks = super().hook_implementations()
        return hooks if self._when is None else self._when.hooks(self, hooks)

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """See which shell there is, and say how to open it.

        Raises:
            PluginImportError: if IPython was wanted, and is not installed.
        """
        has_ipython = importlib.util.find_spec("IPython") is not None
        if self._shell == "ipython" and not has_ipython:
            raise PluginImportError(
                "InjectShell(shell='ipython') needs IPython, which is not installed: pip install ipython, or take "
                "shell='pdb'."
            )
        self._shell = self._shell or ("ipython" if has_ipython else "pdb")
        logger.info("to open a shell in this training: touch %s", self._path)

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Open the shell if the file is there.

        Raises:
            StopTraining: if pdb was left by ``q``.
        """
        if not self._path.exists():
            return
        self._path.unlink(missing_ok=True)
        if sys.stdin is None or not sys.stdin.isatty():
            logger.warning("no shell is opened, since standard input is no terminal")
            return
        try:
            with _interrupts_for_the_shell():
                _open(self._shell, trainer)
        except bdb.BdbQuit:
            raise StopTraining("the shell was left by q") from None


def _open(shell: str | None, trainer: TrainerProtocol) -> None:
    sess, graph, monitors = trainer.sess, trainer.graph, trainer.monitors
    greeting = f"in {trainer.loop.progress}; here are trainer, sess, graph and monitors"
    if shell == "ipython":
        import IPython

        IPython.embed(header=greeting)
        return
    logger.info("a shell %s", greeting)
    # What the shell sees are the variables of this function.
    pdb.Pdb(nosigint=True).set_trace()
    del sess, graph, monitors


@contextmanager
def _interrupts_for_the_shell() -> Iterator[None]:
    """Within the context, Ctrl-C breaks off what is typed or run in the shell, and not the training."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former, descriptor = signal.signal(signal.SIGINT, signal.default_int_handler), signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        signal.signal(signal.SIGINT, former)
