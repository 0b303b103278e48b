"""Messages between sender and receiver, and sockets that only processes with the same key can reach."""

from __future__ import annotations

import json
import os
import pickle
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import zmq
from zmq.auth.thread import ThreadAuthenticator

from tpk.argument_checks import check_at_least
from tpk.dataflow import aligned_empty
from tpk.errors import ConfigError, InputError
from tpk_zmq.keys import curve_pair, user_key

_ADDRESS = re.compile(r"tcp://.+:(\d+|\*)|ipc://[^@].*")
_DOMAIN = "tpk"
# A separate frame costs a few microseconds. Below this size, copying into the pickle costs less.
_IN_BAND_BYTES = 2048


@attrs.frozen
class Message:
    """One message of a sender.

    Attributes:
        kind: ``"datapoint"``, ``"end"`` or ``"failure"``.
        sender: the name of the sender, unique to one call of `send_dataflow_zmq`.
        index: how many datapoints the sender has sent to this receiver before.
        parts: a pickle and its buffers, or the text of a traceback.
    """

    kind: str
    sender: str
    index: int
    parts: Sequence[Any] = ()

    def frames(self) -> list[Any]:
        """Return the frames of a ZeroMQ message."""
        return [json.dumps([self.kind, self.sender, self.index, len(self.parts)]).encode(), *self.parts]

    @classmethod
    def from_frames(cls, frames: Sequence[Any]) -> Message:
        """Read the frames of a ZeroMQ message. Nothing is unpickled.

        Raises:
            InputError: if it is not a message of `send_dataflow_zmq`.
        """
        try:
            kind, sender, index, count = json.loads(bytes(frames[0]))
        except (TypeError, ValueError):
            count = -1
        # If a sender is interrupted between two frames, its next message is appended to the incomplete one.
        if count != len(frames) - 1:
            raise InputError(f"received {len(frames)} frames that are not a message of this version of tpk-zmq")
        return cls(kind, sender, index, frames[1:])


def pack_datapoint(datapoint: Any) -> list[Any]:
    """Return a pickle, followed by the buffers of larger arrays, which are not copied."""
    buffers: list[pickle.PickleBuffer] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < _IN_BAND_BYTES:
            return True
        buffers.append(buffer)
        return False

    pickled = pickle.dumps(datapoint, protocol=5, buffer_callback=keep_in_band)
    return [pickled, *(buffer.raw() for buffer in buffers)]


def unpack_datapoint(parts: Sequence[Any]) -> Any:
    """Undo `pack_datapoint`. The arrays are writable copies.

    ZeroMQ receives into memory that is not aligned to 64 bytes, so TensorFlow would copy it anyway.
    """
    return pickle.loads(parts[0], buffers=[_aligned_copy(part) for part in parts[1:]])


def _aligned_copy(part: Any) -> np.ndarray[Any, Any]:
    received = np.frombuffer(part, np.uint8)
    copy = aligned_empty(received.shape, received.dtype)
    copy[...] = received
    return copy


def check_addresses(address: str | Sequence[str], owner: str) -> tuple[str, ...]:
    """Return the addresses as a tuple.

    Raises:
        ConfigError: if `address` is empty, or an address is invalid.
    """
    addresses = (address,) if isinstance(address, str) else tuple(address)
    if not addresses or not all(isinstance(each, str) and _ADDRESS.fullmatch(each) for each in addresses):
        raise ConfigError(
            f"{owner}: expected addresses such as 'tcp://127.0.0.1:8877' or 'ipc:///path/of/a/socket', not {address!r}"
        )
    return addresses


class Sockets:
    """A socket for each address, in a separate ZeroMQ context.

    libzmq's CURVE authenticates both sides with the key, and encrypts. Only an ``ipc://`` socket in a directory that
    only the user can access needs no key.

    Args:
        kind: `zmq.ROUTER` for a receiver, `zmq.DEALER` for a sender.
        addresses: the addresses.
        hwm: the high water mark of each socket.
        bind: whether the other side connects.
        key: the shared key; None for the user's key.
        owner: the name of the caller, for messages.

    Attributes:
        all: the sockets, in the order of the addresses.

    Raises:
        ConfigError: if an option is invalid, an address cannot be used, or libzmq has no CURVE.
    """

    def __init__(
        self, kind: int, addresses: Sequence[str], hwm: int, bind: bool, key: bytes | str | None, owner: str
    ) -> None:
        check_at_least(owner, 1, hwm=hwm)
        if key is not None and not key:
            raise ConfigError(f"{owner}: key must not be empty; use secrets.token_hex()")
        keys = [_key_for(address, key, owner) for address in addresses]
        if any(keys) and not zmq.has("curve"):
            raise ConfigError(f"{owner}: the installed libzmq has no CURVE. Install a wheel of pyzmq")
        self._context = zmq.Context()
        self._authenticator: ThreadAuthenticator | None = None
        self._paths: list[str] = []
        self.all: list[Any] = []
        for address, its_key in zip(addresses, keys, strict=True):
            try:
                self.all.append(self._open(kind, address, hwm, bind, its_key))
            except zmq.ZMQError as error:
                self.close()
                raise ConfigError(f"{owner} cannot {'bind' if bind else 'connect'} to {address!r}: {error}") from error

    def ready(self, event: int, seconds: float) -> list[Any]:
        """Return the sockets that can be read from (`zmq.POLLIN`) or written to (`zmq.POLLOUT`) within a time."""
        poller = zmq.Poller()
        for each in self.all:
            poller.register(each, event)
        return [each for each, _ in poller.poll(round(seconds * 1000))]

    def close(self) -> None:
        """Close the sockets. Unsent messages are sent for up to a second."""
        if self._authenticator is not None:
            self._authenticator.stop()
        # ZeroMQ does not remove its socket files. While a socket is bound, no other process binds to its path.
        for path in self._paths:
            Path(path).unlink(missing_ok=True)
        self._context.destroy(linger=1000)

    def _open(self, kind: int, address: str, hwm: int, bind: bool, key: bytes | None) -> Any:
        opened = self._context.socket(kind)
        opened.set_hwm(hwm)
        if key is not None:
            self._secure(opened, key)
        path = address.removeprefix("ipc://")
        is_file = path != address
        if bind and is_file and _is_in_use(path):  # ZeroMQ would take over the path from the other process.
            raise zmq.ZMQError(zmq.EADDRINUSE)
        (opened.bind if bind else opened.connect)(address)
        if bind and is_file:
            self._paths.append(path)
        return opened

    def _secure(self, opened: Any, key: bytes) -> None:
        """Admit only processes that know the key.

        A CURVE client knows the public key of its server. A server asks ZeroMQ's authenticator, which is
        a thread, to check the public key of a client.
        """
        server, client = curve_pair(key, "server"), curve_pair(key, "client")
        if opened.type == zmq.DEALER:
            opened.curve_publickey, opened.curve_secretkey = client
            opened.curve_serverkey = server[0]
            return
        if self._authenticator is None:
            self._authenticator = ThreadAuthenticator(self._context)
            self._authenticator.start()
            self._authenticator.configure_curve_callback(
                _DOMAIN, SimpleNamespace(callback=lambda domain, public: public == client[0])
            )
        opened.curve_publickey, opened.curve_secretkey = server
        # The authenticator's answer counts as a message: with a high water mark of 1, ZeroMQ would get stuck.
        opened.rcvhwm = max(opened.rcvhwm, 2)
        opened.zap_domain = _DOMAIN.encode()
        # Without this, ZeroMQ admits every client if the authenticator is missing.
        opened.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        opened.curve_server = True


def _key_for(address: str, key: bytes | str | None, owner: str) -> bytes | None:
    """Return the key that a socket needs; None if only the user can access its directory, and no key was given."""
    if key is not None:
        return key.encode() if isinstance(key, str) else key
    directory = Path(address.removeprefix("ipc://")).parent
    if address.startswith("ipc://") and directory.is_dir():
        status = directory.stat()
        if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
            return None
    return user_key(owner)


def _is_in_use(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.connect(path)
        return True
    return False
