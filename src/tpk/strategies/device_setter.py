"""Places of shared variables: on the least loaded of several devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_VARIABLE_OPS = frozenset({"Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp"})


class LeastLoadedDeviceSetter:
    """A device function that puts each variable on the device with the fewest bytes, and all other ops on a worker.

    Use one and the same for all towers of a graph, by `for_worker`, so that they share the account of the bytes.

    Args:
        worker_device: the device of ops that are no variables.
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
        """How many bytes of variables are on each device."""
        return dict(self._bytes)

    def for_worker(self, worker_device: str) -> Callable[[Any], str]:
        """Return the device function of another worker, with the same account of the bytes."""

        def place(op: Any) -> str:
            return self._place(op, worker_device)

        return place

    def __call__(self, op: Any) -> str:
        """Return the device of `op`."""
        return self._place(op, self.worker_device)

    def _place(self, op: Any, worker_device: str) -> str:
        if op.device:
            return str(op.device)  # The user's own choice, inside of ours.
        if op.type not in _VARIABLE_OPS:
            return worker_device
        device = min(self.ps_devices, key=self._bytes.__getitem__)
        self._bytes[device] += _size_in_bytes(op)
        return device


def _size_in_bytes(op: Any) -> int:
    shape = tf.TensorShape(op.get_attr("shape"))
    # The size of a variable of unknown shape cannot be told; it counts as one element.
    elements = shape.num_elements() if shape.is_fully_defined() else 1
    return int(elements * op.get_attr("dtype").size)
