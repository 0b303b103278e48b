"""Progress of a training: the bar, and the time that is left."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TextIO

import numpy as np
import tensorflow as tf
from tqdm.std import tqdm

from tpk.callbacks.run_tensors import find_tensor
from tpk.callbacks.statistics.epoch_means import EpochMeans
from tpk.errors import ConfigError
from tpk.plugin import Callback

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class ProgressBar(Callback):
    """Shows how far the epoch is, how fast it goes, and the cost.

    It is one bar for the whole training in a terminal and in a notebook. Elsewhere, where a bar would fill a file, it
    is a line in the log now and then, and an epoch that is over sooner has none.

    A cost is shown under its name as what log and statistics have under that name: its mean over the epoch, so far; it
    comes from `EpochMeans`. What is fetched for the bar alone is marked as the value of one step, ``now: …``.
    Tensors are fetched only in the step before it shows them; in all other steps it looks at the clock and no more.

    Args:
        names: what to show: names of tensors, with or without ``:0``, as they are in the main training tower
            or else in the graph; tensors; or scalars that `run_step` reports, of a trainer without a `train_op`. None
            is the costs, if the trainer has any.
        refresh_seconds: how long a bar stays as it is.
        log_seconds: how long after a line in the log comes the next.
        display: ``"bar"``, ``"log"``, or ``"auto"``: a bar if `file` is a terminal, or this is a notebook.
        file: where the bar is drawn; standard error by default.
        clock: returns the time in seconds.

    Raises:
        ConfigError: if `display` is none of these, or a time is negative.

    Example:
        ```python
        ProgressBar(["cost", "accuracy"])
        ```
    """

    def __init__(
        self,
        names: str | Sequence[Any] | None = None,
        *,
        refresh_seconds: float = 0.5,
        log_seconds: float = 60.0,
        display: Literal["auto", "bar", "log"] = "auto",
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if display not in ("auto", "bar", "log"):
            raise ConfigError(f"display must be 'auto', 'bar' or 'log', but is {display!r}.")
        if refresh_seconds < 0 or log_seconds < 0:
            raise ConfigError(
                "refresh_seconds and log_seconds must not be negative, "
                f"but are {refresh_seconds!r} and {log_seconds!r}."
            )
        self._names = (names,) if isinstance(names, str) else names if names is None else tuple(names)
        self._refresh_seconds = refresh_seconds
        self._log_seconds = log_seconds
        self._kind = display
        self._file = file
        self._clock = clock
        self._means: EpochMeans | None = None
        self._labels: tuple[str, ...] = ()
        self._fetches: tuple[Any, ...] | None = None
        self._shown: _Bar | _LogLines | None = None
        self._seconds = math.inf
        # What the steps look at. `_request` is what to fetch in the next run: most of the time, nothing.
        self._request: tuple[Any, ...] | None = None
        self._step = 0
        self._last_but_one = 0
        self._due = math.inf
        self._now = self._postfix = ""
        self._has_news = False

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Find the tensors, and whether there is a terminal.

        Raises:
            TpkError: if a name is that of no tensor.
        """
        self._means = None if self._names is not None else _means_of_costs(trainer)
        labelled = {} if self._means is not None else _find_tensors(self._names, trainer)
        self._labels = tuple(labelled)
        self._fetches = tuple(labelled.values()) or None
        file = sys.stderr if self._file is None else self._file
        if self._kind == "bar" or (self._kind == "auto" and (file.isatty() or _in_notebook())):
            self._shown, self._seconds = _Bar(file), self._refresh_seconds
        else:
            self._shown, self._seconds = _LogLines(self._clock), self._log_seconds

    def before_epoch(self, trainer: TrainerProtocol) -> None:
        """Begin an epoch."""
        assert self._shown is not None
        # Nothing is done yet, unless the training was resumed within the epoch.
        self._step = trainer.local_step + 1
        self._shown.begin(_title(trainer), trainer.loop.steps_per_epoch, self._step)
        self._request = None
        self._due = self._clock() + self._seconds
        self._now = self._postfix = ""
        self._has_news = False
        if isinstance(self._shown, _Bar):
            # What an epoch ends with are the values of its last step.
            self._last_but_one = trainer.loop.steps_per_epoch - trainer.loop.steps_per_run
            self._request = self._fetches
        else:
            self._last_but_one = sys.maxsize

    def before_run(self, run_context: Any) -> Any:
        """Return the tensors if they are going to be shown, else None."""
        return self._request

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Take the values of the tensors, if they were fetched."""
        if self._request is not None and run_values.results is not None:
            self._now = "now: " + _format(self._labels, run_values.results)
            self._request = None
            self._has_news = True
            self._due = -math.inf

    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """Show the progress if it is time."""
        self._step = trainer.local_step + 1
        if self._clock() >= self._due:
            self._show_or_fetch()
        if self._last_but_one <= self._step < trainer.loop.steps_per_epoch:
            self._request = self._fetches

    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Show the end of the epoch; whatever is written before the next one begins takes the place of the bar."""
        if isinstance(self._shown, _Bar):
            self._take_means()
            self._shown.show(self._step, self._postfix)
            self._shown.hide()

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Leave the bar as it is at the end."""
        if isinstance(self._shown, _Bar):
            self._shown.close(self._step, self._postfix)

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks; those around a run only if there may be something to fetch."""
        hooks = super().hook_implementations()
        if self._names == ():
            del hooks["before_run"], hooks["after_run"]
        return hooks

    def _show_or_fetch(self) -> None:
        self._due = self._clock() + self._seconds
        # If what was requested has not come by the next time, then a step is something that runs no session.
        if self._fetches is not None and self._request is None and not self._has_news:
            self._request = self._fetches
            return
        self._has_news = False
        self._take_means()
        if self._shown is not None:
            self._shown.show(self._step, self._postfix)

    def _take_means(self) -> None:
        if self._means is not None:
            means = {name: mean for name, mean in self._means.read().items() if name in self._means.costs}
        else:
            means = {
                name: mean for name, mean in self.trainer.monitors.step_means().items() if name in (self._names or ())
            }
        self._postfix = ", ".join(filter(None, (_format(list(means), list(means.values())), self._now)))


class _Bar:
    """A bar of tqdm, for all epochs; it is drawn when it is told to be, and else never."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._bar: Any = None

    def begin(self, title: str, steps: int, done: int) -> None:
        if self._bar is None:
            options = {"unit": " steps", "file": self._file, "mininterval": 0, "miniters": 1, **_width(self._file)}
            self._bar = _kind_of_bar()(desc=title, total=steps, initial=done, **options)
            return
        self._bar.set_description_str(title, refresh=False)
        self._bar.set_postfix_str("", refresh=False)
        self._bar.reset(total=steps)
        if done:
            self._bar.initial = self._bar.n = done
            self._bar.refresh()

    def show(self, step: int, postfix: str) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(postfix, refresh=False)
            if step > self._bar.n:
                self._bar.update(step - self._bar.n)
            else:
                self._bar.refresh()

    def hide(self) -> None:
        if self._bar is not None:
            self._bar.clear()

    def close(self, step: int, postfix: str) -> None:
        if self._bar is not None:
            self.show(step, postfix)
            self._bar.close()
            self._bar = None


class _LogLines:
    """A line in the log each time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = 0.0
        self._title = ""
        self._steps = 0
        self._done = 0

    def begin(self, title: str, steps: int, done: int) -> None:
        self._began = self._clock()
        self._title = title
        self._steps = steps
        self._done = done

    def show(self, step: int, postfix: str) -> None:
        line = tqdm.format_meter(
            step,
            self._steps,
            self._clock() - self._began,
            prefix=self._title,
            unit=" steps",
            initial=self._done,
            postfix=postfix,
            bar_format="{desc}: {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]",
        )
        logger.info(line)


def _title(trainer: TrainerProtocol) -> str:
    has_end = trainer.loop.max_epoch != sys.maxsize
    return f"epoch {trainer.epoch_num}/{trainer.loop.max_epoch}" if has_end else f"epoch {trainer.epoch_num}"


def _means_of_costs(trainer: TrainerProtocol) -> EpochMeans | None:
    """Return what knows the means of the costs, if there are any."""
    means = [each for each in trainer.hooks.plugins.values() if isinstance(each, EpochMeans) and each.costs]
    return means[0] if means else None


def _find_tensors(names: Sequence[Any] | None, trainer: TrainerProtocol) -> dict[str, Any]:
    """Return the tensors to show, by the labels that they are shown with."""
    main_tower = trainer.towers.main
    if names is None:
        cost = main_tower.output if main_tower is not None else None
        return {"cost": cost} if isinstance(cost, tf.Tensor) and cost.shape.rank == 0 else {}
    tensors = []
    for name in names:
        try:
            tensors.append(find_tensor(trainer, name) if isinstance(name, str) else name)
        except ConfigError as error:
            if trainer.train_ops:
                raise ConfigError(f"ProgressBar should show {name!r}, but {error}") from None
            # Then it is a scalar that `run_step` reports.
    full = [tensor.name.removesuffix(":0") for tensor in tensors]
    short = [name.rsplit("/", 1)[-1] for name in full]
    labels = [last if short.count(last) == 1 else name for name, last in zip(full, short, strict=True)]
    return dict(zip(labels, tensors, strict=True))


def _format(labels: Sequence[str], values: Sequence[Any]) -> str:
    return ", ".join(f"{label}={_format_value(value)}" for label, value in zip(labels, values, strict=True))


def _format_value(value: Any) -> str:
    if np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number):
        return f"{value:.4g}"
    return " ".join(np.array2string(np.asarray(value), precision=4, threshold=8).split())


def _width(file: TextIO) -> dict[str, Any]:
    """Return the arguments of tqdm that say how wide the bar is."""
    try:
        size = os.get_terminal_size(file.fileno())
    except (OSError, ValueError):
        size = os.terminal_size((0, 0))
    # A terminal of unknown size says that it has no columns and no lines, and tqdm takes its word for it.
    return {"dynamic_ncols": True} if _in_notebook() or (size.columns and size.lines) else {"ncols": 80, "nrows": 24}


def _kind_of_bar() -> Any:
    """Return the class of a bar: one of widgets, in a notebook that has them; else one of text."""
    if _in_notebook() and importlib.util.find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm_notebook

        return tqdm_notebook
    return tqdm


def _in_notebook() -> bool:
    # Only who runs in IPython has imported it.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "IPKernelApp" in getattr(shell, "config", ())


class EstimatedTimeLeft(Callback):
    """Logs at the end of each epoch how much longer the training will take, from how long the last epochs
    took.

    Args:
        last_k_epochs: how many of the last epochs it looks at.
        median: take the median of their times, which one slow epoch does not disturb, and not the mean.
        clock: returns the time in seconds.

    Attributes:
        seconds_left: the estimated time until the training ends; None before the end of the first epoch.
        seconds_total: that and the time since the training began; None before the end of the first epoch.

    Raises:
        ConfigError: if `last_k_epochs` is not positive.
    """

    def __init__(
        self, last_k_epochs: int = 5, median: bool = True, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if last_k_epochs < 1:
            raise ConfigError(f"last_k_epochs must be at least 1, but is {last_k_epochs!r}.")
        self._average = np.median if median else np.mean
        self._clock = clock
        self._epoch_seconds: deque[float] = deque(maxlen=last_k_epochs)
        self._started = 0.0
        self._epoch_started = 0.0
        self.seconds_left: float | None = None
        self.seconds_total: float | None = None

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Start the clock."""
        self._started = self._epoch_started = self._clock()

    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Estimate and log the time that is left."""
        now = self._clock()
        self._epoch_seconds.append(now - self._epoch_started)
        self._epoch_started = now
        if trainer.loop.max_epoch == sys.maxsize:  # Without an end, there is nothing to estimate.
            return
        epochs_left = max(trainer.loop.max_epoch - self.epoch_num, 0)
        self.seconds_left = epochs_left * float(self._average(self._epoch_seconds))
        self.seconds_total = now - self._started + self.seconds_left
        if epochs_left:
            logger.info(
                "estimated time left: %s of %s",
                _in_whole_seconds(self.seconds_left),
                _in_whole_seconds(self.seconds_total),
            )

    def state_dict(self) -> dict[str, Any]:
        """Return how long the last epochs took, and how long the training and the epoch under way have taken."""
        now = self._clock()
        return {
            "epoch_seconds": list(self._epoch_seconds),
            "training": now - self._started,
            "epoch": now - self._epoch_started,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned; the time between two attempts does not count."""
        now = self._clock()
        self._epoch_seconds.extend(state["epoch_seconds"])
        self._started = now - state["training"]
        self._epoch_started = now - state["epoch"]


def _in_whole_seconds(seconds: float) -> timedelta:
    return timedelta(seconds=round(seconds))
