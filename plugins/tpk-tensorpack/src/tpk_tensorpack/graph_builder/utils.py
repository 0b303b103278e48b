"""Placement of variables on devices, and gradients of several towers that become one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import tensorflow as tf

import tpk
from tpk.graph.variables import make_local, record_variables
from tpk.strategies.all_reduce import all_reduce, reduce_column
from tpk_tensorpack.missing import not_here

__all__ = ["LeastLoadedDeviceSetter", "allreduce_grads"]

__getattr__ = not_here(
    __name__,
    {
        "GradientPacker": "allreduce_grads(all_grads, average, mode='hierarchical')",
        "OverrideCachingDevice": "tf.variable_scope(…, caching_device=…)",
    },
)

Gradients = list[tuple[Any, Any]]
"""Pairs of a gradient and its variable, of one tower."""

MODES = ("nccl", "cpu", "gpu", "hierarchical")
"""How gradients are all-reduced: the values are the same, up to rounding."""


class LeastLoadedDeviceSetter(tpk.LeastLoadedDeviceSetter):
    """A device function that puts each variable on the least loaded device; see `tpk.LeastLoadedDeviceSetter`."""

    def place_with_balance(self, op: Any) -> str:
        """Return the device of a variable: that with the fewest bytes, which are then counted there."""
        return self(op)

    def __str__(self) -> str:
        return f"{type(self).__name__}-{self.worker_device}"


def split_grad_list(grad_list: Sequence[Gradients]) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the gradients of each tower, and the variables of each tower.

    Args:
        grad_list: for each tower, pairs of a gradient and its variable.
    """
    return (
        [[gradient for gradient, _ in pairs] for pairs in grad_list],
        [[variable for _, variable in pairs] for pairs in grad_list],
    )


def merge_grad_list(all_grads: Sequence[Sequence[Any]], all_vars: Sequence[Sequence[Any]]) -> list[Gradients]:
    """Return for each tower pairs of a gradient and its variable: the inverse of `split_grad_list`."""
    return [list(zip(grads, variables, strict=True)) for grads, variables in zip(all_grads, all_vars, strict=True)]


def allreduce_grads(all_grads: Sequence[Sequence[Any]], average: bool, mode: str = "nccl") -> list[list[Any]]:
    """Return the sums or means of gradients over towers, for each tower, on the devices of its gradients.

    Args:
        all_grads: for each tower its gradients.
        average: whether to return means.
        mode: ``"nccl"``, ``"cpu"``, ``"gpu"`` or ``"hierarchical"``. Without GPUs, all of them add up on CPUs.

    Raises:
        ConfigError: there is no such mode.

    Example:
        ```python
        grads, variables = split_grad_list(grad_list)
        grad_list = merge_grad_list(allreduce_grads(grads, average=True, mode="cpu"), variables)
        ```
    """
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    devices = [_device_of(grads, f"/gpu:{index}" if has_gpu else "/cpu:0") for index, grads in enumerate(all_grads)]
    with tf.name_scope("AllReduce"):
        return all_reduce(all_grads, devices, as_mode(mode), average=average)


def allreduce_grads_hierarchical(
    all_grads: Sequence[Sequence[Any]], devices: Sequence[str], average: bool = False
) -> list[list[Any]]:
    """Return the sums or means of gradients over towers, for each tower; the devices take turns to compute them.

    Args:
        all_grads: for each tower its gradients.
        devices: the device of each tower.
        average: whether to return means.
    """
    with tf.name_scope("AllReduceHierarchical"):
        return all_reduce(all_grads, list(devices), "hierarchical", average=average)


def allreduce_grads_naive(
    all_grads: Sequence[Sequence[Any]], devices: Sequence[str] | None = None, average: bool = True
) -> list[Any]:
    """Return the sums or means of gradients over towers, once.

    Args:
        all_grads: for each tower its gradients.
        devices: where to compute them, in turn; by default on the device of the scope around.
        average: whether to return means.
    """
    reduced = []
    for turn, column in enumerate(zip(*all_grads, strict=True)):
        place = tf.device(devices[turn % len(devices)]) if devices else nullcontext()
        with tf.name_scope("AllReduceNaive"), place:
            reduced.append(reduce_column(list(column), average))
    return reduced


def aggregate_grads_colocate(all_grads: Sequence[Gradients], average: bool = True) -> Gradients:
    """Return the sums or means of the gradients of each variable, on its device.

    Args:
        all_grads: for each tower pairs of a gradient and its variable, which the towers share.
        average: whether to return means.
    """
    reduced = []
    with tf.name_scope("AggregateGradsColocate"):
        for pairs in zip(*all_grads, strict=True):
            variable = pairs[0][1]
            with tf.device(variable.device):
                reduced.append((reduce_column([gradient for gradient, _ in pairs], average), variable))
    return reduced


@contextmanager
def override_to_local_variable(enable: bool = True) -> Iterator[None]:
    """Within the context, variables that are created become local ones, which are neither saved nor trained.

    Args:
        enable: whether they do.
    """
    with record_variables() as created:
        yield
    if enable:
        make_local(created)


def as_mode(mode: str | None) -> str:
    """Return the mode of `tpk` that one of tensorpack means; on a host without GPUs the one for CPUs.

    Raises:
        ConfigError: there is no such mode.
    """
    if mode is not None and mode.lower() not in MODES:
        raise tpk.ConfigError(f"mode={mode!r}: expected one of {', '.join(map(repr, MODES))}, or None")
    if mode is None or not tf.config.list_physical_devices("GPU"):
        return "auto" if mode is None else "copy"
    return mode.lower()


def _device_of(grads: Sequence[Any], otherwise: str) -> str:
    for gradient in grads:
        device = (gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient).device
        if device:
            return str(device)
    return otherwise
