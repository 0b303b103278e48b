"""Optimizers around an optimizer: their base, their slots, and those that change variables after an update.

Each wrapper is a `tf.compat.v1.train.Optimizer` itself, so they can be put around each other; gradients pass from the
outermost to the innermost, which updates.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.gradients import check_optimizer
from tpk.graph.scopes import freeze_collection
from tpk.graph.variables import variable_name
from tpk.tf_internals import create_slots, read_anew, wrapped_optimizer


class ProxyOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """The base of optimizers around an optimizer: it delegates everything to the wrapped one.

    A subclass overrides either `apply_gradients`, or `_build_update` to add to the update. It creates its variables in
    `_create_slots`, which runs outside scopes and control flow.

    Args:
        opt: the wrapped optimizer.
        name: the name of the wrapper's ops.

    Raises:
        ConfigError: if `opt` is not a `tf.compat.v1.train.Optimizer`.
    """

    def __init__(self, opt: Any, name: str = "ProxyOptimizer") -> None:
        super().__init__(use_locking=False, name=name)
        self._opt = check_optimizer(opt)
        # The slots of this optimizer itself, by their name and ``variable.ref()``.
        self._own_slots: dict[str, dict[Any, Any]] = {}
        self._own_variables: list[Any] = []

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the gradients as the wrapped optimizer computes them."""
        pairs: list[tuple[Any, Any]] = self._opt.compute_gradients(*args, **kwargs)
        return pairs

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Return the op that updates the variables.

        Args:
            grads_and_vars: pairs of a gradient (or None) and its variable.
            global_step: a variable that the op increments, after the update.
            name: of the op.

        Raises:
            ConfigError: if all gradients are None.
        """
        pairs = [(grad, var) for grad, var in grads_and_vars if grad is not None]
        if not pairs:
            raise ConfigError(f"{self.get_name()}.apply_gradients got no gradients: all of them are None.")
        # Before any scope is opened: wrapped or not, an optimizer's variables have the same names.
        with tf.init_scope():
            self._create_slots([var for _, var in pairs])
        graph_keys = tf.compat.v1.GraphKeys
        with freeze_collection([graph_keys.TRAIN_OP]), tf.name_scope(name or self.get_name()) as scope:
            update = self._build_update(pairs)
            if global_step is not None:
                with tf.control_dependencies([update]), colocate_with(global_step):
                    update = tf.compat.v1.assign_add(global_step, 1).op
            train_op = tf.group(update, name=scope)
        tf.compat.v1.add_to_collection(graph_keys.TRAIN_OP, train_op)
        return train_op

    def leave_shared_variables(self) -> None:
        """Let only the optimizer of the first tower update shared variables; called on the copies for other towers.

        Slots are not shared, but variables that an optimizer creates before it applies gradients are.
        """

    def get_slot(self, var: Any, name: str) -> Any:
        """Return the slot of this name that belongs to `var`, or None."""
        own = self._own_slots.get(name, {}).get(var.ref())
        return self._opt.get_slot(var, name) if own is None else own

    def get_slot_names(self) -> list[str]:
        """Return the names of all slots, including the wrapped optimizer's."""
        return sorted({*self._own_slots, *self._opt.get_slot_names()})

    def variables(self) -> list[Any]:
        """Return the variables of this optimizer and of the wrapped one in the default graph, by name."""
        graph = tf.compat.v1.get_default_graph()
        own = [variable for variable in self._own_variables if variable.graph is graph]
        return sorted([*own, *self._opt.variables()], key=lambda variable: str(variable.name))

    def _create_slots(self, var_list: list[Any]) -> None:
        create_slots(self._opt, var_list)

    def _build_update(self, grads_and_vars: list[tuple[Any, Any]]) -> Any:
        """Return the op that updates; there is a gradient in each pair."""
        return self._opt.apply_gradients(grads_and_vars)


def unwrapped(optimizer: Any) -> Iterator[Any]:
    """Yield an optimizer and those inside it, from the outermost to the innermost."""
    while optimizer is not None:
        yield optimizer
        optimizer = wrapped_optimizer(optimizer)


def check_no_reference(owner: str, grads_and_vars: Iterable[tuple[Any, Any]]) -> None:
    """Check that all variables can be updated in a `tf.cond`, which reference variables cannot with control flow 2.

    Args:
        owner: the class of the optimizer, for the message.
        grads_and_vars: pairs of a gradient and its variable.

    Raises:
        ConfigError: if one cannot; it names the first.
    """
    if not tf.compat.v1.control_flow_v2_enabled():
        return
    for _, var in grads_and_vars:
        if var.op.type != "VarHandleOp":
            raise ConfigError(
                f"{owner} cannot update the reference variable {variable_name(var)!r} in a tf.cond. Create it with "
                "use_resource=True."
            )


def create_slot(variable: Any, name: str, initial_value: Callable[[], Any], *, on_cpu: bool = False) -> Any:
    """Create a non-trainable variable that belongs to `variable`.

    Its name is ``<variable>/<name>``, with a suffix if that exists already, wherever in the graph it is created. So the
    slots of a variable have matching names in all towers, and checkpoints find them.

    Args:
        variable: a variable of the default graph.
        name: the last part of its name.
        initial_value: returns its initial value.
        on_cpu: place it on the CPU, where control flow reads it; by default it is where `variable` is.
    """
    # Outside scopes, control dependencies and branches of control flow.
    with tf.init_scope(), tf.name_scope(""), tf.device("/cpu:0") if on_cpu else colocate_with(variable):
        return tf.compat.v1.Variable(
            initial_value,
            trainable=False,
            use_resource=True,
            name=f"{variable_name(variable)}/{name}",
        )


def colocate_with(variable: Any) -> AbstractContextManager[None]:
    """Return a context in which ops are placed where `variable` is, whatever device is chosen around it."""
    context: AbstractContextManager[None] = tf.compat.v1.get_default_graph().colocate_with(variable)
    return context


def sum_dtype(variable: Any) -> Any:
    """Return the type for sums and averages of values of `variable`: its own, or ``float32`` if it has 16 bits.

    Summing many values, or adding a small change to an average, needs more precision than the values have.
    """
    dtype = variable.dtype.base_dtype
    return tf.float32 if dtype.size < 4 else dtype


class PostProcessOptimizer(ProxyOptimizer):
    """Processes each variable after its update, e.g. clips or quantizes it.

    Args:
        opt: the optimizer that updates.
        func: takes a variable, and returns the op to run once all variables are updated; or None.
        colocate: place what `func` builds on the device of the variable.

    Raises:
        ConfigError: if `opt` is not a `tf.compat.v1.train.Optimizer`; and, when gradients are applied, if `func`
            returns something else.

    Example:
        ```python
        PostProcessOptimizer(optimizer, lambda v: v.assign(tf.clip_by_norm(v, 1.0, axes=[0])))
        ```
    """

    def __init__(self, opt: Any, func: Callable[[Any], Any], colocate: bool = True) -> None:
        super().__init__(opt, type(self).__name__)
        self._func = func
        self._colocate = colocate

    def _build_update(self, grads_and_vars: list[tuple[Any, Any]]) -> Any:
        update = super()._build_update(grads_and_vars)
        variables = [var for _, var in grads_and_vars]
        with tf.control_dependencies([update]), read_anew(variables):
            processed = [self._post_process(var) for var in variables]
        return tf.group(update, *(op for op in processed if op is not None))

    def _post_process(self, var: Any) -> Any:
        with colocate_with(var) if self._colocate else nullcontext():
            result = self._func(var)
        op = getattr(result, "op", result)
        if op is not None and not isinstance(op, tf.Operation):
            raise ConfigError(
                f"{self.get_name()}: the function returned {result!r} for the variable {variable_name(var)!r}; "
                "expected an op or None."
            )
        return op


class VariableAssignmentOptimizer(PostProcessOptimizer):
    """Assigns each variable a new value after its update.

    Args:
        opt: the optimizer that updates.
        func: takes a variable, and returns its new value, a tensor; or None to leave it alone.
        colocate: place what `func` builds on the device of the variable.

    Example:
        ```python
        VariableAssignmentOptimizer(optimizer, lambda v: tf.maximum(v, 0.0))
        ```
    """

    def __init__(self, opt: Any, func: Callable[[Any], Any], colocate: bool = True) -> None:
        def assign(var: Any) -> Any:
            value = func(var)
            return None if value is None else tf.compat.v1.assign(var, value)

        super().__init__(opt, assign, colocate)


def copies_of_optimizers(optimizers: Sequence[Any]) -> list[Any]:
    """Return a copy of each optimizer, for another replica of the model.

    A copy has separate slots. It shares the tensors and variables that the optimizer was created with, such as a
    learning rate. Wrapped optimizers are copied too; an optimizer that occurs several times is copied once.

    Args:
        optimizers: `tf.compat.v1.train.Optimizer`s that have not applied gradients yet.
    """
    copies: dict[int, Any] = {}
    return [_copied(optimizer, copies) for optimizer in optimizers]


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    """Return a copy of an optimizer or of a container with its elements; everything else is shared.

    Args:
        value: the value of an attribute of an optimizer.
        copies: the copies so far, by the `id` of the original.
    """
    kind = type(value)
    if isinstance(value, tf.compat.v1.train.Optimizer):
        if id(value) not in copies:
            copies[id(value)] = other = copy.copy(value)
            vars(other).update({name: _copied(each, copies) for name, each in vars(value).items()})
            if isinstance(other, ProxyOptimizer):
                other.leave_shared_variables()
        return copies[id(value)]
    if kind in (list, tuple, set):
        return kind(_copied(each, copies) for each in value)
    if kind is dict:
        return {key: _copied(each, copies) for key, each in value.items()}
    return copy.copy(value) if isinstance(value, dict) else value
