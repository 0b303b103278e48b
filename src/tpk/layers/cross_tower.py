"""Sums over all towers of a training, of all its processes: each gives a value, and gets the sum of those of all.

Towers are built one after another in one graph. When one asks for a sum, the values of those after it do not exist yet;
so it gets a stand-in, whose input becomes the sum as soon as the last tower has given its value. The sum is computed
once, so all towers get the same bits. Where several processes train together, the sum over the towers of each is added
up over the processes.

The gradient of such a sum is again such a sum, of the gradients that the towers have with respect to it, as that of
an all-reduce is an all-reduce (so in TensorFlow's own ``nccl_ops``). Thus each tower differentiates its own cost with
respect to its own variables, and the mean of these gradients over the towers is the gradient of the mean cost.
Gradients are those of `tf.gradients`, which optimizers of graph mode use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from tpk.errors import TowerError
from tpk.graph.determinism import sum_in_order
from tpk.tf_internals import control_flow_context, replace_input

_current: ContextVar[tuple[CrossTowerSums, int] | None] = ContextVar("tpk_cross_tower_sums", default=None)

# A key that is no string keeps a collection out of exported graphs.
_SUMS_OF_GRAPH = ("__tpk_cross_tower_sums",)

_GRADIENT = "TpkSumAcrossTowers"


def sum_across_towers(tensor: Any, name: str) -> Any:
    """Return the sum of `tensor` and of what the other towers give in the same place of their building.

    Args:
        tensor: the value of this tower; of the same dtype and shape in each.
        name: the name scope of its ops.

    Returns:
        The sum, in a tower of a training that has several, in one process or in many; elsewhere, as in inference,
        `tensor` itself.

    Raises:
        TowerError: if the tensor does not fit those of the other towers, or is inside of a `tf.cond`, a
            `tf.while_loop` or a `tf.function`.

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
    """Whether a tower is being built whose `sum_across_towers` are sums over several towers."""
    return _current.get() is not None


class CrossTowerSums:
    """The sums across the towers of one training in the default graph.

    Args:
        total: how many towers there will be in this process.
        sum_over_processes: adds to the graph the sum of a tensor over all processes, if there are several.

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
        self._asked: Counter[int] = Counter()
        self._by_op: dict[str, tuple[_Sum, int]] = {}
        self.graph.get_collection_ref(_SUMS_OF_GRAPH).append(self)

    @contextmanager
    def tower(self, index: int) -> Iterator[None]:
        """Within the context, the tower with this index is built."""
        has_others = self.total > 1 or self.sum_over_processes is not None
        token = _current.set((self, index) if has_others else None)
        try:
            yield
        finally:
            _current.reset(token)

    def take_part(self, tower: int, tensor: Any, name: str) -> Any:
        """Return what stands for the sum in `tower`: of the first that it asks for, of the second, and so on."""
        place = self._asked[tower]
        self._asked[tower] += 1
        if place == len(self.sums):
            self.sums.append(_Sum(self, name, f"{self.graph.get_name_scope()}/{name}".lstrip("/")))
        return self.sums[place].take_part(tower, tensor)

    def remember(self, op: Any, of_sum: _Sum, tower: int) -> None:
        """Remember that `op` stands for a sum in `tower`."""
        self._by_op[op.name] = (of_sum, tower)

    def find(self, op: Any) -> tuple[_Sum, int] | None:
        """Return for which sum `op` stands, and in which tower; or None if it is none of these."""
        return self._by_op.get(op.name)


class _Sum:
    """One sum, for which an op stands in each tower that has asked for it so far."""

    def __init__(self, of: CrossTowerSums, scope: str, name: str) -> None:
        self.name = name
        self._scope = scope
        self._of = of
        self._stand_ins: dict[int, Any] = {}
        self._differentiated: Counter[int] = Counter()
        self.gradients: list[_Sum] = []

    @property
    def towers(self) -> list[int]:
        """The towers that have asked for it, in order."""
        return sorted(self._stand_ins)

    @property
    def is_complete(self) -> bool:
        return len(self._stand_ins) == self._of.total

    def take_part(self, tower: int, tensor: Any) -> Any:
        self._check(tower, tensor)
        graph = self._of.graph
        with tf.name_scope(self._scope), graph.gradient_override_map({"IdentityN": _GRADIENT}):
            # If it is never replaced, then running it is an error that tells its name.
            awaited = tf.compat.v1.placeholder(tensor.dtype, tensor.shape, name="needs_every_tower")
            total, _ = tf.identity_n([awaited, tensor])
        self._stand_ins[tower] = total.op
        self._of.remember(total.op, self, tower)
        if self.is_complete:
            self._join()
        return total

    def gradient(self, tower: int, upstream: Any) -> Any:
        """Return the gradient with respect to the tensor of `tower`, given that with respect to its sum."""
        place = self._differentiated[tower]
        self._differentiated[tower] += 1
        if place == len(self.gradients):
            self.gradients.append(_Sum(self._of, f"{self._scope}/gradient", f"{self.name}/gradient"))
        return self.gradients[place].take_part(tower, tf.convert_to_tensor(upstream))

    def _join(self) -> None:
        ops = [self._stand_ins[tower] for tower in self.towers]
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
                "Take it out of there."
            )
        for other, op in self._stand_ins.items():
            theirs = op.inputs[1]
            if tensor.dtype != theirs.dtype or not tensor.shape.is_compatible_with(theirs.shape):
                raise TowerError(
                    f"{self.name!r} cannot be summed across towers: it is {tensor.dtype.name} of shape {tensor.shape} "
                    f"in tower {tower}, and {theirs.dtype.name} of shape {theirs.shape} in tower {other}. A tower "
                    "function has to build the same model each time."
                )


def _gradient(op: Any, upstream: Any, _: Any) -> list[Any]:
    for sums in op.graph.get_collection(_SUMS_OF_GRAPH):
        found = sums.find(op)
        if found is not None:
            of_sum, tower = found
            return [None, of_sum.gradient(tower, upstream)]
    raise TowerError(
        f"there is no gradient of {op.name!r}: it is a sum across towers that were built in another graph. Build the "
        "towers in this one."
    )


tf.RegisterGradient(_GRADIENT)(_gradient)


def check_sums_are_complete() -> None:
    """Check that all towers of the default graph have asked for the same sums, and for the same gradients of these.

    Raises:
        TowerError: if some have not; it names the sum.
    """
    for sums in _sums_of_graph():
        pending = list(sums.sums)
        while pending:
            one = pending.pop(0)
            if not one.is_complete:
                raise TowerError(
                    f"{one.name!r} is summed across {sums.total} towers, but only in tower "
                    f"{', '.join(map(str, one.towers))} is it built. A tower function has to build the same model, "
                    "and take the same gradients, each time."
                )
            pending += one.gradients


def check_nothing_is_summed(strategy: str) -> None:
    """Check that no tower of the default graph needs values of the others.

    Args:
        strategy: the name of the strategy, whose towers run each by itself.

    Raises:
        TowerError: if one does; it names the first of these values.
    """
    names = [one.name for sums in _sums_of_graph() for one in sums.sums]
    if names:
        raise TowerError(
            f"{names[0]!r} is summed across towers, but those of strategy {strategy!r} do not run together. Leave out "
            "sync=True, or use strategy 'replicated' or 'parameter_server'."
        )


def _sums_of_graph() -> list[CrossTowerSums]:
    found: list[CrossTowerSums] = tf.compat.v1.get_collection(_SUMS_OF_GRAPH)
    return found
