"""Sums over all towers of a training, of all its processes: each tower passes a value and gets the sum.

Towers are built one after another in one graph. When one asks for a sum, the values of the later towers do not exist
yet, so it gets a placeholder, which the sum replaces when the last tower has passed its value. The sum is computed
once, so all towers get the same bits. If several processes train together, the sum over the towers of each process is
then summed over the processes.

The gradient of a sum across towers is the sum of the gradients with respect to it in all towers, just as the gradient
of an all-reduce is an all-reduce (as in TensorFlow's ``nccl_ops``). So each tower differentiates its own cost with
respect to its own variables, and the mean of these gradients over the towers is the gradient of the mean cost. This
works with `tf.gradients`, which optimizers use in graph mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from tpk.errors import TowerError
from tpk.graph.determinism import sum_in_order
from tpk.graph.scopes import graph_records
from tpk.tf_internals import control_flow_context, replace_input

_current: ContextVar[tuple[CrossTowerSums, int] | None] = ContextVar("tpk_cross_tower_sums", default=None)

_RECORDS = "cross_tower_sums"
_GRADIENT = "TpkSumAcrossTowers"


def sum_across_towers(tensor: Any, name: str) -> Any:
    """Return the sum of `tensor` over all towers, which make the same calls in the same order.

    Args:
        tensor: the value of this tower; its dtype and shape are the same in each tower.
        name: the name scope of the ops.

    Returns:
        The sum, in a training with several towers, in one process or more; otherwise, as in inference, `tensor`.

    Raises:
        TowerError: if dtype or shape differ between towers, or the call is inside of a `tf.cond`, a `tf.while_loop` or
            a `tf.function`.

    Example:
        ```python
        count = sum_across_towers(tf.cast(tf.shape(x)[0], tf.float32), "count")
        mean = sum_across_towers(tf.reduce_sum(x, 0), "sum_of_x") / count
        ```
    """
    current = _current.get()
    if current is None:
        return tensor
    sums, tower = current
    return sums.take_part(tower, tf.convert_to_tensor(tensor), name)


def is_summed_across_towers() -> bool:
    """Whether `sum_across_towers` currently sums over several towers."""
    return _current.get() is not None


class CrossTowerSums:
    """The sums across the towers of one training in the default graph.

    Args:
        total: the number of towers in this process.
        sum_over_processes: adds the sum of a tensor over all processes to the graph; None for one process.

    Attributes:
        total: the number of towers in this process.
        sum_over_processes: as given.
        graph: the graph of the towers.
        sums: the sums, in the order in which each tower asks for them.
        by_op: the sum and the tower of each op that is such a sum, by the name of the op.

    Example:
        ```python
        sums = CrossTowerSums(total=2)
        for index in range(2):
            with sums.tower(index):
                build_tower()
        check_sums_are_complete()
        ```
    """

    def __init__(self, total: int, sum_over_processes: Callable[[Any], Any] | None = None) -> None:
        self.total = total
        self.sum_over_processes = sum_over_processes
        self.graph = tf.compat.v1.get_default_graph()
        self.sums: list[_Sum] = []
        self.by_op: dict[str, tuple[_Sum, int]] = {}
        graph_records(self.graph, _RECORDS).append(self)

    @contextmanager
    def tower(self, index: int) -> Iterator[None]:
        """Build the tower with this index in the context."""
        has_others = self.total > 1 or self.sum_over_processes is not None
        token = _current.set((self, index) if has_others else None)
        try:
            yield
        finally:
            _current.reset(token)

    def take_part(self, tower: int, tensor: Any, name: str) -> Any:
        """Return the next sum of `tower`: the first that it asks for, the second, and so on."""
        full_name = f"{self.graph.get_name_scope()}/{name}".lstrip("/")
        return _next(self.sums, tower, _Sum(self, name, full_name)).take_part(tower, tensor)


class _Sum:
    """One sum, with an op in each tower that has asked for it so far."""

    def __init__(self, of: CrossTowerSums, scope: str, name: str) -> None:
        self.name = name
        self._scope = scope
        self._of = of
        self.ops: dict[int, Any] = {}
        self.gradients: list[_Sum] = []

    @property
    def is_complete(self) -> bool:
        return len(self.ops) == self._of.total

    def take_part(self, tower: int, tensor: Any) -> Any:
        self._check(tower, tensor)
        graph = self._of.graph
        with tf.name_scope(self._scope), graph.gradient_override_map({"IdentityN": _GRADIENT}):
            # If it is never replaced, running it is an error with its name.
            awaited = tf.compat.v1.placeholder(tensor.dtype, tensor.shape, name="needs_every_tower")
            total, _ = tf.identity_n([awaited, tensor])
        self.ops[tower] = total.op
        self._of.by_op[total.op.name] = (self, tower)
        if self.is_complete:
            self._join()
        return total

    def gradient(self, tower: int, upstream: Any) -> Any:
        """Return the gradient with respect to the tensor of `tower`, given the gradient with respect to the sum."""
        new = _Sum(self._of, f"{self._scope}/gradient", f"{self.name}/gradient")
        return _next(self.gradients, tower, new).take_part(tower, tf.convert_to_tensor(upstream))

    def _join(self) -> None:
        ops = [op for _, op in sorted(self.ops.items())]
        with tf.name_scope(self._scope), tf.control_dependencies(None):
            total = sum_in_order([op.inputs[1] for op in ops])
            if self._of.sum_over_processes is not None:
                total = self._of.sum_over_processes(total)
            total = tf.identity(total, name="of_all_towers")
        for op in ops:
            replace_input(op, 0, total)

    def _check(self, tower: int, tensor: Any) -> None:
        graph = self._of.graph
        if tf.compat.v1.get_default_graph() is not graph or control_flow_context(graph) is not None:
            raise TowerError(
                f"{self.name!r} cannot be summed across towers inside of a tf.cond, a tf.while_loop or a tf.function. "
                "Move it outside."
            )
        for other, op in self.ops.items():
            theirs = op.inputs[1]
            if tensor.dtype != theirs.dtype or not tensor.shape.is_compatible_with(theirs.shape):
                raise TowerError(
                    f"{self.name!r} cannot be summed across towers: it is {tensor.dtype.name} of shape {tensor.shape} "
                    f"in tower {tower}, and {theirs.dtype.name} of shape {theirs.shape} in tower {other}. A tower "
                    "function must build the same model in each tower."
                )


def _next(sums: list[_Sum], tower: int, new: _Sum) -> _Sum:
    """Return the first of `sums` without an op of `tower`, or else append and return `new`."""
    asked = next((each for each in sums if tower not in each.ops), None)
    if asked is None:
        sums.append(new)
    return asked or new


def _gradient(op: Any, upstream: Any, _: Any) -> list[Any]:
    for sums in graph_records(op.graph, _RECORDS):
        if op.name in sums.by_op:
            of_sum, tower = sums.by_op[op.name]
            return [None, of_sum.gradient(tower, upstream)]
    raise TowerError(
        f"{op.name!r} has no gradient: it is a sum across towers that were built in another graph. Build the towers in "
        "this graph."
    )


tf.RegisterGradient(_GRADIENT)(_gradient)


def check_sums_are_complete() -> None:
    """Check that all towers of the default graph have asked for the same sums and the same gradients of these.

    Raises:
        TowerError: if not; it names the sum.
    """
    for sums in graph_records(tf.compat.v1.get_default_graph(), _RECORDS):
        pending = list(sums.sums)
        while pending:
            one = pending.pop(0)
            if not one.is_complete:
                towers = ", ".join(map(str, sorted(one.ops)))
                raise TowerError(
                    f"{one.name!r} is summed across {sums.total} towers, but built only in tower {towers}. A tower "
                    "function must build the same model, and take the same gradients, in each tower."
                )
            pending += one.gradients


def check_nothing_is_summed(strategy: str) -> None:
    """Check that the towers of the default graph do not depend on each other.

    Args:
        strategy: the name of the strategy, whose towers run independently.

    Raises:
        TowerError: if there is a sum across towers; it names the first one.
    """
    names = [one.name for sums in graph_records(tf.compat.v1.get_default_graph(), _RECORDS) for one in sums.sums]
    if names:
        raise TowerError(
            f"{names[0]!r} is summed across towers, but the towers of strategy {strategy!r} do not run together. Leave "
            "out sync=True, or use strategy 'replicated' or 'parameter_server'."
        )
