"""Mean or sum of gradients over towers, delivered to every tower.

In every mode, each sum is computed once and copied to all towers, so all of them get the same bits and the replicas
stay identical. The modes differ in where tensors are summed, and what is sent between devices:

- ``copy``: each tensor is summed on one device; the devices take turns. Best if devices share memory.
- ``cpu``: each tensor is summed on the CPU. Best if GPUs can only communicate through the CPU.
- ``nccl``: NVIDIA's library, on GPUs only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.determinism import sum_in_order
from tpk.graph.devices import is_gpu, parts_of_one_gpu
from tpk.tf_internals import nccl_sum

Column = list[Any]
"""One tensor of each tower."""

MODES = ("auto", "copy", "cpu", "nccl")

_SAME_MODES = {"gpu": "copy", "hierarchical": "copy"}
"""Other names of modes, from tensorpack."""


def choose_mode(mode: str | None, devices: Sequence[str]) -> str:
    """Return the all-reduce mode that `mode` means for `devices`.

    Args:
        mode: one of `MODES`. ``auto`` is ``nccl`` for several devices that are all separate GPUs, otherwise ``copy``.
            None means ``auto``; ``gpu`` and ``hierarchical`` are other names of ``copy``.
        devices: device strings.

    Raises:
        ConfigError: if the mode is unknown, or does not work on these devices.
    """
    mode = "auto" if mode is None else _SAME_MODES.get(mode, mode)
    if mode not in MODES:
        raise ConfigError(f"unknown all-reduce mode {mode!r}; expected one of {', '.join(MODES)}.")
    all_gpus = all(map(is_gpu, devices))
    if mode == "nccl" and not all_gpus:
        raise ConfigError(f"all-reduce mode 'nccl' needs GPUs, but the devices are {', '.join(devices)}. Use 'auto'.")
    parts = parts_of_one_gpu(devices)
    if mode == "nccl" and parts:
        raise ConfigError(
            f"all-reduce mode 'nccl' needs separate GPUs, but {', '.join(parts)} are parts of one physical GPU. Use "
            "'auto', which means 'copy' here."
        )
    if mode == "auto":
        return "nccl" if all_gpus and len(devices) > 1 and not parts else "copy"
    return mode


def all_reduce(
    tensors_of_towers: Sequence[Sequence[Any]],
    devices: Sequence[str],
    mode: str = "auto",
    pack_bytes: int = 0,
    average: bool = True,
) -> list[list[Any]]:
    """Return the means or sums over towers of corresponding tensors, for each tower on its device.

    Args:
        tensors_of_towers: the tensors or `tf.IndexedSlices` of each tower, with the same shapes and dtypes.
        devices: the device of each tower.
        mode: see `choose_mode`.
        pack_bytes: smaller tensors are sent together, in packs of up to this size; with 0, each is sent alone.
        average: whether to divide the sums by the number of towers.

    Returns:
        The means or sums for each tower, in the same order. The result for `tf.IndexedSlices` is a `tf.IndexedSlices`.
    """
    if len(devices) == 1:
        return [list(tensors_of_towers[0])]
    reduce = _REDUCERS[choose_mode(mode, devices)]
    columns: list[Column] = [list(column) for column in zip(*tensors_of_towers, strict=True)]
    reduced: list[Column] = [[] for _ in columns]
    dense = []
    for index, column in enumerate(columns):
        if any(isinstance(tensor, tf.IndexedSlices) for tensor in column):
            reduced[index] = _reduced_slices(column, average)
        else:
            dense.append(index)
    packs = plan_packs([columns[index][0] for index in dense], pack_bytes)
    for turn, together in enumerate(packs):
        members = [dense[position] for position in together]
        rows = zip(*(columns[member] for member in members), strict=True)
        packed = [_on(device, pack, row) for device, row in zip(devices, rows, strict=True)]
        sums = reduce(packed, devices, turn)
        for device, total in zip(devices, sums, strict=True):
            result = _on(device, tf.divide, total, len(devices)) if average else total
            parts = _on(device, unpack, result, [columns[member][0] for member in members])
            for member, part in zip(members, parts, strict=True):
                reduced[member].append(part)
    return [list(row) for row in zip(*reduced, strict=True)]


def reduce_column(column: Column, average: bool = True) -> Any:
    """Return the mean or sum of corresponding tensors or `tf.IndexedSlices`, on the device of the context."""
    if len(column) == 1:
        return column[0]
    if any(isinstance(tensor, tf.IndexedSlices) for tensor in column):
        return _reduced_slices(column, average)[0]
    total = sum_in_order(column)
    return total / len(column) if average else total


def _on(device: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    with tf.device(device):
        return function(*arguments, **options)


# Sums: each takes a column and the devices, and returns the sum for each tower.


def _copy(column: Column, devices: Sequence[str], turn: int) -> Column:
    total = _on(devices[turn % len(devices)], sum_in_order, column)
    return [_on(device, tf.identity, total) for device in devices]


def _cpu(column: Column, devices: Sequence[str], turn: int) -> Column:
    total = _on("/cpu:0", sum_in_order, column)
    return [_on(device, tf.identity, total) for device in devices]


def _nccl(column: Column, devices: Sequence[str], turn: int) -> Column:
    # NCCL reduces on the device of a tensor, which may differ from the tower's if the user placed it.
    placed = [_on(device, tf.identity, tensor) for device, tensor in zip(devices, column, strict=True)]
    with tf.device(None):
        return nccl_sum(placed)


_REDUCERS: dict[str, Callable[[Column, Sequence[str], int], Column]] = {
    "copy": _copy,
    "cpu": _cpu,
    "nccl": _nccl,
}


def _reduced_slices(column: Column, average: bool) -> Column:
    """Return the mean or sum of sparse gradients: the slices of all towers."""
    slices = [tensor if isinstance(tensor, tf.IndexedSlices) else _all_slices(tensor) for tensor in column]
    values = tf.concat([each.values for each in slices], 0)
    values = values / len(column) if average else values
    indices = tf.concat([tf.cast(each.indices, tf.int64) for each in slices], 0)
    return [tf.IndexedSlices(values, indices, slices[0].dense_shape)] * len(column)


def _all_slices(tensor: Any) -> Any:
    return tf.IndexedSlices(tensor, tf.range(tf.shape(tensor, tf.int64)[0]), tf.shape(tensor, tf.int64))


def plan_packs(tensors: Sequence[Any], pack_bytes: int) -> list[list[int]]:
    """Return the positions of the tensors in each pack: tensors of one dtype, up to `pack_bytes` in total.

    Args:
        tensors: the tensors, in the order in which they become available.
        pack_bytes: the size in bytes; a larger tensor, or one of unknown shape, is sent alone.
    """
    packs: list[list[int]] = []
    open_packs: dict[Any, tuple[list[int], float]] = {}
    for position, tensor in enumerate(tensors):
        count = tensor.shape.num_elements()
        size = math.inf if count is None else count * tensor.dtype.size
        pack, room = open_packs.get(tensor.dtype, (None, 0.0))
        if pack is not None and size <= room:
            pack.append(position)
            open_packs[tensor.dtype] = (pack, room - size)
        else:
            packs.append([position])
            if size < pack_bytes:
                open_packs[tensor.dtype] = (packs[-1], pack_bytes - size)
    return packs


def pack(tensors: Sequence[Any]) -> Any:
    """Return a vector of the elements of tensors of one dtype, on the current device; a single tensor unchanged."""
    if len(tensors) == 1:
        return tensors[0]
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)


def unpack(packed: Any, likes: Sequence[Any]) -> list[Any]:
    """Return the tensors in a pack, with the shapes of `likes`, on the current device."""
    if len(likes) == 1:
        return [packed]
    parts = tf.split(packed, [like.shape.num_elements() for like in likes])
    return [tf.reshape(part, like.shape) for part, like in zip(parts, likes, strict=True)]
