"""Read the file that W&B's process writes.

W&B no longer has a reader in Python. The file is a LevelDB log (https://github.com/google/leveldb/blob/main/doc/
log_format.md) after a 7-byte header. Its records are protocol buffers, whose definitions are in the wandb package.
"""

from __future__ import annotations

import json
import struct

import attrs
from wandb.proto import wandb_internal_pb2

_HEADER, _BLOCK = struct.Struct("<IHB"), 32768
_LAST_PARTS = (1, 4)


@attrs.frozen
class Recorded:
    """The contents of a ``.wandb`` file: the logged values of each step, and the configuration."""

    run_id: str
    history: dict[int, dict]
    config: dict
    exit_code: int | None


def read(path):
    """Read a ``.wandb`` file."""
    history, config, run_id, exit_code = {}, {}, "", None
    for record in records(path):
        if record.HasField("run"):
            run_id = record.run.run_id
            config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif record.HasField("history"):
            row = {}
            for item in record.history.item:
                *parents, last = item.nested_key or [item.key]
                part = row
                for parent in parents:
                    part = part.setdefault(parent, {})
                part[last] = json.loads(item.value_json)
            history[record.history.step.num] = row
        elif record.HasField("exit"):
            exit_code = record.exit.exit_code
    return Recorded(run_id, history, config, exit_code)


def records(path):
    """Yield the records of the file in order."""
    data, position, record = path.read_bytes(), 7, b""
    while position + _HEADER.size <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER.size:
            position += left
            continue
        _, length, part = _HEADER.unpack_from(data, position)
        position += _HEADER.size
        record += data[position : position + length]
        position += length
        if part in _LAST_PARTS:
            yield wandb_internal_pb2.Record.FromString(record)
            record = b""
