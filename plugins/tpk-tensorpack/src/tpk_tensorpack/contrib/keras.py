"""Train Keras models with tensorpack's trainers.

This uses the Keras of `tf.keras`: Keras 3 since TensorFlow 2.16, or Keras 2 (``tf_keras``) with the environment
variable ``TF_USE_LEGACY_KERAS=1``. Functions that refer to a module of ``tf_keras`` use that one.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf
import tpk_keras

from tpk.errors import ConfigError
from tpk.plugin import also_spelled
from tpk_tensorpack.callbacks import Callback, InferenceRunner, ScalarStats
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.tfutils.summary import add_moving_summary
from tpk_tensorpack.tfutils.tower import get_current_tower_context
from tpk_tensorpack.train.tower import SingleCostTrainer, apply_default_prefetch
from tpk_tensorpack.train.trainers import SimpleTrainer, SyncMultiGPUTrainerParameterServer
from tpk_tensorpack.utils.gpu import get_num_gpu

__all__ = ["KerasModel", "KerasPhaseCallback", "setup_keras_trainer"]

v1 = tf.compat.v1

TOTAL_LOSS = "total_loss"
_OLD_NAMES = {"inputs_desc": "input_signature", "targets_desc": "target_signature"}
_ACCURACIES = "'categorical_accuracy', 'sparse_categorical_accuracy' or 'binary_accuracy'"


class KerasModel:
    """A Keras model with its data and trainer.

    Each loss and each metric is reported under its name, the penalties of all layers as ``regularize_cost``, and the
    minimized sum as ``total_loss``.

    Args:
        get_model: takes a Keras input for each tensor in `input_signature` and returns a new model. It is called in
            each tower.
        input_signature: a `tf.TensorSpec` for each input of the model.
        target_signature: a `tf.TensorSpec` for each target.
        input: an `InputSource` or a data flow of the inputs and targets.
        trainer: a trainer of single-cost models; by default one for all GPUs of this process.

    Raises:
        ConfigError: an argument is missing or has the wrong type; the message names it.

    Example:
        ```python
        def get_model(image):
            layers = tf.keras.layers
            return tf.keras.Sequential([layers.InputLayer(input_tensor=image), layers.Flatten(), layers.Dense(10)])


        model = KerasModel(get_model, [image_spec], [label_spec], flow, QueueInputTrainer())
        model.compile(tf.train.AdamOptimizer(1e-3), "categorical_crossentropy", "categorical_accuracy")
        model.fit(validation_data=test_flow, callbacks=[ModelSaver()], steps_per_epoch=100, max_epoch=10)
        ```
    """

    @also_spelled(_OLD_NAMES)
    def __init__(
        self,
        get_model: Callable[..., Any],
        input_signature: Sequence[Any] | None = None,
        target_signature: Sequence[Any] | None = None,
        input: Any = None,
        trainer: Any = None,
    ) -> None:
        needed = {"input_signature": input_signature, "target_signature": target_signature, "input": input}
        for name, given in needed.items():
            if given is None:
                raise CheckError(f"KerasModel needs {name}=")
        self.get_model = get_model
        self.input_signature = input_signature
        self.target_signature = target_signature
        if trainer is None:
            count = get_num_gpu()
            trainer = SimpleTrainer() if count <= 1 else SyncMultiGPUTrainerParameterServer(count)
        self.trainer = _check_trainer(trainer)
        self.input = apply_default_prefetch(input, self.trainer)

    def compile(self, optimizer: Any, loss: str | list[str], metrics: str | list[str] | None = None) -> None:
        """Set up the graph; see `setup_keras_trainer`.

        Args:
            optimizer: a `tf.compat.v1.train.Optimizer`.
            loss: the name of a Keras loss, or one for each output.
            metrics: names of Keras metrics.
        """
        losses, named_metrics = _names("loss", loss), _names("metrics", metrics)
        self._statistics = [*losses, *named_metrics, TOTAL_LOSS]
        setup_keras_trainer(
            self.trainer,
            self.get_model,
            self.input_signature,
            self.target_signature,
            self.input,
            optimizer,
            losses,
            named_metrics,
        )

    def fit(self, validation_data: Any = None, **kwargs: Any) -> None:
        """Train.

        Args:
            validation_data: an `InputSource` or a data flow to evaluate losses and metrics on at the end of each epoch,
                before all other callbacks.
            kwargs: arguments of `Trainer.train_with_defaults`.

        Raises:
            ConfigError: `compile` was not called.
        """
        if not hasattr(self, "_statistics"):
            raise ConfigError("KerasModel.fit() was called before compile()")
        callbacks = list(kwargs.pop("callbacks", None) or ())
        if validation_data is not None:
            callbacks.insert(0, InferenceRunner(validation_data, ScalarStats(self._statistics)))
        self.trainer.train_with_defaults(callbacks=callbacks, **kwargs)


class KerasPhaseCallback(Callback):
    """Feed the learning phase of Keras 2 in each run, for models that use it directly.

    Only `keras.backend.learning_phase` of Keras 2 creates such a placeholder. Layers do not need it.

    Args:
        isTrain: whether the learning phase is training.

    Raises:
        TypeError: `isTrain` is not a bool.
    """

    def __init__(self, isTrain: bool) -> None:
        if not isinstance(isTrain, bool):
            raise CheckError(f"KerasPhaseCallback(isTrain={isTrain!r}): expected a bool")
        self._is_training = isTrain
        self._phases: list[Any] = []

    def _setup_graph(self) -> None:
        self._phases = _learning_phases(self.graph)

    def _before_run(self, ctx: Any) -> Any:
        # The dtype of the placeholder depends on the version of Keras.
        feeds = {phase: phase.dtype.as_numpy_dtype(self._is_training) for phase in self._phases}
        return v1.train.SessionRunArgs(fetches=[], feed_dict=feeds)


@also_spelled(_OLD_NAMES)
def setup_keras_trainer(
    trainer: Any,
    get_model: Callable[..., Any],
    input_signature: Sequence[Any],
    target_signature: Sequence[Any],
    input: Any,
    optimizer: Any,
    loss: list[str],
    metrics: list[str],
) -> None:
    """Set up a trainer's graph with a Keras model; its cost is the sum of the losses and penalties.

    Losses and metrics belong to the outputs and targets in the same order. A model with one output may have several
    metrics.

    Args:
        trainer: a `SingleCostTrainer` without a graph.
        get_model: as for `KerasModel`.
        input_signature: likewise.
        target_signature: likewise.
        input: an `InputSource`.
        optimizer: a `tf.compat.v1.train.Optimizer`.
        loss: the name of a Keras loss for each output.
        metrics: names of Keras metrics.

    Raises:
        ConfigError: an argument has the wrong type, or the model and the names do not match; the message names it.
    """
    _check_trainer(trainer)
    if not isinstance(optimizer, v1.train.Optimizer):
        raise CheckError(
            f"the optimizer of a Keras model is {optimizer!r}; expected one from tf.train, such as "
            "tf.train.AdamOptimizer(1e-3): tensorpack's trainers do not support Keras optimizers"
        )
    losses, named_metrics = _names("loss", loss), _names("metrics", metrics)
    inputs = list(input_signature)
    package = _package_of(get_model)

    def build() -> Any:
        keras = _keras(package)
        return get_model(
            *(keras.Input(batch_shape=spec.shape, dtype=spec.dtype.name, name=spec.name) for spec in inputs)
        )

    net = tpk_keras.KerasModel(build, name="", keras=package)
    keras = _keras(package)
    loss_functions = [_function(keras, name, keras.losses) for name in losses]
    metric_functions = [_function(keras, name, keras.metrics) for name in named_metrics]

    def get_cost(*tensors: Any) -> Any:
        given, targets = tensors[: len(inputs)], tensors[len(inputs) :]
        outputs = tf.nest.flatten(net(*given) if len(given) == 1 else net(list(given)))
        _check_counts(outputs, targets, losses, named_metrics)
        pairs = list(zip(targets, outputs, strict=True))
        costs = list(map(_mean, losses, loss_functions, pairs))
        measured = pairs * len(named_metrics) if len(pairs) == 1 else pairs
        values = list(map(_mean, named_metrics, metric_functions, measured))
        penalty = _penalty(net)
        total = tf.add_n([*costs, penalty], name=TOTAL_LOSS)
        add_moving_summary(penalty, total, *costs, *values)
        return total

    trainer.setup_graph([*inputs, *target_signature], input, get_cost, lambda: optimizer)
    with trainer.graph.as_default():
        if _learning_phases(trainer.graph):
            trainer.register_callback(KerasPhaseCallback(True))


def _check_trainer(trainer: Any) -> Any:
    if not isinstance(trainer, SingleCostTrainer):
        raise CheckError(f"{trainer!r} cannot train a Keras model; expected a trainer such as SimpleTrainer()")
    return trainer


def _names(argument: str, given: Any) -> list[str]:
    names = [given] if isinstance(given, str) else list(given or ())
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(
                f"{argument} of a Keras model contains {name!r}; expected the name of a function in keras.losses or "
                "keras.metrics, which is also its name in reports"
            )
    return names


def _check_counts(
    outputs: Sequence[Any], targets: Sequence[Any], losses: Sequence[str], metrics: Sequence[str]
) -> None:
    if not len(outputs) == len(targets) == len(losses):
        raise CheckError(
            f"the Keras model has {len(outputs)} outputs, {len(targets)} targets and {len(losses)} losses "
            f"({', '.join(losses)}): expected the same number of each"
        )
    if len(outputs) > 1 and metrics and len(metrics) != len(outputs):
        raise ConfigError(
            f"the Keras model has {len(outputs)} outputs and {len(metrics)} metrics ({', '.join(metrics)}): "
            "expected one for each output, or none"
        )


def _function(keras: Any, name: str, home: Any) -> Callable[[Any, Any], Any]:
    """Return the Keras function of targets and outputs with a given name."""
    if name in ("accuracy", "acc"):
        raise ConfigError(f"{name!r} may mean several Keras metrics. Choose one of {_ACCURACIES}")
    found = getattr(home, name, None) or getattr(keras.losses, name, None)
    if not inspect.isfunction(found):
        # Short names such as "mse" are losses in all versions of Keras.
        try:
            found = keras.losses.get(name)
        except ValueError:
            found = None
    if not callable(found):
        raise ConfigError(f"keras.losses and keras.metrics have no function {name!r}: expected a name from there")
    return found  # type: ignore[no-any-return]


def _mean(name: str, function: Callable[[Any, Any], Any], pair: tuple[Any, Any]) -> Any:
    # In a separate scope, so that the name is free for the reported statistic.
    with tf.name_scope(f"{name}_of_keras"):
        value = tf.cast(function(*pair), tf.float32)
    return tf.reduce_mean(value, name=name)


def _penalty(net: tpk_keras.KerasModel) -> Any:
    context = get_current_tower_context()
    if not net.losses or (context is not None and not context.is_training):
        return tf.zeros([], name="empty_regularize_cost")
    return tf.add_n([tf.cast(loss, tf.float32) for loss in net.losses], name="regularize_cost")


def _learning_phases(graph: Any) -> list[Any]:
    return [
        op.outputs[0]
        for op in graph.get_operations()
        if op.type == "PlaceholderWithDefault" and op.name.rpartition("/")[2].startswith("keras_learning_phase")
    ]


def _package_of(get_model: Callable[..., Any]) -> str | None:
    """Return ``"tf_keras"`` if the function refers to that package by a global name; None means `tf.keras`."""
    if not (inspect.isfunction(get_model) or inspect.ismethod(get_model)):
        return None
    used = inspect.getclosurevars(get_model)
    for value in (*used.nonlocals.values(), *used.globals.values()):
        module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(module, str) and module.partition(".")[0] == "tf_keras":
            return "tf_keras"
    return None


def _keras(package: str | None) -> Any:
    return tf.keras if package is None else sys.modules[package]
