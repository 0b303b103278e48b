"""A model: its ``model_fn`` and the ``input_fn`` of a call, called by signature in a graph."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

import attrs
import tensorflow as tf

from tpk_estimator.run_config import RunConfig
from tpk_estimator.spec import EstimatorSpec, ModeKeys

_MODEL_ARGUMENTS = ("features", "labels", "mode", "params", "config")


@attrs.frozen(eq=False)
class Inputs:
    """The tensors that an ``input_fn`` returned.

    Attributes:
        features: a structure of tensors.
        labels: a structure of tensors, or None.
        iterator: the initializable iterator over the dataset, if the ``input_fn`` returned a dataset.
    """

    features: Any
    labels: Any = None
    iterator: Any = None

    @property
    def hooks(self) -> list[Any]:
        """The session hooks that the input needs."""
        return [] if self.iterator is None else [_InitializeIterator(self.iterator)]

    @property
    def ops(self) -> list[Any]:
        """The ops that take one element."""
        tensors = tf.nest.flatten((self.features, self.labels), expand_composites=True)
        return list(dict.fromkeys(each.op for each in tensors if isinstance(each, tf.Tensor)))

    @property
    def has_end(self) -> bool:
        """Whether the input may end: it comes from a dataset or from queues."""
        return self.iterator is not None or any(
            (
                tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS),
                any(op.type == "IteratorGetNext" for op in self.ops),
            )
        )


@attrs.frozen(eq=False)
class Model:
    """A model function with its parameters.

    Args:
        model_fn: the function, which returns an `EstimatorSpec`.
        params: passed to functions with an argument ``params``.
        config: passed to functions with an argument ``config``.

    Raises:
        ValueError: if `model_fn` has no argument ``features``, an unknown argument, or none for `params`.
    """

    model_fn: Callable[..., Any]
    params: Any
    config: RunConfig

    def __attrs_post_init__(self) -> None:
        names, name = argument_names(self.model_fn), getattr(self.model_fn, "__name__", self.model_fn)
        unknown = [each for each in names if each not in _MODEL_ARGUMENTS]
        if "features" not in names or unknown:
            raise ValueError(
                f"model_fn {name!r} must take features and may take {', '.join(_MODEL_ARGUMENTS[1:])}, "
                f"but it takes {', '.join(names) or 'nothing'}."
            )
        if self.params is not None and "params" not in names:
            raise ValueError(f"params are given, but model_fn {name!r} has no argument params to receive them.")

    def build(self, input_fn: Callable[..., Any], mode: str) -> tuple[Inputs, EstimatorSpec]:
        """Add the global step, the input and the model to the default graph.

        The order of ops determines the seeds of random ops, so it is that of TensorFlow's Estimator.
        """
        create_global_step(self.config)
        if mode == ModeKeys.TRAIN:
            # A hook creates the tensor that hooks read; TensorFlow has no public function for that.
            tf.compat.v1.train.GlobalStepWaiterHook(0).begin()
        params = self.params_for(mode)
        inputs = self.call_input_fn(input_fn, mode, params)
        labels = None if mode == ModeKeys.PREDICT else inputs.labels
        return inputs, self.call_model_fn(inputs.features, labels, mode, params)

    def params_for(self, mode: str) -> Any:
        """Return the parameters that the functions get in a mode: a dict, or an object such as `HParams`."""
        return self.params or {}

    def call_input_fn(self, input_fn: Callable[..., Any], mode: str, params: Any) -> Inputs:
        """Call an ``input_fn`` on the CPU.

        Raises:
            ValueError: if it returns neither a dataset, nor features, nor features and labels.
        """
        with tf.device("/cpu:0"):
            result = input_fn(**self.arguments(input_fn, mode=mode, params=params, input_context=None))
        iterator = None
        if isinstance(result, tf.data.Dataset):
            iterator = tf.compat.v1.data.make_initializable_iterator(result)
            result = iterator.get_next()
        if not isinstance(result, list | tuple):
            return Inputs(result, None, iterator)
        if len(result) != 2:
            raise ValueError(
                f"input_fn returned {len(result)} values: return (features, labels), or a dataset of such pairs."
            )
        features, labels = result
        return Inputs(features, labels, iterator)

    def call_model_fn(self, features: Any, labels: Any, mode: str, params: Any = None) -> EstimatorSpec:
        """Call the ``model_fn``; without `params`, with those of the model.

        Raises:
            ValueError: if it has no argument for labels but there are some, or returns no `EstimatorSpec`.
        """
        name = getattr(self.model_fn, "__name__", self.model_fn)
        if labels is not None and "labels" not in argument_names(self.model_fn):
            raise ValueError(f"input_fn returns labels, but model_fn {name!r} has no argument labels to receive them.")
        params = (self.params or {}) if params is None else params
        arguments = self.arguments(self.model_fn, labels=labels, mode=mode, params=params)
        spec = self.as_spec(self.model_fn(features=features, **arguments))
        if not isinstance(spec, EstimatorSpec):
            raise ValueError(f"model_fn {name!r} must return an EstimatorSpec, but returned {spec!r}.")
        return spec

    def as_spec(self, result: Any) -> Any:
        """Return what a ``model_fn`` returned as an `EstimatorSpec`, if it is one of another kind."""
        return result

    def arguments(self, function: Callable[..., Any], params: Any, **given: Any) -> dict[str, Any]:
        """Return the arguments that the function takes; it may change its parameters."""
        given |= {"params": copy.deepcopy(params), "config": copy.copy(self.config)}
        return {name: value for name, value in given.items() if name in argument_names(function)}


def create_global_step(config: RunConfig) -> Any:
    """Seed the default graph, and create the global step in it."""
    tf.compat.v1.set_random_seed(config.tf_random_seed)
    return tf.compat.v1.train.create_global_step()


def argument_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments of a function that a caller can still give."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = function.keywords if isinstance(function, functools.partial) else {}
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind not in kinds and each.name not in given]


class _InitializeIterator(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Starts the iterator over the dataset of an ``input_fn``."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def begin(self) -> None:
        self._initializer = self._iterator.initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._initializer)
