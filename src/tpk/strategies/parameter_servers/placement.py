"""Placement of the ops of a graph on processes, if some of its variables are on parameter servers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk.strategies.device_setter import LeastLoadedDeviceSetter
from tpk.tf_internals import set_device


class ServerPlacement(LeastLoadedDeviceSetter):
    """A device function that puts each variable on the parameter server with the fewest bytes, all else on a worker.

    Unlike its base, it takes a device that the program names within a process, such as ``"/cpu:0"``, for one of the
    parameter server. What the program puts on a process itself stays there.

    Args:
        worker_device: the device of ops that are no variables; empty to leave that open.
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
    """An operation as it is without the device that the program names."""

    device = ""

    def __init__(self, op: Any) -> None:
        self.type = op.type
        self.get_attr = op.get_attr


def is_on_server(variable: Any) -> bool:
    """Whether a variable is on a parameter server."""
    return bool(tf.DeviceSpec.from_string(variable.device).job == "ps")


def place_on_worker(graph: Any, device: str) -> None:
    """Put all ops of `graph` of which the program has not said on which process they are on this one.

    Otherwise TensorFlow puts them on the first process of the cluster, which is a parameter server.

    Args:
        graph: a `tf.Graph`, of which no session has run anything yet.
        device: the prefix of the device strings of this process, such as ``"/job:worker/replica:0/task:1"``.
    """
    worker = tf.DeviceSpec.from_string(device)
    found: dict[str, Any] = {}

    def place(op: Any) -> Any:
        """Place an op, after those with which it has to be together; return its device."""
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
