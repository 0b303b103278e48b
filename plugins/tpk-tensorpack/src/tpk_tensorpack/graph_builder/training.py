"""Builders of graphs with several towers, for custom trainers.

This package's own trainers use the equivalent strategies of tpk instead.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

import tpk
from tpk.checks import check_one_of
from tpk.graph import copies_of_optimizers
from tpk.graph.variables import make_local, record_variables, variable_name
from tpk.strategies import POST_INIT_OPS_KEY, build_on_multi_tower, get_post_init_ops
from tpk_tensorpack.graph_builder.utils import (
    Gradients,
    LeastLoadedDeviceSetter,
    aggregate_grads_colocate,
    allreduce_grads,
    as_mode,
    merge_grad_list,
    split_grad_list,
)

__all__ = ["DataParallelBuilder"]

Device = str | Callable[[Any], str]


class GraphBuilder(abc.ABC):
    """Base class of graph builders."""

    @abc.abstractmethod
    def build(*args: Any, **kwargs: Any) -> Any:
        """Build the graph."""


class DataParallelBuilder(GraphBuilder):
    """Base class of builders of towers that train on different data.

    Args:
        towers: the GPU number of each tower, or the number of towers.

    Raises:
        ConfigError: `towers` is neither.
    """

    def __init__(self, towers: int | Sequence[int]) -> None:
        self.towers = as_gpus(type(self).__name__, "towers", towers)

    @staticmethod
    def call_for_each_tower(
        towers: Sequence[int],
        func: Callable[[], Any],
        devices: Sequence[Device] | None = None,
        use_vs: Sequence[bool] | None = None,
    ) -> list[Any]:
        """Call a function under the `TrainTowerContext` of each tower; return what it returns.

        The towers are named ``tower0``, ``tower1``, ….

        Args:
            towers: the GPU number of each tower.
            func: builds a tower.
            devices: for each tower a device, or a function that places ops; by default the tower's GPU. If the device
                does not exist, a session with ``allow_soft_placement`` places the ops.
            use_vs: for each tower, whether it has its own variable scope, named like the tower, instead of sharing the
                variables of the first tower. By default all of them share.

        Raises:
            ConfigError: the lists have different lengths.

        Example:
            ```python
            tower_func = TowerFunc(build, signature)
            costs = DataParallelBuilder.call_for_each_tower(
                [0, 1], lambda: tower_func(*input.get_input_tensors()), devices=["/gpu:0", "/gpu:1"]
            )
            ```
        """
        vs_names = None if use_vs is None else [f"tower{index}" if own else "" for index, own in enumerate(use_vs)]
        return [tower.output for tower in build_towers(towers, func, devices, vs_names)]

    @staticmethod
    def build_on_towers(*args: Any, **kwargs: Any) -> list[Any]:
        """Call `call_for_each_tower`."""
        return DataParallelBuilder.call_for_each_tower(*args, **kwargs)


class SyncMultiGPUParameterServerBuilder(DataParallelBuilder):
    """Builds towers that share variables; the mean gradients are applied once.

    Args:
        towers: the GPU number of each tower.
        ps_device: where to place variables: ``"cpu"``, or ``"gpu"`` for the least loaded GPU.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(self, towers: int | Sequence[int], ps_device: str) -> None:
        super().__init__(towers)
        check_one_of(self, ("cpu", "gpu"), ps_device=ps_device)
        self.ps_device = ps_device

    def call_for_each_tower(self, tower_fn: Callable[[], Gradients]) -> list[Gradients]:  # type: ignore[override]
        """Build the towers; return the pairs of gradient and variable that `tower_fn` returns for each tower."""
        return _gradients_of(self, build_towers(self.towers, tower_fn, _placed(self.towers, self.ps_device)))

    def build(self, grad_list: Sequence[Gradients], get_opt_fn: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Return the op that applies the mean gradients.

        Args:
            grad_list: the result of `call_for_each_tower`.
            get_opt_fn: returns the optimizer.
        """
        return get_opt_fn().apply_gradients(aggregate_grads_colocate(grad_list), name="train_op")


class SyncMultiGPUReplicatedBuilder(DataParallelBuilder):
    """Builds towers with separate variables; each applies the mean or sum of all gradients.

    Args:
        towers: the GPU number of each tower.
        average: whether to average the gradients instead of adding them up.
        mode: see `allreduce_grads`.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(self, towers: int | Sequence[int], average: bool, mode: str | None) -> None:
        super().__init__(towers)
        as_mode(mode)
        self._average, self._mode = average, mode
        self._created: list[list[Any]] = []

    def call_for_each_tower(self, tower_fn: Callable[[], Gradients]) -> list[Gradients]:  # type: ignore[override]
        """Build the towers; return the pairs of gradient and variable that `tower_fn` returns for each tower."""
        built = build_towers(self.towers, tower_fn, vs_names=own_scopes(len(self.towers)))
        self._created = [list(tower.created) for tower in built]
        return _gradients_of(self, built)

    def build(  # type: ignore[override]
        self, grad_list: Sequence[Gradients], get_opt_fn: Callable[[], Any]
    ) -> tuple[Any, Any]:
        """Return the op that trains all towers, and the op that copies the first tower's variables to the others.

        Run the second op after the variables have been initialized or restored. The variables of the other towers, and
        of their optimizers, are local variables.

        Args:
            grad_list: the result of `call_for_each_tower`.
            get_opt_fn: returns the optimizer; the other towers get copies of it.
        """
        grads, variables = split_grad_list(grad_list)
        mode = "gpu" if self._mode is None else self._mode
        reduced = merge_grad_list(allreduce_grads(grads, self._average, mode), variables)
        main = get_opt_fn()
        optimizers = [main, *(copies_of_optimizers([main])[0] for _ in self.towers[1:])]
        train_ops, state_of_towers = [], []
        with tf.name_scope("apply_gradients"):
            for index, (optimizer, pairs) in enumerate(zip(optimizers, reduced, strict=True)):
                with tf.device(pairs[0][1].device), record_variables() as state:
                    train_ops.append(optimizer.apply_gradients(pairs, name=f"apply_grad_{index}"))
                state_of_towers.append(state)
        self._replicate(state_of_towers)
        with tf.name_scope("sync_variables"):
            post_init_op = tf.group(*self.get_post_init_ops(), name="sync_variables_from_main_tower")
        return tf.group(*train_ops, name="train_op"), post_init_op

    def _replicate(self, state_of_towers: Sequence[Sequence[Any]]) -> None:
        """Make the variables of all towers except the first local, with ops that copy the first tower's to them.

        Args:
            state_of_towers: the variables that the optimizer of each tower has created, in the same order in each.
        """
        main = {variable_name(variable): variable for variable in self._created[0]}
        with tf.name_scope("sync_variables"):
            for index, (created, state) in enumerate(zip(self._created[1:], state_of_towers[1:], strict=True), 1):
                make_local([*created, *state])
                pairs = [(main[variable_name(copy).removeprefix(f"tower{index}/")], copy) for copy in created]
                for source, copy in [*pairs, *zip(state_of_towers[0], state, strict=True)]:
                    op = copy.assign(source.read_value(), read_value=False)
                    tf.compat.v1.add_to_collection(POST_INIT_OPS_KEY, op)

    @staticmethod
    def get_post_init_ops() -> list[Any]:
        """Return the ops that copy the variables of the first tower to the others."""
        return get_post_init_ops()


class AsyncMultiGPUBuilder(DataParallelBuilder):
    """Builds towers that share variables and update them independently.

    Args:
        towers: the GPU number of each tower.
        scale_gradient: whether to divide gradients by the number of towers.

    Raises:
        ConfigError: `towers` is invalid.
    """

    def __init__(self, towers: int | Sequence[int], scale_gradient: bool = True) -> None:
        super().__init__(towers)
        self._scale_gradient = scale_gradient

    def call_for_each_tower(self, tower_fn: Callable[[], Gradients]) -> list[Gradients]:  # type: ignore[override]
        """Build the towers; return the pairs of gradient and variable that `tower_fn` returns for each tower."""
        return _gradients_of(self, build_towers(self.towers, tower_fn, _placed(self.towers, "cpu")))

    def build(  # type: ignore[override]
        self, grad_list: Sequence[Gradients], get_opt_fn: Callable[[], Any]
    ) -> list[Any]:
        """Return the op that applies the gradients of each tower.

        Args:
            grad_list: the result of `call_for_each_tower`.
            get_opt_fn: returns the optimizer.
        """
        optimizer = get_opt_fn()
        if self._scale_gradient and len(self.towers) > 1:
            factor = 1.0 / len(self.towers)
            grad_list = [[(tf.math.scalar_mul(factor, grad), each) for grad, each in pairs] for pairs in grad_list]
        with tf.name_scope("async_apply_gradients"):
            return [optimizer.apply_gradients(pairs, name=f"apply_grad_{i}") for i, pairs in enumerate(grad_list)]


def as_gpus(owner: str, argument: str, value: Any) -> list[int]:
    """Return GPU numbers from a count or a list of numbers.

    Raises:
        ConfigError: `value` is neither.
    """
    is_count = isinstance(value, int) and not isinstance(value, bool)
    numbers: Any = range(value) if is_count else value
    try:
        gpus = [] if isinstance(numbers, str) else [int(number) for number in numbers]
    except (TypeError, ValueError):
        gpus = []
    if not gpus or min(gpus) < 0 or len(set(gpus)) < len(gpus):
        raise tpk.ConfigError(
            f"{owner}({argument}={value!r}): expected the number of GPUs, or a list of GPU numbers, such as [0, 1]"
        )
    return gpus


def build_towers(
    towers: Sequence[int],
    func: Callable[[], Any],
    devices: Sequence[Device] | None = None,
    vs_names: Sequence[str] | None = None,
) -> list[Any]:
    """Build towers ``tower0``, ``tower1``, …; return their handles.

    Args:
        towers: the GPU number of each tower.
        func: builds a tower.
        devices: for each tower a device, or a function that places ops; by default the tower's GPU.
        vs_names: the variable scope of each tower; by default all share their variables.

    Raises:
        ConfigError: the lists have different lengths.
    """
    gpus = as_gpus("call_for_each_tower", "towers", towers)
    places = [f"/gpu:{gpu}" for gpu in gpus] if devices is None else list(devices)
    scopes = [""] * len(gpus) if vs_names is None else list(vs_names)
    if not len(gpus) == len(places) == len(scopes):
        raise tpk.ConfigError(
            f"{len(gpus)} towers, {len(places)} devices and {len(scopes)} variable scopes: expected the same number of "
            "each"
        )
    names = [f"tower{index}" for index in range(len(gpus))]
    return build_on_multi_tower(names, func, scopes, place=dict(zip(names, places, strict=True)).__getitem__)


def own_scopes(towers: int) -> list[str]:
    """Return the variable scopes of towers with separate variables: no scope for the first, which is saved."""
    return ["", *(f"tower{index}" for index in range(1, towers))]


def _placed(towers: Sequence[int], ps_device: str) -> list[Device]:
    """Return a device function for each tower; they share the byte counts."""
    devices = [f"/gpu:{tower}" for tower in towers]
    setter = LeastLoadedDeviceSetter(devices[0], devices if ps_device == "gpu" else ["/cpu:0"])
    return [setter.for_worker(device) for device in devices]


def _gradients_of(owner: Any, built: Sequence[Any]) -> list[Gradients]:
    """Return the gradients of the same variables from all towers, without those that are None."""
    found = []
    for tower in built:
        if not isinstance(tower.output, list | tuple) or not all(len(pair) == 2 for pair in tower.output):
            raise tpk.ConfigError(
                f"{type(owner).__name__}.call_for_each_tower: the function of a tower returned {tower.output!r}; "
                "expected a list of pairs of a gradient and its variable"
            )
        found.append([(gradient, variable) for gradient, variable in tower.output if gradient is not None])
    if not found[0] or len({len(pairs) for pairs in found}) > 1:
        raise tpk.ConfigError(
            f"{type(owner).__name__}.call_for_each_tower: the towers have {[len(pairs) for pairs in found]} gradients; "
            "expected the same variables in each"
        )
    return found
