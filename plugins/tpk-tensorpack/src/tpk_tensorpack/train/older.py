"""Interfaces of tensorpack 0.1 to 0.8: trainers created from a configuration, models with a cost.

The current classes use these as base classes or decorators, and are otherwise independent of them. A trainer created
from a `TrainConfig` stores it as ``config``, and its ``train()`` needs no arguments.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from tpk.errors import ConfigError
from tpk_tensorpack.input_source import QueueInput, StagingInput

__all__ = ["InputDesc", "InputVar", "StagingInputWrapper"]

Class = TypeVar("Class", bound=type)
Method = Callable[..., Any]


class InputDesc(tf.TensorSpec):  # type: ignore[misc]
    """A model input: a `tf.TensorSpec` with a different order of arguments.

    Args:
        type: the dtype.
        shape: the shape, with None for unknown sizes.
        name: the name.
    """

    __slots__ = ()

    def __init__(self, type: Any, shape: Any, name: str) -> None:
        super().__init__(shape, type, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return InputDesc, (self.dtype, self.shape, self.name)

    @property
    def type(self) -> Any:
        """Its dtype."""
        return self.dtype

    def build_placeholder(self) -> Any:
        """Return a new placeholder."""
        return tf.compat.v1.placeholder(self.dtype, self.shape, self.name)


InputVar = InputDesc


def StagingInputWrapper(input: Any, devices: Sequence[str] | None = None) -> StagingInput:
    """Return a `StagingInput`.

    Args:
        input: an input source.
        devices: ignored: data is staged on the devices of the towers.
    """
    return StagingInput(input)


class OlderModel:
    """A model defined by ``_get_inputs``, ``_build_graph(inputs)``, ``self.cost`` and ``_get_optimizer``."""

    def inputs(self) -> list[Any]:
        """Return a `tf.TensorSpec`, or a placeholder, for each argument of `build_graph`."""
        return list(self._older("_get_inputs", "has no inputs: define the method")())

    def build_graph(self, *args: Any) -> Any:
        """Add a replicate of the model to the graph; return its cost if the trainer is a single-cost trainer."""
        build = self._older("_build_graph", "has no graph: define build_graph(*inputs)")
        inputs = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
        vars(self).pop("cost", None)  # left by another tower
        cost = build(list(inputs))
        return getattr(self, "cost", None) if cost is None else cost

    def optimizer(self) -> Any:
        """Return a new `tf.compat.v1.train.Optimizer`."""
        return self._older("_get_optimizer", "has no optimizer: define the method")()

    def get_inputs_desc(self) -> list[InputDesc]:
        """Return the result of `inputs` as `InputDesc`s."""
        signature = self.get_input_signature()  # type: ignore[attr-defined]
        return [InputDesc(spec.dtype, spec.shape, spec.name) for spec in signature]

    def get_cost(self) -> Any:
        """Return the cost of the most recent tower.

        Raises:
            ConfigError: the model has no cost.
        """
        cost = vars(self).get("cost")
        if cost is None:
            raise ConfigError(f"{type(self).__name__} has no cost: set self.cost in _build_graph")
        return cost

    def _older(self, name: str, otherwise: str) -> Method:
        method: Method | None = getattr(self, name, None)
        if method is None:
            raise NotImplementedError(f"{type(self).__name__} {otherwise}")
        return method


class OlderConfig:
    """The former options of a `TrainConfig`: an optimizer, and the GPUs of towers.

    Args:
        nr_tower: the number of training towers.
        tower: the GPU numbers of the training towers, instead of `nr_tower`.
        predict_tower: the GPU numbers of predictors, assigned in turn; -1 is the CPU.
        optimizer: replaces the model's optimizer.

    Raises:
        ConfigError: both `nr_tower` and `tower` are given, or GPU numbers are invalid.
    """

    def __init__(
        self,
        nr_tower: int | None = 1,
        tower: int | Sequence[int] | None = None,
        predict_tower: int | Sequence[int] | None = None,
        optimizer: Any = None,
    ) -> None:
        if tower is not None and nr_tower not in (None, 1):
            raise ConfigError(f"{type(self).__name__} got both nr_tower and tower: use tower, the GPU numbers")
        self.optimizer = optimizer
        self.nr_tower = 1 if nr_tower is None else nr_tower
        if tower is not None:
            self.tower = _numbers("tower", tower)
        self.predict_tower = _numbers("predict_tower", 0 if predict_tower is None else predict_tower)

    @property
    def nr_tower(self) -> int:
        """The number of training towers."""
        return len(self.tower)

    @nr_tower.setter
    def nr_tower(self, nr_tower: int) -> None:
        self.tower = _numbers("nr_tower", range(nr_tower))


def takes_config(cls: Class) -> Class:
    """Decorate a trainer to also accept a configuration, instead of the GPUs if it takes any.

    It also accepts the former arguments ``input_queue``, a queue for the data flow, and ``predict_tower``.
    """
    initialize: Method = cls.__init__  # type: ignore[misc]
    takes_gpus = "gpus" in inspect.signature(initialize).parameters

    @functools.wraps(initialize)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if "config" in kwargs:
            args = (kwargs.pop("config"), *args)
        if args and isinstance(args[0], OlderConfig):
            config, *rest = args
            args = (config.tower, *rest) if takes_gpus else ()
            self.config, self.model = config, config.model
            _take_options(config, () if takes_gpus else rest, kwargs)
        initialize(self, *args, **kwargs)

    cls.__init__ = __init__  # type: ignore[misc]
    return cls


def _take_options(config: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    options = {**dict(zip(("input_queue", "predict_tower"), args)), **kwargs}  # noqa: B905 - there may be fewer
    # Whether to stage data on GPUs is now decided automatically.
    for name in ("input_queue", "predict_tower", "gpu_prefetch"):
        kwargs.pop(name, None)
    if options.get("input_queue") is not None:
        if config.dataflow is None:
            raise ConfigError("input_queue= is for a data flow, but the TrainConfig has none: pass dataflow=")
        config.dataflow, config.data = None, QueueInput(config.dataflow, options["input_queue"])
    if options.get("predict_tower") is not None:
        config.predict_tower = _numbers("predict_tower", options["predict_tower"])


def train(trainer: Any) -> None:
    """Train a trainer with the configuration that it was created from."""
    with trainer.graph.as_default():
        trainer._setup()
    trainer.train_with_defaults(**trainer.config.of_training())


def _numbers(name: str, given: Any) -> list[int]:
    numbers = [given] if isinstance(given, int) else given
    if not isinstance(numbers, list | tuple | range) or not numbers or not all(isinstance(n, int) for n in numbers):
        raise ConfigError(f"TrainConfig({name}={given!r}): expected GPU numbers, such as [0, 1]")
    return list(numbers)
