"""Calls of Keras models in towers: the part that all versions of Keras share."""

from __future__ import annotations

import abc
import contextvars
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, TypeVar

import tensorflow as tf

import tpk
from tpk.errors import ConfigError, TowerError
from tpk.graph.random import step_seed
from tpk.graph.variables import unique_name

GraphKeys = tf.compat.v1.GraphKeys
Result = TypeVar("Result")


class KerasCall(abc.ABC):
    """A model in a tower, and the losses of its calls there.

    Args:
        model: the model.

    Attributes:
        model: the model, a Keras object.
        losses: scalar tensors.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.losses: list[Any] = []
        self._has_losses_of_weights = False

    @property
    @abc.abstractmethod
    def weights(self) -> list[Any]:
        """The graph's variables, in the order of the model's weights."""

    @abc.abstractmethod
    def call(self, inputs: Sequence[Any], arguments: dict[str, Any], training: bool) -> Any:
        """Call the model, and return its outputs."""

    @abc.abstractmethod
    def losses_of_weights(self) -> Iterable[Any]:
        """Return the losses of the weights, which do not depend on the inputs."""

    def add_losses(self, losses: Iterable[Any]) -> None:
        """Collect the losses of a call and, once, the losses of the weights."""
        of_weights = [] if self._has_losses_of_weights else self.losses_of_weights()
        self._has_losses_of_weights = True
        scalars, regularization = [[_scalar(loss) for loss in some] for some in (losses, of_weights)]
        self.losses += [*scalars, *regularization]
        graph = tf.compat.v1.get_default_graph()
        for loss in scalars:
            graph.add_to_collection(GraphKeys.LOSSES, loss)
        context = tpk.get_current_tower_context()
        # Towers that share variables share their regularization.
        if context is None or context.has_own_variables:
            with tf.name_scope("Regularizer"):  # tells other towers that the loss belongs to weights
                for loss in regularization:
                    graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, tf.identity(loss))


def name_scope(name: str) -> Any:
    """Return the context of the name scope of a model, even if its variables have no scope."""
    return tf.name_scope(name or "model")


def variable_scope(name: str) -> Any:
    """Return the context of the variable scope `name`, or of the current scope if the name is empty."""
    return tf.compat.v1.variable_scope(name, auxiliary_name_scope=False) if name else nullcontext()


def check_model(model: Any, keras: Any) -> Any:
    """Return `model` after checking that it is a model or layer of the expected Keras package.

    Raises:
        ConfigError: if it is something else.
    """
    if not isinstance(model, keras.layers.Layer):
        raise ConfigError(
            f"the function of a KerasModel returned {model!r}, a {type(model).__module__}.{type(model).__name__}; "
            f"expected a model or a layer of {keras.__name__} {keras.__version__}. For another Keras, name its "
            "package: KerasModel(build, keras='tf_keras')."
        )
    return model


def check_synchronized(layers: Iterable[Any]) -> None:
    """Check that no layer synchronizes statistics by `tf.distribute`, which would not see the other towers.

    Raises:
        TowerError: if a layer does.
    """
    context = tpk.get_current_tower_context()
    for layer in layers:
        if getattr(layer, "synchronized", False) and context is not None and context.is_training and context.total > 1:
            raise TowerError(
                f"the layer {layer.name!r} has synchronized=True, which Keras does by tf.distribute; it would "
                "not reach the other towers. Leave that out, or use tpk.layers.batch_normalization(sync=True)."
            )


def get_variable(name: str, **options: Any) -> Any:
    """Return the variable `name` in the current variable scope, as `tf.compat.v1.get_variable` does.

    Raises:
        TowerError: if it exists already, and the scope does not share it.
    """
    try:
        return tf.compat.v1.get_variable(name, use_resource=True, **options)
    except ValueError as error:
        if "already exists" not in str(error):
            raise
        full_name = f"{tf.compat.v1.get_variable_scope().name}/{name}".removeprefix("/")
        raise TowerError(
            f"there is a variable {full_name!r} in this tower already. Give each KerasModel in a tower function a "
            "different name: KerasModel(build, name='generator')."
        ) from error


def draw_seed(name: str) -> Any:
    """Return a seed for ops of this step: ``int64`` of shape [2]. Both numbers look random from step to step.

    So layers that count up from it do not repeat numbers of other steps.
    """
    with tf.init_scope(), tf.name_scope(name), tf.xla.experimental.jit_scope(compile_ops=False):
        return tf.random.stateless_uniform([2], step_seed("step_seed"), minval=None, maxval=None, dtype=tf.int64)


def unique_names(names: Iterable[str], taken: set[str]) -> list[str]:
    """Return `names` as valid names in TensorFlow, numbered if they are in `taken`, and add them to `taken`."""
    return [unique_name(re.sub(r"[^A-Za-z0-9_.\-/]", "_", name), taken) for name in names]


def in_fresh_thread(func: Callable[[], Result]) -> Result:
    """Return the result of `func` in a new thread.

    The counters of Keras for names and the default graph are thread-local, so the user's state is neither seen nor
    changed.
    """
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="tpk-keras") as executor:
        return executor.submit(context.run, func).result()


def _scalar(loss: Any) -> Any:
    loss = tf.convert_to_tensor(loss)
    return loss if loss.shape.rank == 0 else tf.reduce_mean(loss)
