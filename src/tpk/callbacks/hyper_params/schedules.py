"""Schedules: numbers that depend on the position in a training, and that can be combined.

A schedule is a function of a position: a number of epochs, or of steps if a `ScheduledHyperParamSetter` has
`step_based`. It starts at position 0, and keeps its last value after its end. `then` appends another schedule, and
`after_warmup` puts a linear warmup in front:

```python
tpk.CosineSchedule(0.1, 0.0, length=85).after_warmup(5)
tpk.LinearSchedule(0.1, 0.1, length=30).then(tpk.ExponentialSchedule(0.1, 0.94, period=2))
```

Schedules are frozen values. They can be compared and pickled, and the ``config.json`` and ``config.toml`` of a run
contain them by name and options.
"""

from __future__ import annotations

import abc
import bisect
import math
from collections.abc import Callable, Sequence
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
        pairs = [(position, value) for position, value in points]
    except (TypeError, ValueError):
        pairs = []
    if not pairs or not all(_is_number(number) for pair in pairs for number in pair):
        raise ConfigError(
            f"expected pairs of a position (an epoch or a step) and a finite number, but got {points!r}. "
            "ScheduledHyperParamSetter also takes a schedule, such as tpk.CosineSchedule(0.1, 0.0, length=90), or its "
            "name with the module, as in 'tpk:CosineSchedule'. A function is for HyperParamSetterWithFunc."
        )
    pairs.sort()
    if pairs[0][0] < 0 or any(a == b for (a, _), (b, _) in pairwise(pairs)):
        raise ConfigError(f"the positions of a schedule must be different and not negative, but got {points!r}")
    return tuple(pairs)


def _as_tuple(values: Any) -> Any:
    return tuple(values) if isinstance(values, list) else values


class Schedule(abc.ABC):
    """Base of schedules: a function that returns the number at a position.

    A subclass is a frozen attrs class with a `length` and a ``__call__``. Positions may be fractions.

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

    length: float = math.inf
    """The position from which the value no longer changes, or infinity."""

    @abc.abstractmethod
    def __call__(self, position: float) -> float:
        """Return the number at `position`, which is at least 0."""

    def then(self, schedule: Schedule, at: float | None = None) -> JoinedSchedule:
        """Return a schedule that continues with another one, whose positions count from where it begins.

        Args:
            schedule: the other schedule.
            at: the position at which it begins; by default the end of this one.

        Raises:
            ConfigError: if this schedule has no end and `at` is None, or if `at` is not positive.

        Example:
            ```python
            tpk.LinearSchedule(0.0, 0.1, length=5).then(tpk.CosineSchedule(0.1, 0.0, length=85))
            tpk.ExponentialSchedule(0.1, 0.94).then(tpk.LinearSchedule(0.01, 0.0, length=10), at=40)
            ```
        """
        if at is None and not math.isfinite(self.length):
            raise ConfigError(
                f"{self!r} has no end, so say at which position {schedule!r} begins: .then(schedule, at=40)."
            )
        begin = self.length if at is None else at
        # A flat list is easier to read in the description of a run.
        before, bounds = (self.schedules, self.boundaries) if isinstance(self, JoinedSchedule) else ((self,), ())
        if isinstance(schedule, JoinedSchedule) and _is_number(begin):
            after, further = schedule.schedules, [begin + boundary for boundary in schedule.boundaries]
        else:
            after, further = (schedule,), []
        return JoinedSchedule((*before, *after), (*bounds, begin, *further))

    def after_warmup(self, length: float, start: float = 0.0) -> JoinedSchedule:
        """Return this schedule after a linear warmup from `start` to its first value.

        The schedule begins after the warmup, so it ends later by `length`. See Goyal et al., "Accurate, Large Minibatch
        SGD", 2017 (https://arxiv.org/abs/1706.02677), section 2.2.

        Args:
            length: the length of the warmup, in epochs or steps.
            start: the number at position 0. A learning rate that is set once per epoch has it for the whole first
                epoch, so use more than 0, or set the rate by steps.

        Raises:
            ConfigError: if `length` is not positive.

        Example:
            ```python
            tpk.StepSchedule([(0, 0.1), (30, 0.01), (60, 0.001)]).after_warmup(5, start=0.01)
            ```
        """
        return LinearSchedule(start, self(0), length).then(self)

    def plot(self, length: float | None = None) -> Any:
        """Plot the schedule with `matplotlib.pyplot`.

        Args:
            length: the last position of the plot; by default the end of the schedule.

        Returns:
            The `matplotlib.axes.Axes`.

        Raises:
            ConfigError: if `length` is not positive, or None for a schedule without an end.
            PluginImportError: if Matplotlib is not installed.

        Example:
            ```python
            tpk.CosineSchedule(0.1, 0.0, length=85).after_warmup(5).plot()
            matplotlib.pyplot.savefig("schedule.png")
            ```
        """
        instead = "schedule(position) returns its values."
        pyplot = import_optional("matplotlib.pyplot", "schedule.plot()", "matplotlib", instead)
        end = self.length if length is None else length
        if not _is_number(end) or end <= 0:
            raise ConfigError(f"schedule.plot(length={end!r}): expected a positive number: the last position to plot.")
        positions = [end * i / _POINTS_OF_PLOT for i in range(_POINTS_OF_PLOT + 1)]
        axes = pyplot.figure().subplots()
        axes.plot(positions, [self(position) for position in positions])
        axes.set_xlabel("epochs or steps")
        return axes


@attrs.frozen
class StepSchedule(Schedule):
    """Steps or other ways between points. A list given to a `ScheduledHyperParamSetter` is such a schedule.

    Like torch's `MultiStepLR`, and Keras's `PiecewiseConstantDecay` except that a number applies from its position on,
    and not from just after it.

    Attributes:
        points: pairs of a position and a number. Before the first point, the first number applies, but a
            `ScheduledHyperParamSetter` leaves the hyperparameter alone; after the last point, the last number applies.
        interp: the way from one point to the next: None to jump at the next point, ``"linear"``, or a function that
            maps the completed fraction of the way to the completed fraction of the difference, both from 0 to 1, such
            as ``lambda done: (1 - math.cos(math.pi * done)) / 2``.

    Raises:
        ConfigError: if `points` or `interp` is invalid.

    Example:
        ```python
        tpk.StepSchedule([(0, 0.1), (30, 0.01), (60, 0.001)])(45)  # 0.01
        ```
    """

    points: Sequence[tuple[float, float]] = attrs.field(converter=_as_points)
    interp: str | Callable[[float], float] | None = None

    def __attrs_post_init__(self) -> None:
        if self.interp not in (None, "linear") and not callable(self.interp):
            raise ConfigError(f"interp must be None, 'linear' or a function, not {self.interp!r}")

    def __call__(self, position: float) -> float:
        """Return the number at `position`."""
        index = bisect.bisect_right(self.points, position, key=lambda point: point[0]) - 1
        point, value = self.points[max(index, 0)]
        if self.interp is None or not 0 <= index < len(self.points) - 1:
            return value
        next_point, next_value = self.points[index + 1]
        done = (position - point) / (next_point - point)
        return value + (next_value - value) * (self.interp(done) if callable(self.interp) else done)


@attrs.frozen
class _StartToEnd(Schedule):
    """The base of schedules that go from a first number to a last one."""

    start: float = attrs.field(validator=_check_number)
    end: float = attrs.field(validator=_check_number)
    length: float = attrs.field(validator=_check_positive)


@attrs.frozen
class LinearSchedule(_StartToEnd):
    """A line: ``start + (end - start) * position / length``, then `end`.

    With `start` equal to `end`, it is a constant of a given length.

    Attributes:
        start: the number at position 0.
        end: the number from position `length` on.
        length: its length, in epochs or steps.

    Raises:
        ConfigError: if `length` is not positive, or another value is not a finite number.

    Example:
        ```python
        tpk.LinearSchedule(1.0, 0.1, length=90)(45)  # 0.55
        ```
    """

    def __call__(self, position: float) -> float:
        """Return the number at `position`."""
        return _between(self.start, self.end, _part(position, self.length))


@attrs.frozen
class CosineSchedule(_StartToEnd):
    """Half a cosine: ``end + (start - end) * (1 + cos(pi * position / length)) / 2``, then `end`.

    Loshchilov and Hutter, "SGDR", 2016 (https://arxiv.org/abs/1608.03983), equation 5, without restarts. Like Keras's
    `CosineDecay` with ``alpha=end / start``, and torch's `CosineAnnealingLR`.

    Attributes:
        start: the number at position 0.
        end: the number from position `length` on.
        length: its length, in epochs or steps.

    Raises:
        ConfigError: if `length` is not positive, or another value is not a finite number.

    Example:
        ```python
        tpk.CosineSchedule(0.1, 0.0, length=85).after_warmup(5)
        ```
    """

    def __call__(self, position: float) -> float:
        """Return the number at `position`."""
        return _between(self.start, self.end, (1 - math.cos(math.pi * _part(position, self.length))) / 2)


@attrs.frozen
class PolynomialSchedule(_StartToEnd):
    """A power: ``end + (start - end) * (1 - position / length) ** power``, then `end`.

    Like `tf.compat.v1.train.polynomial_decay`, and Keras's `PolynomialDecay`.

    Attributes:
        start: the number at position 0.
        end: the number from position `length` on.
        length: its length, in epochs or steps.
        power: 1 is a line; a greater power changes faster at first.

    Raises:
        ConfigError: if `length` or `power` is not positive, or another value is not a finite number.

    Example:
        ```python
        tpk.PolynomialSchedule(0.01, 0.0, length=100_000, power=0.9)  # in steps, usual for segmentation
        ```
    """

    power: float = attrs.field(validator=_check_positive)

    def __call__(self, position: float) -> float:
        """Return the number at `position`."""
        return _between(self.end, self.start, (1 - _part(position, self.length)) ** self.power)


@attrs.frozen
class ExponentialSchedule(Schedule):
    """A factor per period: ``start * factor ** (position / period)``, without an end.

    Like `tf.compat.v1.train.exponential_decay`, and Keras's `ExponentialDecay`; with ``staircase=True``, like torch's
    `StepLR`.

    Attributes:
        start: the number at position 0.
        factor: the factor by which a period multiplies the number; positive.
        period: the length of a period, in epochs or steps.
        staircase: whether to multiply once at the end of each period, instead of continuously.

    Raises:
        ConfigError: if `factor` or `period` is not positive, or `start` is not a finite number.

    Example:
        ```python
        tpk.ExponentialSchedule(0.1, 0.1, period=30, staircase=True)  # divided by 10 every 30 epochs
        ```
    """

    start: float = attrs.field(validator=_check_number)
    factor: float = attrs.field(validator=_check_positive)
    period: float = attrs.field(default=1.0, validator=_check_positive)
    staircase: bool = False

    def __call__(self, position: float) -> float:
        """Return the number at `position`."""
        periods = max(position, 0) / self.period
        return float(self.start * self.factor ** (math.floor(periods) if self.staircase else periods))


@attrs.frozen
class OneCycleSchedule(Schedule):
    """One cycle: half a cosine up to the peak, and another one down to almost 0.

    Smith and Topin, "Super-Convergence", 2017 (https://arxiv.org/abs/1708.07120). It uses half cosines instead of
    lines, with the same defaults as torch's `OneCycleLR` and optax's `cosine_onecycle_schedule`.

    Attributes:
        peak: the greatest number.
        length: the length of the cycle, in epochs or steps.
        pct_start: the fraction of the cycle in which the number rises, between 0 and 1.
        div_factor: the first number is ``peak / div_factor``.
        final_div_factor: the last number is ``peak / div_factor / final_div_factor``.

    Raises:
        ConfigError: if `pct_start` is not between 0 and 1, or another value is not positive.

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
    """A sequence of schedules, as returned by `then`. The positions of each count from where it begins.

    Attributes:
        schedules: two or more schedules.
        boundaries: the positions at which all schedules except the first begin.

    Raises:
        ConfigError: if there are fewer than two schedules, or the boundaries do not increase or fit their number.

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
        expected = len(self.schedules) - 1
        is_valid = isinstance(value, tuple) and len(value) == expected and all(map(_is_number, value))
        if not is_valid or any(b <= a for a, b in pairwise((0, *value))):
            raise ConfigError(
                f"JoinedSchedule(boundaries={value!r}): expected {expected} positive numbers in increasing order, one "
                "for each schedule except the first."
            )

    @property
    def length(self) -> float:  # type: ignore[override]
        """The end of the last schedule."""
        return self.boundaries[-1] + self.schedules[-1].length

    def __call__(self, position: float) -> float:
        """Return the number at `position`."""
        index = bisect.bisect_right(self.boundaries, position)
        begin = self.boundaries[index - 1] if index else 0.0
        return self.schedules[index](position - begin)


def _part(position: float, length: float) -> float:
    return min(max(position / length, 0.0), 1.0)


def _between(start: float, end: float, part: float) -> float:
    return float(start + (end - start) * part) if part < 1 else float(end)
