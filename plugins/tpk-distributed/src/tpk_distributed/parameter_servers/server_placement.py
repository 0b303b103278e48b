"""Placement of variables on parameter servers, and of all other ops on a worker."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk.strategies import LeastLoadedDeviceSetter
from tpk.tf_internals import set_device


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

    def place(self, op: Any, worker_device: str) -> str:
        """Return the device of `op`, in a tower on `worker_device`."""
        named = tf.DeviceSpec.from_string(op.device)
        if named.job is not None:
            return str(op.device)
        chosen = tf.DeviceSpec.from_string(super().place(_Unplaced(op), worker_device))
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
