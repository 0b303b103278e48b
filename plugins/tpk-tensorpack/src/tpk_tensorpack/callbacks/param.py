"""Hyperparameters and callbacks that set them."""

from __future__ import annotations

from collections.abc import Callable as Function, Sequence
from typing import Any

import numpy as np

import tpk
from tpk_tensorpack.callbacks.base import Callback
from tpk_tensorpack.utils import logger

__all__ = [
    "GraphVarParam",
    "HumanHyperParamSetter",
    "HyperParam",
    "HyperParamSetter",
    "HyperParamSetterWithFunc",
    "ObjAttrParam",
    "ScheduledHyperParamSetter",
    "StatMonitorParamSetter",
]


class HyperParam(tpk.HyperParam):
    """A number that influences training: a subclass overrides ``set_value`` and ``get_value``."""

    _readable_name = ""

    @property
    def readable_name(self) -> str:
        """The name in the log."""
        return self._readable_name


class GraphVarParam(tpk.GraphVarParam):
    """A variable of the graph; see `tpk.GraphVarParam`.

    Args:
        name: the name of the variable.
        shape: ignored: the shape is known from the variable.
    """

    def __init__(self, name: str, shape: Sequence[int] = ()) -> None:
        super().__init__(name)


class ObjAttrParam(tpk.ObjAttrParam):
    """An attribute of an object; see `tpk.ObjAttrParam`."""

    def __init__(self, obj: object, attrname: str, readable_name: str | None = None) -> None:
        super().__init__(obj, attrname, readable_name)


class HyperParamSetter(Callback, tpk.HyperParamSetter):
    """Set a hyperparameter before training and at each trigger to the result of ``_get_value_to_set``, if any.

    Args:
        param: a `HyperParam`, or the name of a variable.
    """

    _enable_before_train = True

    def get_value_to_set(self) -> Any:
        """Return the value to set, or None for no change."""
        return self._get_value_to_set()

    def _get_value_to_set(self) -> Any:
        return super().get_value_to_set()  # type: ignore[safe-super]

    def get_current_value(self) -> Any:
        """Return the current value of the hyperparameter."""
        return self.param.get_value()

    def before_train(self, trainer: Any) -> None:
        """Called before the first epoch."""
        if self._enable_before_train or self._is_underscored("before_train"):
            super().before_train(trainer)
        else:
            self.last_epoch = trainer.loop.starting_epoch - 1


class HumanHyperParamSetter(HyperParamSetter, tpk.HumanHyperParamSetter):
    """Set a hyperparameter to the value in a file in the log directory; see `tpk.HumanHyperParamSetter`.

    Args:
        param: a `HyperParam`, or the name of a variable.
        file_name: the file, with lines such as ``learning_rate:0.001``.
    """

    def __init__(self, param: tpk.HyperParam | str, file_name: str = "hyper.txt") -> None:
        super().__init__(param, file_name)  # type: ignore[call-arg]


class ScheduledHyperParamSetter(HyperParamSetter, tpk.ScheduledHyperParamSetter):
    """Set a hyperparameter by a schedule; see `tpk.ScheduledHyperParamSetter`.

    Args:
        param: a `HyperParam`, or the name of a variable.
        schedule: pairs of an epoch (or step) and the value from its end on.
        interp: None, or ``"linear"``.
        step_based: whether the schedule counts steps.
        set_at_beginning: whether to also set the value for the first epoch before training.
    """

    def __init__(
        self,
        param: tpk.HyperParam | str,
        schedule: Sequence[tuple[int, float]],
        interp: str | None = None,
        step_based: bool = False,
        set_at_beginning: bool = True,
    ) -> None:
        super().__init__(param, schedule, interp, step_based)  # type: ignore[call-arg]
        self._set_at_beginning = set_at_beginning
        self._is_beginning = False

    def before_train(self, trainer: Any) -> None:
        """Called before the first epoch."""
        self._is_beginning = True
        super().before_train(trainer)
        self._is_beginning = False

    def get_value_to_set(self) -> Any:
        """Return the value to set, or None for no change."""
        value = super().get_value_to_set()
        if not self._is_beginning:
            return value
        current = self.get_current_value()
        if value is not None and current is not None and not np.isclose(value, current):
            logger.warning(
                f"According to scheduler {type(self).__name__}, parameter {self.param.readable_name!r} should become "
                f"{value:.7g} at the current point. However its current value is {current:.7g}."
            )
        return value if self._set_at_beginning else None


class HyperParamSetterWithFunc(HyperParamSetter, tpk.HyperParamSetterWithFunc):
    """Set a hyperparameter to a function of the epoch number and its value; see `tpk.HyperParamSetterWithFunc`.

    Args:
        param: a `HyperParam`, or the name of a variable.
        func: takes the number of the finished epoch and the current value; returns the new value, or None.
    """


class StatMonitorParamSetter(HyperParamSetter, tpk.StatMonitorParamSetter):
    """Change a hyperparameter when a statistic has stopped improving.

    A change happens when none of the last `last_k` values is below the first of them by more than `threshold` (or above
    it, with `reverse`); `tpk.StatMonitorParamSetter` looks at one more value. After a change it waits for `last_k`
    epochs.
    """

    def __init__(
        self,
        param: tpk.HyperParam | str,
        stat_name: str,
        value_func: Function[[Any], Any],
        threshold: float,
        last_k: int,
        reverse: bool = False,
    ) -> None:
        mode = "max" if reverse else "min"
        super().__init__(param, stat_name, value_func, threshold, last_k, mode)  # type: ignore[call-arg]
        self._window = last_k
