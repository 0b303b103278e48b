"""Schedules: values that say which number a hyperparameter is to have when, and that compose.

A schedule maps a position to a number. What a position counts, epochs or steps, is up to who asks: a
`ScheduledHyperParamSetter` says it with `step_based`. Every schedule begins at position 0; before it holds what holds
there, and at its end and after, the last value. `then` lets another one follow, `after_warmup` puts a rise before it:

```python
tpk.CosineSchedule(0.1, 0.0, length=85).after_warmup(5)
tpk.LinearSchedule(0.1, 0.1, length=30).then(tpk.ExponentialSchedule(0.1, 0.94, period=2))
```

They are frozen values: equal if they say the same, pickled as any value, and written into ``config.json`` and
``config.toml`` of a run by name and options.
"""

from __future__ import annotations

import abc
import bisect
import math
from collections.abc import Sequence
from itertools import pairwise
from numbers import Real
from typing import Any

import attrs

from tpk.errors import ConfigError
from tpk.plugin.creation import import_optional

_POINTS_OF_PLOT = 1000


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _check_number(schedule: Schedule, attribute: Any, value: Any) -> None:
    if not _is_number(value):
        raise ConfigError(f"{type(schedule).__name__}({attribute.name}={value!r}): expected a finite number.")


def _check_positive(schedule: Schedule, attribute: Any, value: Any) -> None:
    if not _is_number(value) or value <= 0:
        raise ConfigError(f"{type(schedule).__name__}({attribute.name}={value!r}): expected a positive number.")


def _as_points(points: Any) -> tuple[tuple[float, float], ...]:
    try:
        pairs = tuple((position, value) for position, value in points)
    except (TypeError, ValueError):
        pairs = ()
    if not pairs or not all(_is_number(number) for pair in pairs for number in pair):
        raise ConfigError(f"StepSchedule(points={points!r}): expected pairs of a position and a number.")
    positions = [position for position, _ in pairs]
    if positions[0] != 0 or any(b <= a for a, b in pairwise(positions)):
        raise ConfigError(
            f"StepSchedule(points={points!r}): expected positions from 0 on, each greater than the one before."
        )
    return pairs


def _as_tuple(values: Any) -> Any:
    return tuple(values) if isinstance(values, list) else values


class Schedule(abc.ABC):
    """The base of schedules: call one with a position, and it returns the number that holds there.

    A subclass is a frozen attrs class that defines `length` and ``__call__``, whose argument may be any number from 0
    on, a fraction, too.

    Example:
        ```python
        @attrs.frozen
        class Triangle(tpk.Schedule):
            peak: float
            length: float

            def __call__(self, position):
                return self.peak * (1 - abs(2 * min(position / self.length, 1) - 1))
        ```
    """

    __slots__ = ()

    length: float
    """At which position it has its last value; infinite if there is no such position."""

    @abc.abstractmethod
    def __call__(self, position: float) -> float:
        """Return the number that holds at `position`, which counts epochs or steps from 0 on."""

    def glides(self, position: float) -> bool:
        """Whether the number changes all the time after `position`, and does not wait for the next boundary."""
        return position < self.length

    def next_boundary(self, position: float) -> float:
        """Return the next position at which the number may change at once, or begin or end to glide; or infinity."""
        return self.length if position < self.length else math.inf

    def then(self, schedule: Schedule, at: float | None = None) -> JoinedSchedule:
        """Return a schedule that goes on with another one, whose positions count from there.

        Args:
            schedule: what follows.
            at: where it begins; by default at the end of this one.

        Raises:
            ConfigError: if this one has no end, and `at` does not say where to leave it; or if `at` is not positive.

        Example:
            ```python
            tpk.LinearSchedule(0.0, 0.1, length=5).then(tpk.CosineSchedule(0.1, 0.0, length=85))
            tpk.ExponentialSchedule(0.1, 0.94).then(tpk.LinearSchedule(0.01, 0.0, length=10), at=40)
            ```
        """
        if at is None and not math.isfinite(self.length):
            raise ConfigError(
                f"{self!r} has no end at which {schedule!r} could begin. Say where it does: .then(schedule, at=40)."
            )
        begin = self.length if at is None else at
        # In one row, they lie flat in the description of a run.
        before, bounds = (self.schedules, self.boundaries) if isinstance(self, JoinedSchedule) else ((self,), ())
        if isinstance(schedule, JoinedSchedule) and _is_number(begin):
            after, further = schedule.schedules, [begin + boundary for boundary in schedule.boundaries]
        else:
            after, further = (schedule,), []
        return JoinedSchedule((*before, *after), (*bounds, begin, *further))

    def after_warmup(self, length: float, start: float = 0.0) -> JoinedSchedule:
        """Return this schedule with a line before it, from `start` up to its first value.

        It begins when that is over, so it ends later by `length`. Goyal et al., "Accurate, Large Minibatch SGD", 2017
        (https://arxiv.org/abs/1706.02677), section 2.2, has the reasons for it.

        Args:
            length: how long it takes, in what the positions count.
            start: the number at position 0. A learning rate that is set once an epoch has it for the whole of the
                first epoch; so take more than 0, or set it by the step.

        Raises:
            ConfigError: if `length` is not positive.

        Example:
            ```python
            tpk.StepSchedule([(0, 0.1), (30, 0.01), (60, 0.001)]).after_warmup(5, start=0.01)
            ```
        """
        return LinearSchedule(start, self(0), length).then(self)

    def plot(self, length: float | None = None) -> Any:
        """Plot the numbers over the positions, as a figure of `matplotlib.pyplot`.

        Args:
            length: up to which position; by default the whole schedule, or enough of one without an end.

        Returns:
            The `matplotlib.axes.Axes`.

        Raises:
            ConfigError: if `length` is not positive.
            PluginImportError: if Matplotlib is not installed.

        Example:
            ```python
            tpk.CosineSchedule(0.1, 0.0, length=85).after_warmup(5).plot()
            matplotlib.pyplot.savefig("schedule.png")
            ```
        """
        instead = "schedule(position) returns its values."
        pyplot = import_optional("matplotlib.pyplot", "schedule.plot()", "matplotlib", instead)
        end = self._length_of_plot if length is None else length
        if not _is_number(end) or end <= 0:
            raise ConfigError(f"schedule.plot(length={length!r}): expected a positive number.")
        positions = [end * i / _POINTS_OF_PLOT for i in range(_POINTS_OF_PLOT + 1)]
        axes = pyplot.figure().subplots()
        axes.plot(positions, [self(position) for position in positions])
        axes.set_xlabel("epochs or steps")
        return axes

    @property
    def _length_of_plot(self) -> float:
        return self.length if math.isfinite(self.length) else 100.0


@attrs.frozen
class StepSchedule(Schedule):
    """Steps: each number holds from its position up to that of the next one; the last one for ever.

    It is Keras's `PiecewiseConstantDecay`, but that a number holds from its very position on, as in a list that is
    given to a `ScheduledHyperParamSetter`, and in torch's `MultiStepLR`.

    Attributes:
        points: pairs of a position and a number, by position; the first one is at 0.

    Raises:
        ConfigError: if they are not.

    Example:
        ```python
        tpk.StepSchedule([(0, 0.1), (30, 0.01), (60, 0.001)])(45)  # 0.01
        ```
    """

    points: Sequence[tuple[float, float]] = attrs.field(converter=_as_points)

    @property
    def length(self) -> float:  # type: ignore[override]
        """Infinite: the last number holds for ever."""
        return math.inf

    def __call__(self, position: float) -> float:
        """Return the number of the last point that is not after `position`."""
        return self.points[max(self._index(position) - 1, 0)][1]

    def glides(self, position: float) -> bool:
        """Never."""
        return False

    def next_boundary(self, position: float) -> float:
        """Return the position of the next point."""
        index = self._index(position)
        return self.points[index][0] if index < len(self.points) else math.inf

    def _index(self, position: float) -> int:
        return bisect.bisect_right(self.points, position, key=lambda point: point[0])

    @property
    def _length_of_plot(self) -> float:
        return 1.25 * self.points[-1][0] or 1.0


@attrs.frozen
class LinearSchedule(Schedule):
    """A line: ``start + (end - start) * position / length``, and `end` after that.

    With `end` equal to `start`, it is a constant that `then` something else may follow.

    Attributes:
        start: the number at position 0.
        end: the number at position `length`, and after.
        length: how long it takes, in what the positions count.

    Raises:
        ConfigError: if `length` is not positive, or one of the others is no number.

    Example:
        ```python
        tpk.LinearSchedule(1.0, 0.1, length=90)(45)  # 0.55
        ```
    """

    start: float = attrs.field(validator=_check_number)
    end: float = attrs.field(validator=_check_number)
    length: float = attrs.field(validator=_check_positive)

    def __call__(self, position: float) -> float:
        """Return the number at `position`."""
        return _between(self.start, self.end, _part(position, self.length))


@attrs.frozen
class CosineSchedule(Schedule):
    """Half a cosine: ``end + (start - end) * (1 + cos(pi * position / length)) / 2``, and `end` after that.

    Loshchilov and Hutter, "SGDR", 2016 (https://arxiv.org/abs/1608.03983), equation 5, without restarts. It is Keras's
    `CosineDecay` with ``alpha=end / start``, and torch's `CosineAnnealingLR`.

    Attributes:
        start: the number at position 0.
        end: the number at position `length`, and after.
        length: how long it takes, in what the positions count.

    Raises:
        ConfigError: if `length` is not positive, or one of the others is no number.

    Example:
        ```python
        tpk.CosineSchedule(0.1, 0.0, length=85).after_warmup(5)
        ```
    """

    start: float = attrs.field(validator=_check_number)
    end: float = attrs.field(validator=_check_number)
    length: float = attrs.field(validator=_check_positive)

    def __call__(self, position: float) -> float:
        """Return the number at `position`."""
        return _between(self.start, self.end, (1 - math.cos(math.pi * _part(position, self.length))) / 2)


@attrs.frozen
class PolynomialSchedule(Schedule):
    """A power: ``end + (start - end) * (1 - position / length) ** power``, and `end` after that.

    It is `tf.compat.v1.train.polynomial_decay`, and Keras's `PolynomialDecay`.

    Attributes:
        start: the number at position 0.
        end: the number at position `length`, and after.
        length: how long it takes, in what the positions count.
        power: 1 is a line; with more it falls faster at first.

    Raises:
        ConfigError: if `length` or `power` is not positive, or one of the others is no number.

    Example:
        ```python
        tpk.PolynomialSchedule(0.01, 0.0, length=100_000, power=0.9)  # by steps, as segmentation networks have it
        ```
    """

    start: float = attrs.field(validator=_check_number)
    end: float = attrs.field(validator=_check_number)
    length: float = attrs.field(validator=_check_positive)
    power: float = attrs.field(validator=_check_positive)

    def __call__(self, position: float) -> float:
        """Return the number at `position`."""
        return _between(self.end, self.start, (1 - _part(position, self.length)) ** self.power)


@attrs.frozen
class ExponentialSchedule(Schedule):
    """A factor for each period: ``start * factor ** (position / period)``, without an end.

    It is `tf.compat.v1.train.exponential_decay`, and Keras's `ExponentialDecay`; by steps with ``staircase=True``,
    torch's `StepLR`.

    Attributes:
        start: the number at position 0.
        factor: by what it is multiplied in each period; positive.
        period: how long that takes, in what the positions count.
        staircase: multiply at the end of each period, and not a little all the time.

    Raises:
        ConfigError: if `factor` or `period` is not positive, or `start` is no number.

    Example:
        ```python
        tpk.ExponentialSchedule(0.1, 0.1, period=30, staircase=True)  # a tenth of it every 30 epochs
        ```
    """

    start: float = attrs.field(validator=_check_number)
    factor: float = attrs.field(validator=_check_positive)
    period: float = attrs.field(default=1.0, validator=_check_positive)
    staircase: bool = False

    @property
    def length(self) -> float:  # type: ignore[override]
        """Infinite: it has no end."""
        return math.inf

    def __call__(self, position: float) -> float:
        """Return the number at `position`."""
        periods = max(position, 0) / self.period
        return float(self.start * self.factor ** (math.floor(periods) if self.staircase else periods))

    def glides(self, position: float) -> bool:
        """Whether it is no staircase."""
        return not self.staircase

    def next_boundary(self, position: float) -> float:
        """Return the end of the period of a staircase."""
        return (math.floor(max(position, 0) / self.period) + 1) * self.period if self.staircase else math.inf

    @property
    def _length_of_plot(self) -> float:
        return 5 * self.period


@attrs.frozen
class OneCycleSchedule(Schedule):
    """One cycle: half a cosine up to the peak, and one down to nearly nothing.

    Smith and Topin, "Super-Convergence", 2017 (https://arxiv.org/abs/1708.07120); with half cosines in place of lines,
    and these defaults, as torch's `OneCycleLR` and optax's `cosine_onecycle_schedule` have it.

    Attributes:
        peak: the greatest number.
        length: how long the cycle takes, in what the positions count.
        pct_start: for which part of that it rises, between 0 and 1.
        div_factor: it starts at ``peak / div_factor``.
        final_div_factor: and ends at ``peak / div_factor / final_div_factor``.

    Raises:
        ConfigError: if `pct_start` is not between 0 and 1, or one of the others is not positive.

    Example:
        ```python
        tpk.OneCycleSchedule(0.1, length=30 * steps_per_epoch)
        ```
    """

    peak: float = attrs.field(validator=_check_positive)
    length: float = attrs.field(validator=_check_positive)
    pct_start: float = attrs.field(default=0.3)
    div_factor: float = attrs.field(default=25.0, validator=_check_positive)
    final_div_factor: float = attrs.field(default=1e4, validator=_check_positive)

    @pct_start.validator
    def _check_part(self, attribute: Any, value: Any) -> None:
        if not _is_number(value) or not 0 < value < 1:
            raise ConfigError(f"OneCycleSchedule(pct_start={value!r}): expected a number between 0 and 1.")

    def __call__(self, position: float) -> float:
        """Return the number at `position`."""
        rise, start = self.pct_start * self.length, self.peak / self.div_factor
        if position < rise:
            return CosineSchedule(start, self.peak, rise)(position)
        return CosineSchedule(self.peak, start / self.final_div_factor, self.length - rise)(position - rise)


@attrs.frozen
class JoinedSchedule(Schedule):
    """Schedules one after the other, as `then` makes it; the positions of each count from where it begins.

    Attributes:
        schedules: two or more.
        boundaries: where each but the first begins, one after the other.

    Raises:
        ConfigError: if they are not.

    Example:
        ```python
        rise, fall = tpk.LinearSchedule(0.0, 0.1, length=5), tpk.ExponentialSchedule(0.1, 0.94)
        tpk.JoinedSchedule([rise, fall], [5]) == rise.then(fall)  # True
        ```
    """

    schedules: Sequence[Schedule] = attrs.field(converter=_as_tuple)
    boundaries: Sequence[float] = attrs.field(converter=_as_tuple)

    @schedules.validator
    def _check_schedules(self, attribute: Any, value: Any) -> None:
        if not isinstance(value, tuple) or len(value) < 2 or not all(isinstance(each, Schedule) for each in value):
            raise ConfigError(f"JoinedSchedule(schedules={value!r}): expected two schedules or more.")

    @boundaries.validator
    def _check_boundaries(self, attribute: Any, value: Any) -> None:
        is_tuple = isinstance(value, tuple) and all(map(_is_number, value))
        if not is_tuple or any(b <= a for a, b in pairwise((0, *value))):
            raise ConfigError(
                f"JoinedSchedule(boundaries={value!r}): expected positive numbers, each greater than the one before."
            )
        if len(value) != len(self.schedules) - 1:
            raise ConfigError(
                f"JoinedSchedule(boundaries={value!r}): expected {len(self.schedules) - 1}, one for each schedule but "
                "the first."
            )

    @property
    def length(self) -> float:  # type: ignore[override]
        """Where the last one ends."""
        return self.boundaries[-1] + self.schedules[-1].length

    def __call__(self, position: float) -> float:
        """Return the number at `position`, of the schedule that is under way there."""
        schedule, begin, _ = self._at(position)
        return schedule(position - begin)

    def glides(self, position: float) -> bool:
        """Whether the schedule that is under way there does."""
        schedule, begin, _ = self._at(position)
        return schedule.glides(position - begin)

    def next_boundary(self, position: float) -> float:
        """Return that of the schedule that is under way, or where the next one begins."""
        schedule, begin, end = self._at(position)
        return min(begin + schedule.next_boundary(position - begin), end)

    def _at(self, position: float) -> tuple[Schedule, float, float]:
        index = bisect.bisect_right(self.boundaries, position)
        edges = (0.0, *self.boundaries, math.inf)
        return self.schedules[index], edges[index], edges[index + 1]

    @property
    def _length_of_plot(self) -> float:
        return self.boundaries[-1] + self.schedules[-1]._length_of_plot


def _part(position: float, length: float) -> float:
    return min(max(position / length, 0.0), 1.0)


def _between(start: float, end: float, part: float) -> float:
    return float(start + (end - start) * part) if part < 1 else float(end)
