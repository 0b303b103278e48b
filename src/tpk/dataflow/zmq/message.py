"""Messages between a sender and a receiver of datapoints over ZeroMQ."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from enum import Enum
from typing import Any

import attrs
import numpy as np

from tpk.dataflow.memory import aligned_copy
from tpk.errors import InputError

HEARTBEAT = 0.5
"""Seconds; a sender whose flow is slow gives a sign of life this often."""

# A part of its own costs a few microseconds; below this size the copy into the pickle costs less.
_IN_BAND_BYTES = 2048
_HEADER = struct.Struct(">4sc16sQI")
_PROTOCOL = b"tpk1"


class Kind(Enum):
    """What a message is."""

    DATAPOINT = b"D"
    ALIVE = b"A"
    END = b"E"
    FAILURE = b"F"
    RECEIVED = b"R"
    """From the receiver: it has got the end or the failure."""


@attrs.frozen
class Message:
    """One message: the header says who, what, and how many datapoints went before; the parts are the content.

    Attributes:
        kind: what it is.
        sender: 16 bytes that no other call of the sending function has.
        index: how many datapoints this sender has sent before to this receiver.
        name: of the sender, for people.
        parts: bytes-like objects: a pickle and its buffers, or one text.
    """

    kind: Kind
    sender: bytes
    index: int
    name: str
    parts: Sequence[Any] = ()

    def frames(self) -> list[Any]:
        """Return what goes into the socket."""
        header = _HEADER.pack(_PROTOCOL, self.kind.value, self.sender, self.index, len(self.parts))
        return [header + self.name.encode(), *self.parts]

    @classmethod
    def from_frames(cls, frames: Sequence[Any]) -> Message:
        """Read what came out of the socket of a receiver; nothing of it is unpickled.

        Raises:
            InputError: it is no message that a sender sends.
        """
        header = bytes(frames[0])
        try:
            protocol, kind, sender, index, count = _HEADER.unpack_from(header)
            if protocol != _PROTOCOL:
                raise ValueError(f"it begins with {protocol!r}")
            # A sender that is interrupted between two parts leaves a message that the next one is appended to.
            if count != len(frames) - 1:
                raise ValueError(f"it was to have {count} parts besides its header")
            if Kind(kind) is Kind.RECEIVED or (Kind(kind) is not Kind.ALIVE and not count):
                raise ValueError(f"a message of the kind {kind!r} with {count} parts is none of a sender")
            return cls(Kind(kind), sender, index, header[_HEADER.size :].decode(), frames[1:])
        except (struct.error, ValueError) as error:
            raise InputError(
                f"a message of {len(frames)} parts is not from send_dataflow_zmq of this version of tpk: {error}"
            ) from error


def pack_datapoint(datapoint: Any) -> list[Any]:
    """Return a pickle, followed by the memory of the larger arrays, which is not copied."""
    buffers: list[pickle.PickleBuffer] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < _IN_BAND_BYTES:
            return True
        buffers.append(buffer)
        return False

    pickled = pickle.dumps(datapoint, protocol=5, buffer_callback=keep_in_band)
    return [pickled, *(buffer.raw() for buffer in buffers)]


def unpack_datapoint(parts: Sequence[Any]) -> Any:
    """Undo `pack_datapoint`; the arrays are new ones, and lie as TensorFlow takes them without a copy.

    ZeroMQ puts what it receives at addresses that are no multiple of 64 bytes, so that TensorFlow would copy it
    under way; copied here, it can be changed in place, too, and keeps no message alive.
    """
    buffers = [aligned_copy(np.frombuffer(part, np.uint8)) for part in parts[1:]]
    return pickle.loads(parts[0], buffers=buffers)
