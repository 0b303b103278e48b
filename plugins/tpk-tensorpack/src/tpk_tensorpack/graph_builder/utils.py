"""Place variables on devices, and combine the gradients of several towers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import tpk
from tpk.argument_checks import check_one_of
from tpk.strategies.all_reduce import all_reduce
from tpk_tensorpack.missing import not_here

__all__ = ["LeastLoadedDeviceSetter", "allreduce_grads"]

__getattr__ = not_here(
    __name__,
    {
        "GradientPacker": "allreduce_grads(all_grads, average, mode='hierarchical')",
        "aggregate_grads_colocate": "allreduce_grads(all_grads, average)",
        "allreduce_grads_hierarchical": "allreduce_grads(all_grads, average, mode='hierarchical')",
        "allreduce_grads_naive": "allreduce_grads(all_grads, average)",
        "override_to_local_variable": "tf.get_variable(…, collections=[tf.GraphKeys.LOCAL_VARIABLES])",
        "OverrideCachingDevice": "tf.variable_scope(…, caching_device=…)",
    },
)

Gradients = list[tuple[Any, Any]]
"""The pairs of gradient and variable of one tower."""

MODES = ("nccl", "cpu", "gpu", "hierarchical", "collective")
"""Algorithms to all-reduce gradients: their results are equal up to rounding."""


class LeastLoadedDeviceSetter(tpk.LeastLoadedDeviceSetter):
    """A device function that places each variable on the least loaded device; see `tpk.LeastLoadedDeviceSetter`."""

    def place_with_balance(self, op: Any) -> str:
        """Return the device with the fewest bytes of variables, and add this variable to its count."""
        return self(op)

    def __str__(self) -> str:
        return f"{type(self).__name__}-{self.worker_device}"


def split_grad_list(grad_list: Sequence[Gradients]) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the gradients of each tower, and the variables of each tower.

    Args:
        grad_list: for each tower, its pairs of gradient and variable.
    """
    return (
        [[gradient for gradient, _ in pairs] for pairs in grad_list],
        [[variable for _, variable in pairs] for pairs in grad_list],
    )


def merge_grad_list(all_grads: Sequence[Sequence[Any]], all_vars: Sequence[Sequence[Any]]) -> list[Gradients]:
    """Return pairs of gradient and variable for each tower: the inverse of `split_grad_list`."""
    return [list(zip(grads, variables, strict=True)) for grads, variables in zip(all_grads, all_vars, strict=True)]


def allreduce_grads(all_grads: Sequence[Sequence[Any]], average: bool, mode: str = "nccl") -> list[list[Any]]:
    """Return the sums or means of gradients over towers, for each tower, on the device of its gradients.

    Args:
        all_grads: the gradients of each tower.
        average: whether to return means.
        mode: ``"nccl"``, ``"cpu"``, ``"gpu"``, ``"hierarchical"`` or ``"collective"``. Without GPUs, all run on CPUs.

    Raises:
        ConfigError: the mode is unknown.

    Example:
        ```python
        grads, variables = split_grad_list(grad_list)
        grad_list = merge_grad_list(allreduce_grads(grads, average=True, mode="cpu"), variables)
        ```
    """
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    places = [f"/gpu:{index}" if has_gpu else "/cpu:0" for index in range(len(all_grads))]
    devices = [
        next((gradient.device for gradient in grads if gradient.device), place)
        for grads, place in zip(all_grads, places, strict=True)
    ]
    with tf.name_scope("AllReduce"):
        return all_reduce(all_grads, devices, as_mode(mode), average=average)


def as_mode(mode: str | None) -> str:
    """Return the mode of `tpk` for a mode of tensorpack; on a host without GPUs, the CPU mode.

    Raises:
        ConfigError: the mode is unknown.
    """
    if mode is None:
        return "auto"
    check_one_of("all-reduce", MODES, mode=mode.lower())
    if not tf.config.list_physical_devices("GPU"):
        return "copy"
    return {"collective": "auto"}.get(mode.lower(), mode.lower())
