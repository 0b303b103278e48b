"""Hyperparameters, and callbacks that set them: by a schedule, by a function, or by how a statistic develops."""

from __future__ import annotations

import abc
import bisect
import difflib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import tensorflow as tf

from tpk.callbacks.hyper_params.schedules import Schedule
from tpk.callbacks.statistics.followed import Statistic, StatisticFollower
from tpk.errors import ConfigError, TrainerStateError
from tpk.graph.gradients import costs_of_first_tower
from tpk.graph.optimizers.learning_rate import learning_rate_of
from tpk.graph.reports.summaries import names_of_scalar_summaries
from tpk.graph.variables import by_name
from tpk.plugin import Callback, Use, hookimpl
from tpk.plugin.description import RecordsOptions

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class HyperParam(RecordsOptions, abc.ABC):
    """A number that influences the training and can be changed while it runs."""

    def setup_graph(self) -> None:
        """Add to the default graph what setting the value needs."""

    @abc.abstractmethod
    def set_value(self, value: Any) -> None:
        """Give the hyperparameter a new value, in the default session if it needs one."""

    @abc.abstractmethod
    def get_value(self) -> Any:
        """Return the current value, as plain Python data."""

    @property
    @abc.abstractmethod
    def readable_name(self) -> str:
        """The name that logs show."""


class GraphVarParam(HyperParam):
    """A variable of the graph, such as a learning rate.

    Args:
        name: the name of a global or local variable, with or without ``:0``.

    Example:
        ```python
        tf.compat.v1.get_variable("learning_rate", initializer=1e-3, trainable=False)
        ScheduledHyperParamSetter(GraphVarParam("learning_rate"), [(10, 1e-4)])
        ```
    """

    def __init__(self, name: str) -> None:
        self.name = name.removesuffix(":0")
        self._variable: Any = None
        self._new_value: Any = None
        self._assign: Any = None
        self._sess: Any = None
        self._set: Callable[[Any], Any] | None = None

    @property
    def readable_name(self) -> str:
        """The name of the variable."""
        return self.name

    def setup_graph(self) -> None:
        """Find the variable, and build what assigns to it.

        Raises:
            ConfigError: if there is no such variable; the message lists the nearest names.
        """
        variables = by_name([*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables()])
        if self.name not in variables:
            raise ConfigError(
                f"the graph has no variable {self.name!r}.{_nearest(self.name, list(variables))} What is set while a "
                "training runs has to be a variable, which the model makes and uses, e.g. in optimizer(): rate = "
                f"tf.compat.v1.get_variable({self.name!r}, initializer=0.01, trainable=False)."
            )
        self._variable = variables[self.name]
        with tf.name_scope("set_hyper_param/"):
            self._new_value = tf.compat.v1.placeholder(self._variable.dtype.base_dtype, self._variable.shape)
            assign = self._variable.assign(self._new_value, read_value=False)
        self._assign = getattr(assign, "op", assign)

    def set_value(self, value: Any) -> None:
        """Assign to the variable, in the default session."""
        sess = self._default_session()
        if sess is not self._sess:
            self._sess, self._set = sess, sess.make_callable(self._assign, feed_list=[self._new_value])
        assert self._set is not None
        self._set(value)

    def get_value(self) -> Any:
        """Return the value of the variable in the default session: a number, or a list of them."""
        return self._default_session().run(self._variable).tolist()

    def _default_session(self) -> Any:
        sess = tf.compat.v1.get_default_session()
        if sess is None or self._variable is None:
            raise TrainerStateError(
                f"the variable {self.name!r} has a value only while a training runs: call setup_graph first, "
                "and then have a default session."
            )
        return sess


class ObjAttrParam(HyperParam):
    """An attribute of a Python object.

    Args:
        obj: any object.
        attr: the name of its attribute.
        readable_name: the name that logs show; that of the attribute by default.
    """

    def __init__(self, obj: object, attr: str, readable_name: str | None = None) -> None:
        self._obj = obj
        self._attr = attr
        self._readable_name = readable_name or attr

    @property
    def readable_name(self) -> str:
        """The name that logs show."""
        return self._readable_name

    def set_value(self, value: Any) -> None:
        """Set the attribute."""
        setattr(self._obj, self._attr, value)

    def get_value(self) -> Any:
        """Return the attribute."""
        return getattr(self._obj, self._attr)


def _nearest(name: str, known: list[str]) -> str:
    in_scopes = [other for other in known if other.endswith("/" + name)]
    nearest = in_scopes or difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if nearest:
        return f" The nearest: {', '.join(nearest)}."
    return f" It has {', '.join(known[:10])}{', …' if len(known) > 10 else ''}." if known else " It has none at all."


class HyperParamSetter(Callback, abc.ABC):
    """The base of callbacks that set a hyperparameter before the training and at each `trigger`.

    Its state holds the value, so that a training that goes on has the one which it had, wherever that is
    stored. It may be given before the training begins, or after all `before_train`.

    Args:
        param: a `HyperParam`, or the name of a variable.

    Attributes:
        param: the `HyperParam`.
        last_epoch: the number of the last epoch that is over; 0 before the first.

    Raises:
        ConfigError: if `param` is neither.
    """

    chief_only = False

    def __init__(self, param: HyperParam | str) -> None:
        if isinstance(param, str):
            param = GraphVarParam(param)
        if not isinstance(param, HyperParam):
            raise ConfigError(f"expected a HyperParam or the name of a variable, but got {param!r}.")
        self.param = param
        self.last_epoch = 0
        self._epoch_of_last_call: int | None = None
        self._restored: Mapping[str, Any] | None = None
        self._is_training = False

    @property
    def state_key(self) -> str:
        """What tells it from other setters of its class when a training is resumed."""
        return self.param.readable_name

    @abc.abstractmethod
    def get_value_to_set(self) -> float | None:
        """Return the value that the hyperparameter shall have from now on, or None to leave it as it is.

        It is called at each `trigger`; and before the training, unless it was called after `last_epoch`
        already, before the restart.
        """

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Let the hyperparameter add to the graph what it needs."""
        self.param.setup_graph()

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Set the value for the epoch to come."""
        self.last_epoch = trainer.loop.starting_epoch - 1
        self._is_training = True
        if self._restored is not None:
            self._take_back(self._restored)
        if self._epoch_of_last_call != self.last_epoch:
            self._set_param()

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Set the value."""
        self.last_epoch = self.epoch_num
        self._set_param()

    def state_dict(self) -> dict[str, Any]:
        """Return the value, and for which epoch it was set."""
        return {"epoch": self._epoch_of_last_call, "value": self.param.get_value()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the value back."""
        self._epoch_of_last_call = state["epoch"]
        self._restored = state
        if self._is_training:
            self._take_back(state)

    def _take_back(self, state: Mapping[str, Any]) -> None:
        """Set the value of the state, in the session."""
        self.param.set_value(state["value"])

    def _set_param(self) -> None:
        self._epoch_of_last_call = self.last_epoch
        value = self.get_value_to_set()
        if value is None:
            return
        self.param.set_value(value)
        self._log(value)

    def _log(self, value: float) -> None:
        logger.info("after epoch %d, %s is set to %g", self.last_epoch, self.param.readable_name, value)


class ScheduledHyperParamSetter(HyperParamSetter):
    """Sets a hyperparameter by a schedule: a `Schedule`, or a list of points.

    It runs before the training and at the end of each epoch; or after steps, where the schedule counts them, or
    `every_k_steps` says so. To set a variable is a run of the session, so a number that changes all the time costs one
    in each step; `every_k_steps` makes that less. With ``steps_per_run=k``, what is set after a run holds for the k
    steps of the next one. It works on all strategies: each process sets its own.

    A training that starts in the middle of the schedule starts with the value that holds there, and one that is resumed
    has the values of one that was never interrupted. What another callback makes of the value stays until the schedule
    says something new.

    Args:
        param: a `HyperParam`, or the name of a variable.
        schedule: a schedule, such as a `CosineSchedule`. Or pairs of an epoch and a value, which holds from the end of
            that epoch on; epoch 0 is the beginning. So ``[(0, 0.1), (10, 0.01)]`` trains ten epochs with 0.1; before
            its first point, such a list leaves the value alone.
        interp: for a list, how to go from one point to the next: None to stay at the former value until the latter
            point, ``"linear"``, or a function that maps how much of the way is done (from 0 to 1) to how much of the
            difference is, e.g. ``lambda done: (1 - math.cos(math.pi * done)) / 2``.
        step_based: the schedule counts steps (`global_step`) instead of epochs, and is looked at after each
            step. Of a value that changes all the time, the log does not tell each; that of a learning rate at the end
            of each epoch is reported by `LearningRateMonitor`.
        every_k_steps: look at a value that changes all the time after so many steps; in a schedule of epochs, at
            fractions of an epoch. A value that changes at once is set in the very step. By default 1 for a schedule of
            steps, and at the ends of epochs for one of epochs.

    Raises:
        ConfigError: if the schedule is empty, or has a point twice, or one that is not a whole number from 0
            on; or if another argument is none of these.

    Example:
        ```python
        ScheduledHyperParamSetter("learning_rate", [(0, 1e-3), (30, 1e-4), (45, 1e-5)])
        ScheduledHyperParamSetter("learning_rate", tpk.CosineSchedule(0.1, 0.0, 85).after_warmup(5), every_k_steps=10)
        epsilon = tpk.ObjAttrParam(agent, "epsilon")
        ScheduledHyperParamSetter(epsilon, tpk.LinearSchedule(1.0, 0.1, 10_000), step_based=True)
        ```
    """

    def __init__(
        self,
        param: HyperParam | str,
        schedule: Schedule | Sequence[tuple[int, float]],
        interp: str | Callable[[float], float] | None = None,
        step_based: bool = False,
        every_k_steps: int | None = None,
    ) -> None:
        super().__init__(param)
        if interp not in (None, "linear") and not callable(interp):
            raise ConfigError(f"interp must be None, 'linear' or a function, but is {interp!r}.")
        if isinstance(schedule, Schedule):
            if interp is not None:
                raise ConfigError(f"interp={interp!r} is for a list of points; {schedule!r} knows its ways itself.")
            self.schedule: Schedule = schedule
        else:
            self.schedule = _Points(tuple(_check_schedule(schedule)), interp)
        is_count = isinstance(every_k_steps, int) and not isinstance(every_k_steps, bool) and every_k_steps > 0
        if every_k_steps is not None and not is_count:
            raise ConfigError(f"every_k_steps must be a positive int or None, but is {every_k_steps!r}.")
        self._counts_steps = step_based
        self._every_k_steps = 1 if step_based and every_k_steps is None else every_k_steps
        # Where the schedule was looked at last, and what it said.
        self._position: float | None = None
        self._scheduled: float | None = None
        self._next_step: float = 0
        self._glides = False

    def get_value_to_set(self) -> float | None:
        """Return the value that holds now, or None if it is set already or the schedule has not begun."""
        self._position = self._now
        scheduled = self._at(self._position)
        if scheduled is None or scheduled == self._scheduled:
            return None
        self._scheduled = scheduled
        return scheduled

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Set the value that holds where the training starts."""
        self._epoch_of_last_call = None
        # A base's method, that is called below, sets it as well, but too late.
        self.last_epoch = trainer.loop.starting_epoch - 1
        self._find_next_step()
        super().before_train(trainer)
        self._warn_of_an_epoch_at_zero(trainer)

    def trigger_step(self, trainer: TrainerProtocol) -> None:
        """Set the value, if there may be a new one."""
        if trainer.global_step >= self._next_step:
            self.last_epoch = trainer.epoch_num - (trainer.local_step + 1 < trainer.loop.steps_per_epoch)
            self._set_param()
            self._find_next_step()

    def state_dict(self) -> dict[str, Any]:
        """Return the value, and what the schedule said last, and of where."""
        return {**super().state_dict(), "scheduled": self._scheduled, "position": self._position}

    def _take_back(self, state: Mapping[str, Any]) -> None:
        """Set the value of the state, or that of the schedule, if that is another one than it was."""
        super()._take_back(state)
        position = state["position"]
        # What was scheduled before may have been changed since, by another callback; so it is set anew only if
        # the schedule now says something else than it did.
        if position is not None and self._at(position) == state["scheduled"]:
            self._position, self._scheduled = position, state["scheduled"]
        else:
            self._scheduled = None
            self._set_param()
        self._find_next_step()

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks, for a schedule that is looked at after epochs or after steps."""
        hooks = super().hook_implementations()
        del hooks["trigger_step" if self._every_k_steps is None else "trigger_epoch"]
        return hooks

    def _warn_of_an_epoch_at_zero(self, trainer: TrainerProtocol) -> None:
        """Tell of a rise from 0 that is looked at too seldom: the whole first epoch would have no part in it."""
        if self._every_k_steps is None and self._scheduled == 0 and self.schedule.glides(self.last_epoch):
            logger.warning(
                "%s is 0 for the whole of epoch %d, since its schedule is looked at after epochs: give "
                "ScheduledHyperParamSetter every_k_steps=1, or let the schedule begin above 0.",
                self.param.readable_name,
                trainer.loop.starting_epoch,
            )

    def _at(self, position: float) -> float | None:
        schedule = self.schedule
        if isinstance(schedule, _Points) and position < schedule.points[0][0]:
            return None
        return schedule(position)

    def _find_next_step(self) -> None:
        """Find after which step to look at the schedule again."""
        every, step = self._every_k_steps, self.trainer.global_step
        if every is None:
            return
        now = self._now
        self._glides = self.schedule.glides(now)
        steps_per_position = 1 if self._counts_steps else max(self.trainer.loop.steps_per_epoch, 1)
        to_boundary = (self.schedule.next_boundary(now) - now) * steps_per_position
        # Fractions of an epoch are sums of floating-point numbers.
        boundary = step + max(math.ceil(to_boundary - 1e-6), 1) if math.isfinite(to_boundary) else math.inf
        self._next_step = min(boundary, (step // every + 1) * every) if self._glides else boundary

    def _log(self, value: float) -> None:
        if self._every_k_steps is None:
            super()._log(value)
        elif not self._glides:  # Else it is another one after each step.
            logger.info("after step %d, %s is set to %g", self.global_step, self.param.readable_name, value)

    @property
    def _now(self) -> float:
        if self._counts_steps:
            return self.global_step
        if self._every_k_steps is None:
            return self.last_epoch
        trainer = self.trainer
        done = trainer.epoch_num - 1 + (trainer.local_step + 1) / max(trainer.loop.steps_per_epoch, 1)
        # Before the first epoch, none is under way.
        return max(done, trainer.loop.starting_epoch - 1)


class HyperParamSetterWithFunc(HyperParamSetter):
    """Sets a hyperparameter by a function, before the training and at the end of each epoch.

    Args:
        param: a `HyperParam`, or the name of a variable.
        func: takes the number of the epoch that has just ended (0 before the first) and the current value,
            and returns the new value, or None to leave it.

    Example:
        ```python
        HyperParamSetterWithFunc("learning_rate", lambda epoch, rate: rate * 0.97)
        ```
    """

    def __init__(self, param: HyperParam | str, func: Callable[[int, Any], float | None]) -> None:
        super().__init__(param)
        self._func = func

    def get_value_to_set(self) -> float | None:
        """Return what the function returns."""
        return self._func(self.last_epoch, self.param.get_value())


class StatMonitorParamSetter(StatisticFollower, HyperParamSetter):
    """Changes a hyperparameter when a statistic has not improved enough of late.

    That is when, of the last ``last_k + 1`` values of the statistic, none is less than the first of them by
    more than `threshold`; or greater, if `reverse`. After a change it waits for `last_k` epochs.

    A statistic that has not been reported by the first time it is looked at is a warning.

    Args:
        param: a `HyperParam`, or the name of a variable.
        stat_name: a statistic that the monitors know, such as ``"validation_error"``.
        value_func: takes the current value of the hyperparameter and returns the new one.
        threshold: how much the statistic has to improve; not negative.
        last_k: over how many values.
        reverse: the statistic improves by growing.

    Raises:
        ConfigError: if `threshold` is negative or `last_k` not positive.

    Example:
        A tenth of the learning rate when the validation error has not fallen by 0.002 in five epochs:

        ```python
        StatMonitorParamSetter("learning_rate", "validation_error", lambda rate: rate / 10, 0.002, 5)
        ```
    """

    def __init__(
        self,
        param: HyperParam | str,
        stat_name: str,
        value_func: Callable[[Any], float],
        threshold: float,
        last_k: int,
        reverse: bool = False,
    ) -> None:
        super().__init__(param)
        if threshold < 0:
            raise ConfigError(f"threshold must not be negative, but is {threshold!r}; use reverse=True instead.")
        if last_k < 1:
            raise ConfigError(f"last_k must be at least 1, but is {last_k!r}.")
        self.statistic = Statistic(stat_name, reverse)
        self._value_func = value_func
        self._threshold = threshold
        self._last_k = last_k
        self._window = last_k + 1
        self._sign = -1 if reverse else 1
        self._epoch_of_last_change = 0

    @property
    def state_key(self) -> str:
        """What tells it from other setters of its class when a training is resumed."""
        return f"{self.param.readable_name}, {self.statistic.name}"

    @hookimpl(trylast=True)
    def trigger(self, trainer: TrainerProtocol) -> None:
        """Change the value if the statistic has not improved; after all that may write the statistic."""
        if trainer.is_chief:
            self.statistic.warn_if_unknown(trainer.monitors)
        super().trigger(trainer)

    def get_value_to_set(self) -> float | None:
        """Return the new value if the statistic has not improved, or else None; all processes what the chief finds."""
        value = self._find_value() if self.trainer.is_chief else None
        found: float | None = self.trainer.strategy.process_group.broadcast_object(
            f"the value of {self.param.readable_name}", value
        )
        return found

    def _find_value(self) -> float | None:
        monitors = self.trainer.monitors
        if self.statistic.name not in monitors.names:
            return None
        recent = [self._sign * value for _, value in monitors.get_history(self.statistic.name)][-self._window :]
        if len(recent) < self._window or self.last_epoch - self._epoch_of_last_change < self._last_k:
            return None
        if min(recent) < recent[0] - self._threshold:
            return None
        self._epoch_of_last_change = self.last_epoch
        logger.info("%s has not improved enough: %s", self.statistic.name, [self._sign * value for value in recent])
        return self._value_func(self.param.get_value())

    def state_dict(self) -> dict[str, Any]:
        """Return the value, and when it was changed last."""
        return {**super().state_dict(), "epoch_of_last_change": self._epoch_of_last_change}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back the value and when it was changed last."""
        super().load_state_dict(state)
        self._epoch_of_last_change = state["epoch_of_last_change"]


def _check_schedule(schedule: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    if isinstance(schedule, Use):
        raise ConfigError(f"a schedule is named with its module, as 'tpk:CosineSchedule'; got {schedule!r}.")
    try:
        points = sorted((int(point), float(value)) for point, value in schedule)
        usable = all(math.isfinite(value) for _, value in points)
        whole = all(int(point) == point >= 0 for point, _ in schedule)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            "a schedule is one of tpk, such as tpk.CosineSchedule(0.1, 0.0, length=90), or a list of pairs of an epoch "
            f"or step and a value, but got {schedule!r}. A function is for HyperParamSetterWithFunc(param, function)."
        ) from error
    if not points:
        raise ConfigError("the schedule is empty. Give at least one pair of an epoch or step and a value.")
    if not usable:
        raise ConfigError(f"a schedule has finite numbers as values, but got {schedule!r}.")
    if not whole:
        raise ConfigError(f"a schedule has whole numbers of epochs or steps, from 0 on, but got {schedule!r}.")
    if len({point for point, _ in points}) < len(points):
        raise ConfigError(f"a schedule has each epoch or step once, but got {schedule!r}.")
    return points


@attrs.frozen
class _Points(Schedule):
    """Points of a list, and how to go from one to the next."""

    points: tuple[tuple[int, float], ...]
    interp: str | Callable[[float], float] | None

    @property
    def length(self) -> float:  # type: ignore[override]
        return self.points[-1][0]

    def __call__(self, position: float) -> float:
        index = max(self._index(position) - 1, 0)
        point, value = self.points[index]
        if self.interp is None or position <= point or index + 1 == len(self.points):
            return value
        next_point, next_value = self.points[index + 1]
        done = (position - point) / (next_point - point)
        return value + (next_value - value) * (self.interp(done) if callable(self.interp) else done)

    def glides(self, position: float) -> bool:
        return self.interp is not None and 0 < self._index(position) < len(self.points)

    def next_boundary(self, position: float) -> float:
        index = self._index(position)
        return self.points[index][0] if index < len(self.points) else math.inf

    def _index(self, position: float) -> int:
        return bisect.bisect_right(self.points, position, key=lambda point: point[0])


class LearningRateMonitor(Callback):
    """Reports the learning rate at the end of each epoch, before callbacks set another one, as ``learning_rate``.

    It is that of the optimizer which the training uses, whether that was given a number, a variable, or a tensor such
    as a schedule. Of several objectives each has its own: ``generator/learning_rate``. What a summary of the model
    reports under such a name already is left to that; an optimizer whose learning rate cannot be told, such as one that
    depends on the data, has none.

    Example:
        ```python
        trainer.train(callbacks=["LearningRateMonitor"], monitors=["JSONWriter"], steps_per_epoch=100, max_epoch=10)
        ```
    """

    def __init__(self) -> None:
        self._rates: dict[str, Any] = {}

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Find the learning rates."""
        taken = names_of_scalar_summaries(trainer.graph)
        found = {name: learning_rate_of(optimizer) for name, optimizer in _optimizers_of(trainer).items()}
        unknown = [name for name, rate in found.items() if rate is None]
        if unknown:
            logger.debug("the optimizers have no learning rates that could be reported as %s", ", ".join(unknown))
        self._rates = {name: rate for name, rate in found.items() if rate is not None and name not in taken}

    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Report."""
        tensors = {name: rate for name, rate in self._rates.items() if not isinstance(rate, float)}
        rates = {**self._rates, **(trainer.sess.run(tensors) if tensors else {})}
        for name, rate in rates.items():
            trainer.monitors.put_scalar(name, rate)


def _optimizers_of(trainer: TrainerProtocol) -> dict[str, Any]:
    """Return the optimizers of the first tower, by the names of what is reported of them."""
    main_tower = trainer.towers.main
    output = main_tower.output if main_tower is not None else None
    objectives = {cost.ref(): f"{name}/" for name, cost in output.items()} if isinstance(output, Mapping) else {}
    found: dict[str, Any] = {}
    for cost, optimizer in costs_of_first_tower(trainer.graph).values():
        found.setdefault(f"{objectives.get(cost.ref(), '')}learning_rate", optimizer)
    return found
