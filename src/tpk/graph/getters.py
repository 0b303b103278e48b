"""Custom getters: what the variables are that a piece of graph gets, other than those that it asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.variables import record_variables


@contextmanager
def custom_getter_scope(custom_getter: Callable[..., Any]) -> Iterator[None]:
    """Within the context, `tf.compat.v1.get_variable`, and so every layer, asks a function for its variables.

    Names stay what they are, of variables and of ops. Of several such contexts, the innermost is asked first.

    Args:
        custom_getter: as in `tf.compat.v1.variable_scope`: it is called with what to hand on to (``getter``), the
            ``name`` of the variable, and the other arguments of `get_variable`, all by these names, and returns the
            variable, or a tensor.

    Raises:
        ConfigError: if it cannot be called.

    Example:
        ```python
        def without_biases(getter, name, *args, **kwargs):
            variable = getter(name, *args, **kwargs)
            return tf.zeros_like(variable) if name.endswith("/bias") else variable

        with custom_getter_scope(without_biases):
            logits = network(image)
        ```
    """
    if not callable(custom_getter):
        raise ConfigError(f"custom_getter_scope takes a function getter(getter, name, ...), got {custom_getter!r}.")
    scope = tf.compat.v1.get_variable_scope()
    with tf.compat.v1.variable_scope(scope, custom_getter=custom_getter, auxiliary_name_scope=False):
        yield


def remap_variables(func: Callable[[Any], Any]) -> AbstractContextManager[None]:
    """Return a context within which a piece of graph gets, for each variable, what a function makes of it.

    Args:
        func: takes a variable, and returns what is to be used in its place: a tensor of its shape and type, or the
            variable itself, as it is best for what is not trained, which layers assign to. In a tower that computes in
            16 bits it takes tensors of these; where it depends on the name, write a `custom_getter_scope`.

    Returns:
        The context.

    Raises:
        ConfigError: if `func` cannot be called.

    Example:
        Weights of one bit, whose gradients pass through (DoReFa-Net, https://arxiv.org/abs/1606.06160):

        ```python
        @tf.custom_gradient
        def sign(x):
            return tf.sign(x) * tf.reduce_mean(tf.abs(x)), lambda gradient: gradient

        with remap_variables(lambda variable: sign(variable) if variable.op.name.endswith("/kernel") else variable):
            logits = network(image)
        ```
    """
    if not callable(func):
        raise ConfigError(f"remap_variables takes a function of a variable, got {func!r}.")

    def get_remapped(getter: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return func(getter(*args, **options))

    return custom_getter_scope(get_remapped)


def freeze_variables(stop_gradient: bool = True, skip_collection: bool = False) -> AbstractContextManager[None]:
    """Return a context within which a piece of graph gets variables that are not trained through it.

    With both arguments false it does nothing. A model of Keras 2 takes variables only: freeze it by
    ``stop_gradient=False, skip_collection=True``.

    Args:
        stop_gradient: what it gets of a trainable variable is `tf.stop_gradient` of it. The variable itself stays
            trainable: another piece of graph that shares it may train it, and weight decay that takes it from a
            collection still reaches it.
        skip_collection: variables that are created here are in ``MODEL_VARIABLES`` in place of
            ``TRAINABLE_VARIABLES``, so that nobody trains them, and nothing that goes by that collection sees them.

    Returns:
        The context.

    Example:
        Fine-tuning: the backbone stays what it was, and the new head is trained.

        ```python
        with freeze_variables(skip_collection=True):
            features = backbone(image)
        logits = tpk.layers.dense(features, 10)
        ```
    """
    model_variables = tf.compat.v1.GraphKeys.MODEL_VARIABLES

    def get_frozen(getter: Callable[..., Any], *args: Any, **options: Any) -> Any:
        is_trainable = options.get("trainable") is not False
        if is_trainable and skip_collection:
            options["trainable"] = False
        # What it gets may be a tensor, made of the variable by a context around; and one that is shared is not new.
        with record_variables() as created:
            variable = getter(*args, **options)
        if is_trainable and skip_collection:
            tf.compat.v1.get_collection_ref(model_variables).extend(created)
        return tf.stop_gradient(variable) if is_trainable and stop_gradient else variable

    return custom_getter_scope(get_frozen)
