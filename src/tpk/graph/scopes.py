"""Variable scopes and name scopes of functions, collections and their scopes, and custom getters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.variables import record_variables
from tpk.tf_internals import control_flow_contexts

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_Decorator = Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]

current_tower: ContextVar[Any] = ContextVar("tpk_current_tower", default=None)
"""The `TowerContext` of the tower that is being built; None outside of towers."""


def auto_reuse_variable_scope(func: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorate a function that creates variables, so that each further call in the same variable scope shares them.

    The first call in a variable scope of a graph creates the variables. A later call that would create others is an
    error of TensorFlow, as with ``reuse=True``; with ``reuse=tf.compat.v1.AUTO_REUSE`` it would create them. In a model
    with several towers, the first call in each tower has the reuse mode of the tower.

    Args:
        func: any function.

    Example:
        ```python
        @tpk.auto_reuse_variable_scope
        def embed(image):
            return tpk.layers.dense(tpk.layers.flatten(image), 64, name="embed")

        distance = tf.norm(embed(left) - embed(right), axis=1)
        ```
    """
    called_in: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    @functools.wraps(func)
    def shared(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        scope = tf.compat.v1.get_variable_scope()
        names = called_in.setdefault(tf.compat.v1.get_default_graph(), set())
        if scope.name not in names:
            names.add(scope.name)
            return func(*args, **kwargs)
        with tf.compat.v1.variable_scope(scope, reuse=True, auxiliary_name_scope=False):
            return func(*args, **kwargs)

    return shared


def under_name_scope(name: str | None = None) -> _Decorator[_Arguments, _Result]:
    """Decorate a function so that each call is in a name scope, which does not affect names of `get_variable`.

    Args:
        name: the name of the scope; by default the name of the function. Repeated names are numbered, as always.

    Raises:
        ConfigError: if it decorates a function without parentheses: write ``@under_name_scope()``.

    Example:
        ```python
        @tpk.under_name_scope()
        def huber_loss(error):
            return tf.where(tf.abs(error) < 1, error**2 / 2, tf.abs(error) - 0.5)  # ops are called huber_loss/…
        ```
    """
    return _under("under_name_scope", tf.name_scope, name)


def under_variable_scope(name: str | None = None) -> _Decorator[_Arguments, _Result]:
    """Decorate a function so that each call is in a variable scope, and so in a name scope.

    A second call creates variables with the same names, which is an error of TensorFlow unless they are shared; see
    `auto_reuse_variable_scope`.

    Args:
        name: the name of the scope; by default the name of the function.

    Raises:
        ConfigError: if it decorates a function without parentheses: write ``@under_variable_scope()``.

    Example:
        ```python
        @tpk.under_variable_scope()
        def generator(noise):
            return tpk.layers.dense(noise, 64)  # its variables are generator/dense/kernel and generator/dense/bias
        ```
    """
    return _under("under_variable_scope", tf.compat.v1.variable_scope, name)


def _under(
    decorator: str, scope: Callable[[str], AbstractContextManager[Any]], name: str | None
) -> _Decorator[_Arguments, _Result]:
    if callable(name):
        raise ConfigError(
            f"@{decorator} is a function that returns a decorator: write @{decorator}(), with parentheses."
        )

    def decorate(func: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(func)
        def scoped(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            with scope(name or func.__name__):
                return func(*args, **kwargs)

        return scoped

    return decorate


def cached_name_scope(name: str, top_level: bool = True) -> AbstractContextManager[Any]:
    """Return a context that is the same name scope each time, where `tf.name_scope` would give it a number.

    It keeps related ops, such as the summaries of many layers, together in a picture of the graph.

    Args:
        name: the name of the scope.
        top_level: ignore the current scope, such as the scope of a tower.

    Example:
        ```python
        with tpk.cached_name_scope("gradient-norms"):
            norm = tf.norm(gradient)  # gradient-norms/norm, the next one gradient-norms/norm_1
        ```
    """
    around = "" if top_level else tf.compat.v1.get_default_graph().get_name_scope()
    # With the slash at the end, the name is not made unique.
    scope: AbstractContextManager[Any] = tf.name_scope(f"{around}/{name}/" if around else f"{name}/")
    return scope


_BRANCHES = {
    "CondBranchFuncGraph": "a tf.cond",
    "WhileCondFuncGraph": "a tf.while_loop",
    "WhileBodyFuncGraph": "a tf.while_loop",
}


def collection_sizes() -> dict[str, int]:
    """Return how many items each collection of the default graph holds."""
    graph = tf.compat.v1.get_default_graph()
    return {key: len(graph.get_collection_ref(key)) for key in graph.get_all_collection_keys()}


def added_since(sizes: dict[str, int]) -> dict[str, list[Any]]:
    """Return the items that each collection of the default graph gained since it had these `sizes`."""
    graph = tf.compat.v1.get_default_graph()
    gained = {key: graph.get_collection(key)[sizes.get(key, 0) :] for key in graph.get_all_collection_keys()}
    return {key: items for key, items in gained.items() if items}


def truncate(keys: Iterable[str], sizes: dict[str, int]) -> None:
    """Remove the items that the collections `keys` of the default graph gained since they had these `sizes`."""
    graph = tf.compat.v1.get_default_graph()
    for key in keys:
        del graph.get_collection_ref(key)[sizes.get(key, 0) :]


@contextmanager
def freeze_collection(keys: Iterable[str]) -> Iterator[None]:
    """Discard additions to the collections `keys` of the default graph at the end of the context.

    Args:
        keys: names of collections, e.g. ``[tf.compat.v1.GraphKeys.UPDATE_OPS]``.

    Example:
        ```python
        with freeze_collection([tf.compat.v1.GraphKeys.SUMMARIES]):
            build_validation_graph()
        ```
    """
    backup = backup_collection(keys)
    try:
        yield
    finally:
        restore_collection(backup)


def backup_collection(keys: Iterable[str] | None = None) -> dict[str, tuple[Any, ...]]:
    """Return the current items of collections of the default graph, for `restore_collection`.

    Args:
        keys: the names of the collections; by default all.

    Raises:
        ConfigError: if `keys` is a string.

    Example:
        ```python
        kept = backup_collection([tf.compat.v1.GraphKeys.LOSSES])
        build_auxiliary_graph()
        restore_collection(kept)
        ```
    """
    if isinstance(keys, str):
        raise ConfigError(f"backup_collection takes a list of names, got {keys!r}. Write [{keys!r}].")
    graph = tf.compat.v1.get_default_graph()
    kept = graph.get_all_collection_keys() if keys is None else keys
    return {key: tuple(graph.get_collection(key)) for key in kept}


def restore_collection(backup: Mapping[str, Sequence[Any]]) -> None:
    """Restore collections of the default graph to the items of a `backup_collection`.

    Other collections do not change.

    Args:
        backup: the return value of `backup_collection`.
    """
    graph = tf.compat.v1.get_default_graph()
    for key, items in backup.items():
        graph.get_collection_ref(key)[:] = items


def graph_records(graph: Any, name: str) -> list[Any]:
    """Return the private list of `graph` with this name, to read or to append to.

    It is a collection whose key is not a string, so exported meta graphs leave it out.
    """
    records: list[Any] = graph.get_collection_ref((f"tpk_{name}",))
    return records


def check_graph_mode(what: str) -> None:
    """Raise if TensorFlow executes eagerly here or around this function, so that there is no graph to add `what` to."""
    if tf.compat.v1.executing_eagerly_outside_functions():
        raise ConfigError(
            f"{what} adds to a graph, but TensorFlow executes eagerly here. Build the model inside "
            "`with tf.Graph().as_default():`; a trainer does so when it calls the tower function."
        )


def check_can_be_collected(what: str, remedy: str) -> None:
    """Check that tensors and ops created in the default graph can be passed on in a collection.

    Tensors and ops inside a `tf.cond`, a `tf.while_loop` (also `tf.map_fn`) or a `tf.function` are not part of the
    surrounding graph. Code that takes them from a collection would fail much later, or never find them.

    Args:
        what: the beginning of the message: the caller and the object to collect.
        remedy: the end of the message.

    Raises:
        ConfigError: inside a branch, a loop or a function.

    Example:
        ```python
        check_can_be_collected("my_layer 'norm': the update of its average", "Build the layer outside.")
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
        ```
    """
    around = control_flow_around()
    if around is not None:
        raise ConfigError(
            f"{what} is created inside {around}, so it cannot be used outside, through a collection. {remedy}"
        )


def control_flow_around() -> str | None:
    """Return the construct that separates new ops from the surrounding graph, such as ``"a tf.cond"``, or None.

    A function that is called eagerly has no surrounding graph, only its own collections.
    """
    graph = tf.compat.v1.get_default_graph()
    for context in control_flow_contexts(graph):
        if context.IsCondContext() or context.IsWhileContext():
            return "a tf.cond" if context.IsCondContext() else "a tf.while_loop"
    branch = _BRANCHES.get(type(graph).__name__)
    if branch is not None or not graph.building_function:
        return branch
    with tf.init_scope():
        return None if tf.executing_eagerly() else f"the function {graph.name!r}"


@contextmanager
def custom_getter_scope(custom_getter: Callable[..., Any]) -> Iterator[None]:
    """Use a function as getter for `tf.compat.v1.get_variable`, and so for all layers, within the context.

    Names of variables and ops do not change. With several such contexts, the innermost getter is called first.

    Args:
        custom_getter: as in `tf.compat.v1.variable_scope`: called with the next getter (``getter``), the ``name`` of
            the variable, and the other arguments of `get_variable` by keyword. It returns the variable, or a tensor.

    Example:
        ```python
        def without_biases(getter, name, *args, **kwargs):
            variable = getter(name, *args, **kwargs)
            return tf.zeros_like(variable) if name.endswith("/bias") else variable

        with custom_getter_scope(without_biases):
            logits = network(image)
        ```
    """
    scope = tf.compat.v1.get_variable_scope()
    with tf.compat.v1.variable_scope(scope, custom_getter=custom_getter, auxiliary_name_scope=False):
        yield


def remap_variables(func: Callable[[Any], Any]) -> AbstractContextManager[None]:
    """Return a context in which the graph uses the result of a function instead of each variable.

    Args:
        func: takes a variable, and returns what the graph uses instead: a tensor of its shape and type, or the
            variable itself. Return variables that are not trained unchanged, because layers assign to them. In a tower
            that computes in 16 bits, `func` gets tensors of that type; if it needs the name, write a
            `custom_getter_scope`.

    Example:
        One-bit weights with a straight-through gradient (DoReFa-Net, https://arxiv.org/abs/1606.06160):

        ```python
        @tf.custom_gradient
        def sign(x):
            return tf.sign(x) * tf.reduce_mean(tf.abs(x)), lambda gradient: gradient

        with remap_variables(lambda variable: sign(variable) if variable.op.name.endswith("/kernel") else variable):
            logits = network(image)
        ```
    """

    def get_remapped(getter: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return func(getter(*args, **options))

    return custom_getter_scope(get_remapped)


def freeze_variables(stop_gradient: bool = True, skip_collection: bool = False) -> AbstractContextManager[None]:
    """Return a context in which variables are used without being trained.

    With both arguments false it does nothing. A Keras 2 model needs variables, not tensors: freeze it by
    ``stop_gradient=False, skip_collection=True``.

    Args:
        stop_gradient: use `tf.stop_gradient` of each trainable variable. The variable itself stays trainable: other
            parts of the graph that share it may train it, and weight decay of all trainable variables includes it.
        skip_collection: add variables that are created here to ``MODEL_VARIABLES`` instead of
            ``TRAINABLE_VARIABLES``, so that they are not trained, and users of that collection do not see them.

    Example:
        Fine-tuning: the backbone does not change, and only the new head is trained.

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
        # Not the result: an outer getter may return a tensor, and a shared variable is not new.
        with record_variables() as created:
            variable = getter(*args, **options)
        if is_trainable and skip_collection:
            tf.compat.v1.get_collection_ref(model_variables).extend(created)
        return tf.stop_gradient(variable) if is_trainable and stop_gradient else variable

    return custom_getter_scope(get_frozen)
