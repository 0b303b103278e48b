"""Placement of shared variables on the least loaded device or parameter server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpk.tf_internals import set_device

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

        def place(op: Any) -> str:
            return self._place(op, worker_device)

        return place

    def __call__(self, op: Any) -> str:
        """Return the device of `op`."""
        return self._place(op, self.worker_device)

    def _place(self, op: Any, worker_device: str) -> str:
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


class ServerPlacement(LeastLoadedDeviceSetter):
    """A device function that puts each variable on the parameter server with the fewest bytes, other ops on a worker.

    If the program chooses a device without a process, such as ``"/cpu:0"``, it means this device of the parameter
    server. Ops that the program puts on a process stay there.

    Args:
        worker_device: the device of ops other than variables; empty to let TensorFlow choose.
        ps_devices: the device of each parameter server.

    Example:
        ```python
        with tf.compat.v1.device(ServerPlacement("", ["/job:ps/task:0/cpu:0", "/job:ps/task:1/cpu:0"])):
            build_model()
        ```
    """

    def _place(self, op: Any, worker_device: str) -> str:
        named = tf.DeviceSpec.from_string(op.device)
        if named.job is not None:
            return str(op.device)
        chosen = tf.DeviceSpec.from_string(super()._place(_Unplaced(op), worker_device))
        return str(chosen.make_merged_spec(named).to_string())


class _Unplaced:
    """An operation without the device that the program chose."""

    device = ""

    def __init__(self, op: Any) -> None:
        self.type = op.type
        self.get_attr = op.get_attr


def is_on_server(variable: Any) -> bool:
    """Return whether a variable is on a parameter server."""
    return bool(tf.DeviceSpec.from_string(variable.device).job == "ps")


def place_on_worker(graph: Any, device: str) -> None:
    """Put the ops of `graph` on this process, except those that the program puts on another one.

    Otherwise TensorFlow puts them on the first process of the cluster, which is a parameter server.

    Args:
        graph: a `tf.Graph` that no session has run yet.
        device: the prefix of the device strings of this process, such as ``"/job:worker/replica:0/task:1"``.
    """
    worker = tf.DeviceSpec.from_string(device)
    found: dict[str, Any] = {}

    def place(op: Any) -> Any:
        """Place an op, after the ops that it is colocated with, and return its device."""
        if op.name not in found:
            named = tf.DeviceSpec.from_string(op.device)
            found[op.name] = named if named.job is not None else worker.make_merged_spec(named)
            if named.job is None:
                leaders = [group.decode().removeprefix("loc:@") for group in op.colocation_groups()]
                for leader in leaders:
                    if leader != op.name:
                        found[op.name] = place(graph.get_operation_by_name(leader))
                set_device(op, found[op.name].to_string())
        return found[op.name]

    for op in graph.get_operations():
        place(op)
