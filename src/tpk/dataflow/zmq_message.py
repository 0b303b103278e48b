"""What a sender and a receiver of datapoints say to each other over ZeroMQ."""

from __future__ import annotations

import hashlib
import hmac
import pickle
import re
import struct
from collections.abc import Sequence
from enum import Enum
from typing import Any

import attrs
import numpy as np

from tpk.dataflow.memory import aligned_empty
from tpk.errors import ConfigError, InputError

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

    def frames(self, key: bytes | None) -> list[Any]:
        """Return what goes into the socket."""
        header = _HEADER.pack(_PROTOCOL, self.kind.value, self.sender, self.index, len(self.parts))
        frames = [header + self.name.encode(), *self.parts]
        return frames if key is None else [_signature(frames, key), *frames]

    @classmethod
    def from_frames(cls, frames: Sequence[Any], key: bytes | None) -> Message:
        """Read what came out of the socket; nothing of it is unpickled.

        Raises:
            WrongKeyError: it was not signed with that key.
            InputError: it is no message of this protocol.
        """
        if key is not None:
            if len(frames) < 2 or not hmac.compare_digest(bytes(frames[0]), _signature(frames[1:], key)):
                raise WrongKeyError("a message is not signed with the key of this receiver")
            frames = frames[1:]
        header = bytes(frames[0])
        try:
            protocol, kind, sender, index, count = _HEADER.unpack_from(header)
            if protocol != _PROTOCOL:
                raise ValueError(f"it begins with {protocol!r}")
            # A sender that is interrupted between two parts leaves a message that the next one is appended to.
            if count != len(frames) - 1:
                raise ValueError(f"it was to have {count} parts besides its header")
            return cls(Kind(kind), sender, index, header[_HEADER.size :].decode(), frames[1:])
        except (struct.error, ValueError) as error:
            raise InputError(
                f"a message of {len(frames)} parts is not from send_dataflow_zmq of this version of tpk, or is "
                f"signed with a key that this receiver was not given ({error})"
            ) from error


class WrongKeyError(InputError):
    """A message was not signed with the key that sender and receiver share."""


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
    buffers = [_aligned_copy(part) for part in parts[1:]]
    return pickle.loads(parts[0], buffers=buffers)


def check_addresses(address: str | Sequence[str], key: bytes | str | None, owner: str) -> tuple[str, ...]:
    """Return the addresses, and make sure that none is open to a network without a key.

    Raises:
        ConfigError: an address is none, or reaches beyond this machine and there is no key.
    """
    addresses = (address,) if isinstance(address, str) else tuple(address)
    if not addresses:
        raise ConfigError(f"{owner} takes one address or more, not none")
    for one in addresses:
        if not isinstance(one, str) or not _ADDRESS.fullmatch(one):
            raise ConfigError(
                f"{owner}: {one!r} is no address; expected 'tcp://host:port', such as 'tcp://127.0.0.1:8877', "
                "or 'ipc:///path/of/a/socket'"
            )
        if key is None and not _LOCAL_ADDRESS.match(one):
            raise ConfigError(
                f"{owner}: {one!r} can be reached from other machines, and whoever reaches a receiver of pickled "
                "data can run any code in it; give sender and receiver the same key=, or use a loopback address"
            )
    return addresses


def check_key(key: bytes | str | None, owner: str) -> bytes | None:
    """Return the key as bytes.

    Raises:
        ConfigError: it is empty, or neither text nor bytes.
    """
    if key is not None and (not isinstance(key, (bytes, str)) or not key):
        raise ConfigError(f"{owner}: a key is text or bytes of some length, such as that of secrets.token_hex()")
    return key.encode() if isinstance(key, str) else key


_ADDRESS = re.compile(r"tcp://.+:(\d+|\*)|ipc://.+")
_LOCAL_ADDRESS = re.compile(r"ipc://|tcp://(127(\.\d+){3}|localhost|\[::1\]):")


def _signature(frames: Sequence[Any], key: bytes) -> bytes:
    signature = hmac.new(key, digestmod=hashlib.sha256)
    for frame in frames:
        view = memoryview(frame)
        # With the lengths, so that no byte can move from one frame to the next.
        signature.update(struct.pack(">Q", view.nbytes))
        signature.update(view)
    return signature.digest()


def _aligned_copy(part: Any) -> np.ndarray[Any, Any]:
    received = np.frombuffer(part, np.uint8)
    copy = aligned_empty(received.shape, np.uint8)
    np.copyto(copy, received)
    return copy
