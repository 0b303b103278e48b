"""Hyperparameters, and callbacks that set them by a schedule, a function or a statistic."""

from __future__ import annotations

import abc
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

import tpk
from tpk.argument_checks import check_at_least, check_not_negative, given
from tpk.callbacks.hyper_params.schedules import Schedule, StepSchedule
from tpk.callbacks.statistics.followed import StatisticFollower
from tpk.callbacks.triggers import Every, TimedCallback
from tpk.errors import ConfigError, TrainerStateError
from tpk.graph.gradients import costs_of_first_tower
from tpk.graph.optimizers.learning_rate import learning_rate_of
from tpk.graph.reports.summary_ops import names_of_scalar_summaries
from tpk.graph.variables import assign_values, by_name
from tpk.plugin import Callback, hookimpl
from tpk.plugin.recorded_options import RecordsOptions
from tpk.text import nearest

logger = logging.getLogger(__name__)


class HyperParam(RecordsOptions, abc.ABC):
    """A number that influences the training and can be changed while the training runs.

    Attributes:
        readable_name: the name in log messages; set by the subclass.
    """

    readable_name: str

    def setup_graph(self) -> None:
        """Add the ops that setting the value needs to the default graph."""

    @abc.abstractmethod
    def set_value(self, value: Any) -> None:
        """Set a new value, in the default session if the hyperparameter needs one."""

    @abc.abstractmethod
    def get_value(self) -> Any:
        """Return the current value, as plain Python data."""


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
        self.name = self.readable_name = name.removesuffix(":0")
        self._variable: Any = None

    def setup_graph(self) -> None:
        """Find the variable."""
        variables = by_name([*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables()])
        if self.name not in variables:
            raise ConfigError(
                f"the graph has no variable {self.name!r}.{nearest(self.name, variables)} Only a variable can be set "
                "while a training runs. Let the model create and use one, e.g. in optimizer(): rate = "
                f"tf.compat.v1.get_variable({self.name!r}, initializer=0.01, trainable=False)."
            )
        self._variable = variables[self.name]

    def set_value(self, value: Any) -> None:
        """Assign to the variable, in the default session."""
        assign_values(self._default_session(), [(self._variable, value)])

    def get_value(self) -> Any:
        """Return the value of the variable in the default session: a number, or a list of them."""
        return self._default_session().run(self._variable).tolist()

    def _default_session(self) -> Any:
        sess = tf.compat.v1.get_default_session()
        if sess is None or self._variable is None:
            raise TrainerStateError(
                f"the variable {self.name!r} has a value only while a training runs. It needs setup_graph() and a "
                "default session."
            )
        return sess


class ObjAttrParam(HyperParam):
    """An attribute of a Python object.

    Args:
        obj: any object.
        attr: the name of its attribute.
        readable_name: the name in log messages; by default the name of the attribute.
    """

    def __init__(self, obj: object, attr: str, readable_name: str | None = None) -> None:
        self._obj = obj
        self._attr = attr
        self.readable_name = readable_name or attr

    def set_value(self, value: Any) -> None:
        """Set the attribute."""
        setattr(self._obj, self._attr, value)

    def get_value(self) -> Any:
        """Return the attribute."""
        return getattr(self._obj, self._attr)


def as_hyper_param(owner: Callback, param: HyperParam | str) -> HyperParam:
    """Return `param`, or the variable of that name.

    Raises:
        ConfigError: if it is neither a `HyperParam` nor a name.
    """
    if isinstance(param, str):
        return GraphVarParam(param)
    if not isinstance(param, HyperParam):
        raise ConfigError(
            f"{type(owner).__name__}: expected a HyperParam or the name of a variable, but got {param!r}."
        )
    return param


class HyperParamSetter(Callback, abc.ABC):
    """Base of callbacks that set a hyperparameter before the training and at each `trigger`.

    Its state includes the value, so a resumed training continues with it, whether it is a variable or not.

    Args:
        param: a `HyperParam`, or the name of a variable.

    Attributes:
        param: the `HyperParam`.
        last_epoch: the number of the last completed epoch; 0 before the first.

    Raises:
        ConfigError: if `param` is neither a `HyperParam` nor a name.
    """

    chief_only = False

    def __init__(self, param: HyperParam | str) -> None:
        self.param = as_hyper_param(self, param)
        self.state_key = self.param.readable_name
        self.last_epoch = 0

    @abc.abstractmethod
    def get_value_to_set(self) -> float | None:
        """Return the new value of the hyperparameter, or None to leave it unchanged.

        Called before the training and at each `trigger`. In a resumed training, the value and the state of the
        checkpoint replace what the first call did.
        """

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Add the ops that setting the hyperparameter needs."""
        self.param.setup_graph()

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Set the value for the first epoch."""
        self.last_epoch = trainer.loop.starting_epoch - 1
        self._set_param()

    def trigger(self, trainer: tpk.Trainer) -> None:
        """Set the value."""
        self.last_epoch = self.epoch_num
        self._set_param()

    def state_dict(self) -> dict[str, Any]:
        """Return the value."""
        return {**super().state_dict(), "value": self.param.get_value()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the value."""
        super().load_state_dict(state)
        self.param.set_value(state["value"])

    def _set_param(self) -> None:
        value = self.get_value_to_set()
        if value is not None:
            self.param.set_value(value)
            self._log(value)

    def _log(self, value: float) -> None:
        logger.info("after epoch %d, %s is set to %g", self.last_epoch, self.param.readable_name, value)


class ScheduledHyperParamSetter(HyperParamSetter, TimedCallback):
    """Sets a hyperparameter by a schedule.

    It looks at the schedule before the training and at the end of each epoch; or every `every_k_steps` steps. Setting a
    variable is a run of the session, so a value that changes in every step costs one run per step; a larger
    `every_k_steps` reduces this. With ``steps_per_run=k``, a value that is set after a run applies to all k steps of
    the next run. It works on all strategies: each process sets its own hyperparameter.

    A training that starts in the middle of the schedule starts with the value there, and a resumed training has the
    same values as an uninterrupted one. If another callback changes the value, it stays until the schedule has a new
    one.

    Args:
        param: a `HyperParam`, or the name of a variable.
        schedule: a schedule, such as a `CosineSchedule`; or the points of a `StepSchedule`: pairs of an epoch and the
            value from the end of this epoch on. Epoch 0 is the start: ``[(0, 0.1), (10, 0.01)]`` trains ten epochs with
            0.1. Before the first point the value is left alone.
        interp: the way from one point of a list to the next; see `StepSchedule`.
        step_based: whether the schedule counts steps (`global_step`) instead of epochs.
        every_k_steps: look at the schedule after every k steps; a schedule of epochs then gets fractions of an epoch.
            By default 1 for a schedule of steps, and the ends of epochs for a schedule of epochs. A value that
            changes all the time is not logged; `LearningRateMonitor` reports the learning rate after each epoch.

    Raises:
        ConfigError: if an argument is invalid.

    Example:
        ```python
        ScheduledHyperParamSetter("learning_rate", [(0, 1e-3), (30, 1e-4), (45, 1e-5)])
        ScheduledHyperParamSetter("learning_rate", tpk.CosineSchedule(0.1, 0.0, 85).after_warmup(5), every_k_steps=10)
        epsilon = tpk.ObjAttrParam(agent, "epsilon")
        ScheduledHyperParamSetter(epsilon, tpk.LinearSchedule(1.0, 0.1, 10_000), step_based=True)
        ```
    """

    state_attributes = ("_position", "_scheduled")

    def __init__(
        self,
        param: HyperParam | str,
        schedule: Schedule | Sequence[tuple[float, float]],
        interp: str | Callable[[float], float] | None = None,
        step_based: bool = False,
        every_k_steps: int | None = None,
    ) -> None:
        HyperParamSetter.__init__(self, param)
        check_at_least(self, 1, **given(every_k_steps=every_k_steps))
        if not isinstance(schedule, Schedule):
            schedule = StepSchedule(schedule, interp)
        elif interp is not None:
            raise ConfigError(f"interp={interp!r} is for a list of points, not for {schedule!r}")
        self.schedule = schedule
        self._step_based = step_based
        steps = 1 if step_based and every_k_steps is None else every_k_steps
        TimedCallback.__init__(self, Every(epochs=1) if steps is None else Every(steps=steps))
        # The last position at which the schedule was called, and its value there.
        self._position = 0.0
        self._scheduled: float | None = None
        self._is_steady = True

    def get_value_to_set(self) -> float | None:
        """Return the current value, or None if it is set already or the schedule has not begun."""
        self._position = self._now
        scheduled = self._at(self._position)
        if scheduled is None or scheduled == self._scheduled:
            self._is_steady = True
            return None
        self._scheduled = scheduled
        return scheduled

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Set the value at the position where the training starts."""
        TimedCallback.before_train(self, trainer)
        HyperParamSetter.before_train(self, trainer)
        # If the schedule rises from 0 and is only looked at after epochs, the first epoch trains nothing.
        is_zero = self.when.steps is None and self._scheduled == 0
        if is_zero and self.schedule(self.last_epoch + 0.5) != 0:
            logger.warning(
                "%s is 0 for the whole of epoch %d, because its schedule is only looked at after epochs. Give "
                "ScheduledHyperParamSetter every_k_steps=1, or let the schedule start above 0.",
                self.param.readable_name,
                trainer.loop.starting_epoch,
            )

    def trigger(self, trainer: tpk.Trainer) -> None:
        """Set the value after an epoch, or within one."""
        self.last_epoch = trainer.epoch_num - (trainer.local_step + 1 < trainer.loop.steps_per_epoch)
        self._set_param()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the value, or set the value of the schedule if the schedule has changed."""
        super().load_state_dict(state)
        # Another callback may have changed the value since, so an unchanged schedule leaves it alone.
        if self._at(self._position) != self._scheduled:
            self._scheduled = None
            self._set_param()

    def _at(self, position: float) -> float | None:
        schedule = self.schedule
        if isinstance(schedule, StepSchedule) and position < schedule.points[0][0]:
            return None
        return schedule(position)

    def _log(self, value: float) -> None:
        if self.when.steps is None:
            super()._log(value)
        elif self._is_steady:  # A value that changes in every step would fill the log.
            logger.info("after step %d, %s is set to %g", self.global_step, self.param.readable_name, value)
            self._is_steady = False

    @property
    def _now(self) -> float:
        if self._step_based:
            return self.global_step
        if self.when.steps is None:
            return self.last_epoch
        trainer = self.trainer
        done = trainer.epoch_num - 1 + (trainer.local_step + 1) / max(trainer.loop.steps_per_epoch, 1)
        # Before the training, no epoch is under way.
        return max(done, trainer.loop.starting_epoch - 1)


class HyperParamSetterWithFunc(HyperParamSetter):
    """Sets a hyperparameter by a function, before the training and at the end of each epoch.

    Args:
        param: a `HyperParam`, or the name of a variable.
        func: takes the number of the last completed epoch (0 before the first) and the current value, and returns the
            new value, or None to leave it unchanged.

    Example:
        ```python
        HyperParamSetterWithFunc("learning_rate", lambda epoch, rate: rate * 0.97)
        ```
    """

    def __init__(self, param: HyperParam | str, func: Callable[[int, Any], float | None]) -> None:
        super().__init__(param)
        self._func = func

    def get_value_to_set(self) -> float | None:
        """Return the result of the function."""
        return self._func(self.last_epoch, self.param.get_value())


class StatMonitorParamSetter(StatisticFollower, HyperParamSetter):
    """Changes a hyperparameter when a statistic has stopped improving.

    It does so if none of the last `last_k` values of the statistic is better than the value before them by more than
    `threshold`. After a change it waits for `last_k` epochs. If the statistic is unknown when the callback first
    needs it, a warning says so.

    Args:
        param: a `HyperParam`, or the name of a variable.
        stat_name: the name of a statistic, such as ``"validation_error"``.
        value_func: takes the current value of the hyperparameter and returns the new one.
        threshold: by how much the statistic has to improve; not negative.
        last_k: the number of values.
        mode: ``"min"`` if smaller values are better, ``"max"`` if larger values are better.

    Raises:
        ConfigError: if `threshold` is negative, `last_k` is not positive, or `mode` is invalid.

    Example:
        Divide the learning rate by 10 when the validation error has not fallen by 0.002 in five epochs:

        ```python
        StatMonitorParamSetter("learning_rate", "validation_error", lambda rate: rate / 10, 0.002, 5)
        ```
    """

    state_attributes = ("_epoch_of_last_change",)

    def __init__(
        self,
        param: HyperParam | str,
        stat_name: str,
        value_func: Callable[[Any], float],
        threshold: float,
        last_k: int,
        mode: str = "min",
    ) -> None:
        StatisticFollower.__init__(self, stat_name, mode)
        HyperParamSetter.__init__(self, param)
        check_not_negative(self, threshold=threshold)
        check_at_least(self, 1, last_k=last_k)
        self.state_key = f"{self.param.readable_name}, {stat_name}"
        self._value_func = value_func
        self._threshold = threshold
        self._last_k = last_k
        self._window = last_k + 1
        self._epoch_of_last_change = 0

    @hookimpl(trylast=True)
    def trigger(self, trainer: tpk.Trainer) -> None:
        """Change the value if the statistic has not improved, after all callbacks that may report it."""
        if trainer.is_chief:
            self.warn_if_unknown()
        super().trigger(trainer)

    def get_value_to_set(self) -> float | None:
        """Return the new value, or None if the statistic has improved. The chief decides for all processes."""
        value = self._find_value() if self.trainer.is_chief else None
        found: float | None = self.trainer.strategy.process_group.broadcast_object(
            f"the value of {self.param.readable_name}", value
        )
        return found

    def _find_value(self) -> float | None:
        values = self.values[-self._window :]
        recent = [self.sign * value for value in values]
        if len(recent) < self._window or self.last_epoch - self._epoch_of_last_change < self._last_k:
            return None
        if min(recent) < recent[0] - self._threshold:
            return None
        self._epoch_of_last_change = self.last_epoch
        logger.info("%s has not improved enough: %s", self.statistic, values)
        return self._value_func(self.param.get_value())


class LearningRateMonitor(Callback):
    """Reports the learning rate as ``learning_rate`` at the end of each epoch, before other callbacks change it.

    It is the rate of the optimizer that minimizes the cost, whether given as a number, a variable, or a tensor such as
    a schedule. With several objectives each has its own name, such as ``generator/learning_rate``. A name that is
    already reported by a summary of the model is left to the summary. An optimizer whose learning rate cannot be found,
    because it depends on the data for example, is not reported.

    Example:
        ```python
        trainer.train(callbacks=["LearningRateMonitor"], monitors=["JSONWriter"], steps_per_epoch=100, max_epoch=10)
        ```
    """

    def __init__(self) -> None:
        self._rates: dict[str, Any] = {}

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Find the learning rates."""
        taken = names_of_scalar_summaries(trainer.graph)
        found = {name: learning_rate_of(optimizer) for name, optimizer in _optimizers_of(trainer).items()}
        unknown = [name for name, rate in found.items() if rate is None]
        if unknown:
            logger.debug("no learning rates were found for %s", ", ".join(unknown))
        self._rates = {name: rate for name, rate in found.items() if rate is not None and name not in taken}

    def after_epoch(self, trainer: tpk.Trainer) -> None:
        """Report the learning rates."""
        tensors = {name: rate for name, rate in self._rates.items() if not isinstance(rate, float)}
        rates = {**self._rates, **(trainer.sess.run(tensors) if tensors else {})}
        for name, rate in rates.items():
            trainer.monitors.put_scalar(name, rate)


def _optimizers_of(trainer: tpk.Trainer) -> dict[str, Any]:
    """Return the optimizers of the first tower by the names under which their learning rates are reported."""
    main_tower = trainer.towers.main
    output = main_tower.output if main_tower is not None else None
    objectives = {cost.ref(): f"{name}/" for name, cost in output.items()} if isinstance(output, Mapping) else {}
    found: dict[str, Any] = {}
    for cost, optimizer in costs_of_first_tower(trainer.graph).values():
        found.setdefault(f"{objectives.get(cost.ref(), '')}learning_rate", optimizer)
    return found
