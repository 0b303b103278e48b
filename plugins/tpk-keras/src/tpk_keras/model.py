"""Keras models and layers as part of a tower function."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs
import numpy as np
import tensorflow as tf

import tpk
from tpk.errors import CheckpointError, ConfigError, TowerError
from tpk.graph.variables import variable_name
from tpk_keras import keras2, keras3
from tpk_keras.call import KerasCall

WEIGHT_FILES = (".keras", ".weights.h5")
_SCOPE_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-]*")


class KerasModel:
    """A Keras model or layer that is part of a tower function.

    Keras usually creates variables by itself and changes some of them when a layer is called. Here,
    `tf.compat.v1.get_variable` creates them, in the variable scope of the tower, so towers share or replicate them as
    the strategy requires. Their names consist of `name` and the names in the model, such as ``model/conv2d/kernel``,
    whatever else the process has built before.

    - The model is called in training mode in training towers, unless `training` says otherwise.
    - Changes of state in a call, such as the moving averages of a batch normalization, become update ops in the
      collection ``UPDATE_OPS``.
    - `losses` holds the losses, for the cost: regularizers of weights and activities, and losses from ``add_loss``.
      They are also in the collections ``REGULARIZATION_LOSSES`` and ``LOSSES``.
    - Random layers, such as dropout, depend on the seed of the graph, the tower and the global step, so a resumed
      training draws the same numbers. See `tpk.graph.random`.
    - The dtype policy of the model sets its precision; the `precision` of a trainer does not affect it.

    The model is built in each tower, so pass a function that builds it, at the top level of a module if the model is
    sent to other processes. With Keras 3 the function may load weights: they become the initial values, and constants
    of the graph. `KerasRestore` avoids these constants and works with every version of Keras.

    Args:
        build: returns a new model or layer each time it is called.
        name: the scope of the variables. Two models in one tower function need different names. ``""`` is the scope of
            the tower itself: the variables have the same names as in the model.
        keras: the package of the model: ``"keras"`` or ``"tf_keras"``; by default the package of `tf.keras`.

    Raises:
        ConfigError: if `build` is not a function, or `name` is not a valid scope.

    Example:
        ```python
        class Digits(tpk.ModelDesc):
            def __init__(self):
                self.net = tpk_keras.KerasModel(build_net)

            def build_graph(self, image, label):
                logits = self.net(image)
                loss = tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)
                return tf.add_n([tf.reduce_mean(loss), *self.net.losses], name="cost")
        ```
    """

    def __init__(self, build: Callable[[], Any], name: str = "model", keras: str | None = None) -> None:
        if not callable(build) or (_is_layer(build) and not inspect.isclass(build)):
            raise ConfigError(
                f"KerasModel was given {build!r}; expected a function without arguments that builds a Keras model: "
                "each tower needs a new one. Write KerasModel(lambda: keras.Sequential([...]))."
            )
        if not isinstance(name, str) or (name and not _SCOPE_NAME.fullmatch(name)):
            raise ConfigError(f"KerasModel(name={name!r}): expected a name of a TensorFlow scope, such as 'generator'.")
        self._build = build
        self._name = name
        self._package = keras
        self._tower: _Tower | None = None
        self._bound: weakref.WeakKeyDictionary[Any, _Bound] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"KerasModel({getattr(self._build, '__qualname__', self._build)}, name={self._name!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the state in graphs."""
        return {"build": self._build, "name": self._name, "keras": self._package}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __call__(self, *inputs: Any, training: bool | None = None, **arguments: Any) -> Any:
        """Add the model to the default graph, and return its outputs.

        Several calls in one tower share the variables.

        Args:
            inputs: tensors, or structures of tensors.
            training: whether to call it in training mode; by default True in training towers only.
            arguments: other arguments of the model's `call`.

        Raises:
            ConfigError: if `build` did not return a model or layer of the Keras package; and in training mode, inside a
                `tf.cond`, a `tf.while_loop` or a `tf.function`.
            TowerError: if another model has the same name, or the model does something that towers do not support.
        """
        if tf.compat.v1.executing_eagerly_outside_functions():
            raise TowerError(
                f"{self!r} was called where TensorFlow executes eagerly. Call it in a tower function, or inside "
                "`with tf.Graph().as_default():`."
            )
        context = tpk.get_current_tower_context()
        if training is None:
            training = context is not None and context.is_training
        if training:
            # Keras does not tell in advance whether the model has updates or losses.
            remedy = "Call the model outside, and let the tf.cond choose among outputs; or call it with training=False."
            tpk.graph.check_can_be_collected(f"{self!r}: an update or a loss of its layers", remedy)
        call = self._in_tower(context, (inputs, arguments))
        outputs = call.call(inputs, arguments, training)
        graph = tf.compat.v1.get_default_graph()
        if graph not in self._bound:
            # The first tower of a graph is the one whose variables are saved.
            self._bound[graph] = _Bound(
                [variable_name(variable) for variable in call.weights],
                tf.nest.map_structure(_spec_of, (inputs, arguments)),
            )
        return outputs

    @property
    def losses(self) -> list[Any]:
        """The losses of the calls in the tower that is being built: scalar tensors.

        Raises:
            TowerError: if the model was not called in this tower.
        """
        return self._here().call.losses

    @property
    def keras_model(self) -> Any:
        """The Keras model of the tower that is being built; its weights are the variables of the tower.

        Raises:
            TowerError: if the model was not called in this tower.
        """
        return self._here().call.model

    def variable_names(self, graph: Any) -> list[str]:
        """Return the names of the variables in `graph`, in the order of the weights of the Keras model.

        Raises:
            TowerError: if the graph has no tower with this model.
        """
        return list(self._bound_in(graph).names)

    def save(self, path: str | os.PathLike[str], values: Mapping[str, Any], graph: Any) -> None:
        """Write the model with these weights to a file that plain Keras can read.

        Args:
            path: a file ``….keras`` for the whole model, or ``….weights.h5``. It is replaced atomically.
            values: an array for each variable, by name, such as a `CheckpointReader`.
            graph: a graph that has the model in a tower.

        Raises:
            ConfigError: if the suffix is invalid, or `build` returns a layer that is not a model.
            CheckpointError: if a variable has no value.
            TowerError: if the graph has no tower with this model.
        """
        target = Path(path)
        suffix = check_weight_file(target)
        bound = self._bound_in(graph)
        missing = [name for name in bound.names if name not in values]
        if missing:
            raise CheckpointError(f"missing values for variables of {self!r}: {', '.join(missing)}.")
        arrays = [np.asarray(values[name]) for name in bound.names]
        method = "save" if suffix == ".keras" else "save_weights"
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as directory:
            # Keras chooses the format by the suffix.
            written = os.path.join(directory, f"model{suffix}")

            def write(model: Any) -> None:
                if not hasattr(model, method):
                    raise ConfigError(
                        f"{self!r} builds a {type(model).__name__}, a layer, not a model; Keras does not write layers "
                        "to files. Put it into a keras.Sequential."
                    )
                getattr(model, method)(written)

            self._flavour().outside(self._keras(), self._build, bound.inputs, arrays, write)
            os.replace(written, target)

    def read_weights(self, path: str | os.PathLike[str], graph: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Return the weights in a file written by Keras, by the names of the variables in `graph`.

        Args:
            path: a file ``….keras`` or ``….weights.h5``, of this model.
            graph: a graph that has the model in a tower.

        Raises:
            CheckpointError: if the file does not exist, or does not fit the model.
            TowerError: if the graph has no tower with this model.
        """
        check_weight_file(path)
        bound = self._bound_in(graph)

        def read(model: Any) -> None:
            try:
                model.load_weights(os.fspath(path))
            except (ValueError, KeyError, OSError) as error:
                raise CheckpointError(f"{os.fspath(path)!r} does not fit {self!r}: {error}") from error

        arrays = self._flavour().outside(self._keras(), self._build, bound.inputs, None, read)
        values = dict(zip(bound.names, arrays, strict=True))
        missing = [name for name, value in values.items() if value is None]
        if missing:
            raise CheckpointError(f"{os.fspath(path)!r} has no weights for {', '.join(missing)} of {self!r}.")
        return {name: value for name, value in values.items() if value is not None}

    def _here(self) -> _Tower:
        tower = self._tower
        if tower is None or not tower.is_here():
            raise TowerError(f"{self!r} was not called in this tower. Call it first: outputs = net(inputs).")
        return tower

    def _in_tower(self, context: tpk.TowerContext | None, inputs: Any) -> KerasCall:
        if self._tower is None or not self._tower.is_here():
            call = self._flavour().build_in_tower(self._keras(), self._build, self._name, inputs)
            scope_name = tf.compat.v1.get_variable_scope().name
            self._tower = _Tower(context, tf.compat.v1.get_default_graph(), scope_name, call)
        return self._tower.call

    def _bound_in(self, graph: Any) -> _Bound:
        if graph not in self._bound:
            raise TowerError(f"the graph has no tower in which {self!r} was called, so its variables are unknown.")
        return self._bound[graph]

    def _keras(self) -> Any:
        name = self._package or tf.keras.Model.__module__.partition(".")[0]
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(f"KerasModel(keras={name!r}) cannot be imported: {error}. Install {name}.") from error

    def _flavour(self) -> Flavour:
        return keras2 if self._keras().__version__.startswith("2.") else keras3


class Flavour(Protocol):
    """The functions that differ between major versions of Keras."""

    def build_in_tower(self, keras: Any, build: Callable[[], Any], name: str, inputs: Any) -> KerasCall:
        """Build a model in the default graph, with variables in the current variable scope.

        Args:
            keras: the package.
            build: returns the model.
            name: the scope of its variables.
            inputs: the positional and the keyword arguments of its first call.
        """

    def outside(
        self,
        keras: Any,
        build: Callable[[], Any],
        inputs: Any,
        weights: Sequence[np.ndarray[Any, Any]] | None,
        use: Callable[[Any], None],
    ) -> list[np.ndarray[Any, Any] | None]:
        """Build the model outside all graphs, set its weights, call `use` with it, and return its weights afterwards.

        If the version can tell, a weight that was never given a value is None.
        """


@attrs.frozen(eq=False)
class _Tower:
    """The tower in which a model was called last."""

    context: tpk.TowerContext | None
    graph: Any
    scope_name: str
    call: KerasCall

    def is_here(self) -> bool:
        return (
            self.context is tpk.get_current_tower_context()
            and self.graph is tf.compat.v1.get_default_graph()
            and self.scope_name == tf.compat.v1.get_variable_scope().name
        )


@attrs.frozen(eq=False)
class _Bound:
    """The variables and inputs of a model in a graph. It does not keep the graph alive.

    Attributes:
        names: the names of the variables, in the order of the weights.
        inputs: the positional and the keyword arguments of the call, with a `tf.TensorSpec` for each tensor.
    """

    names: list[str]
    inputs: Any


def check_weight_file(path: str | os.PathLike[str]) -> str:
    """Return the suffix of a file that Keras writes or reads.

    Raises:
        ConfigError: if it is not one of `WEIGHT_FILES`.
    """
    for suffix in WEIGHT_FILES:
        if os.fspath(path).endswith(suffix):
            return suffix
    raise ConfigError(
        f"{os.fspath(path)!r} does not have the name of a file with Keras weights. Give it the suffix "
        f"{' or '.join(WEIGHT_FILES)}."
    )


def _spec_of(value: Any) -> Any:
    return tf.TensorSpec(value.shape, value.dtype) if tf.is_tensor(value) else value


def _is_layer(value: Any) -> bool:
    return hasattr(value, "trainable_weights")
