"""Sessions, the global step, and names of ops and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import tpk.graph
from tpk_tensorpack.tfutils.collect_env import collect_env_info

__all__ = [
    "collect_env_info",
    "get_default_sess_config",
    "get_global_step_value",
    "get_global_step_var",
    "get_tf_version_tuple",
]

get_global_step_var = tpk.graph.get_global_step_var


def get_default_sess_config(mem_fraction: float = 0.99) -> Any:
    """Return tensorpack's default `tf.ConfigProto`: one thread per op, GPU memory allocated as needed.

    Args:
        mem_fraction: the maximum fraction of a GPU's memory to use.
    """
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True, intra_op_parallelism_threads=1)
    config.gpu_options.per_process_gpu_memory_fraction = mem_fraction
    config.gpu_options.allow_growth = True
    return config


def get_global_step_value() -> int:
    """Return the value of the global step in the default session.

    Raises:
        ValueError: there is no default session.
    """
    sess = default_session("get_global_step_value")
    with sess.graph.as_default():
        return int(tf.compat.v1.train.global_step(sess, get_global_step_var()))


def get_op_tensor_name(name: str) -> tuple[str, str]:
    """Return the op name and the tensor name for either of them: ``("a", "a:0")`` for ``"a"``."""
    op, colon, index = name.rpartition(":")
    return (op, name) if colon and index.isdigit() else (name, f"{name}:0")


def get_tensors_by_names(names: Sequence[str]) -> list[Any]:
    """Return tensors of the default graph by name."""
    graph = tf.compat.v1.get_default_graph()
    return [graph.get_tensor_by_name(get_op_tensor_name(name)[1]) for name in names]


def get_op_or_tensor_by_name(name: str | Sequence[str]) -> Any:
    """Return an op by its name, or a tensor by a name such as ``"a:0"``; for a list of names, a list."""
    graph = tf.compat.v1.get_default_graph()
    if isinstance(name, list | tuple):
        return [get_op_or_tensor_by_name(each) for each in name]
    return graph.as_graph_element(name)


def gpu_available_in_session() -> bool:
    """Return whether the default session has a GPU.

    Raises:
        ValueError: there is no default session.
    """
    devices = default_session("gpu_available_in_session").list_devices()
    return any(device.device_type == "GPU" for device in devices)


def default_session(caller: str) -> Any:
    """Return the default session, or raise a `ValueError` that names the function that needs it."""
    sess = tf.compat.v1.get_default_session()
    if sess is None:
        raise ValueError(f"{caller} has no default session: call it in `with sess.as_default():`")
    return sess


def get_tf_version_tuple() -> tuple[int, ...]:
    """Return the first two numbers of TensorFlow's version, such as ``(2, 15)``."""
    return tuple(int(number) for number in tf.__version__.split(".")[:2])
