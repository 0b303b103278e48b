"""Placement of shared variables on the least loaded device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_VARIABLE_OPS = frozenset({"Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp"})


class LeastLoadedDeviceSetter:
    """A device function that puts each variable on the device with the fewest bytes, and all other ops on a worker.

    Use a single instance for all towers of a graph, with `for_worker`, so that they share the count of bytes.

    Args:
        worker_device: the device of ops other than variables.
        ps_devices: the devices among which variables are distributed.

    Example:
        ```python
        with tf.compat.v1.device(LeastLoadedDeviceSetter("/gpu:0", ["/gpu:0", "/gpu:1"])):
            build_model()
        ```
    """

    def __init__(self, worker_device: str, ps_devices: Sequence[str]) -> None:
        self.worker_device = worker_device
        self.ps_devices = list(ps_devices)
        self._bytes = dict.fromkeys(self.ps_devices, 0)

    @property
    def bytes_on(self) -> dict[str, int]:
        """The size in bytes of the variables on each device."""
        return dict(self._bytes)

    def for_worker(self, worker_device: str) -> Callable[[Any], str]:
        """Return the device function of another worker, with the same count of bytes."""
        return lambda op: self.place(op, worker_device)

    def __call__(self, op: Any) -> str:
        """Return the device of `op`."""
        return self.place(op, self.worker_device)

    def place(self, op: Any, worker_device: str) -> str:
        """Return the device of `op`, in a tower on `worker_device`."""
        if op.device:
            return str(op.device)  # Chosen by the user.
        if op.type not in _VARIABLE_OPS:
            return worker_device
        device = min(self.ps_devices, key=self._bytes.__getitem__)
        self._bytes[device] += _size_in_bytes(op)
        return device


def _size_in_bytes(op: Any) -> int:
    shape = tf.TensorShape(op.get_attr("shape"))
    # A variable of unknown shape counts as one element.
    elements = shape.num_elements() if shape.is_fully_defined() else 1
    return int(elements * op.get_attr("dtype").size)
