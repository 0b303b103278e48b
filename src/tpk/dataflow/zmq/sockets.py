"""ZeroMQ sockets that nobody gets in touch with but those who know the key, or this user's own processes."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tpk.dataflow.zmq.key import CurvePair, users_key
from tpk.errors import ConfigError

logger = logging.getLogger(__name__)

_ADDRESS = re.compile(r"tcp://.+:(\d+|\*)|ipc://.+")
_DOMAIN = "tpk"

_SIGNALS_EVERY = 1.0
"""Seconds for which nobody looks for signals: one that comes just before the waiting begins does not end it."""


def check_addresses(address: str | Sequence[str], owner: str) -> tuple[str, ...]:
    """Return the addresses.

    Raises:
        ConfigError: an address is none, or there is none at all.
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
    return addresses


class Sockets:
    """A socket for each address, in a ZeroMQ context of its own.

    Where there is a key, libzmq's CURVE lets nobody in who does not know it, encrypts, and takes nothing twice. It
    costs time: see `send_dataflow_zmq`. A Unix socket without a key is in a directory that is this user's alone, so
    that the kernel lets nobody else in.

    Args:
        zmq: the module.
        kind: ``"ROUTER"`` for a receiver, ``"DEALER"`` for a sender.
        addresses: where they are.
        hwm: the high water mark of each.
        bind: whether the other side connects to them.
        key: what both sides share; None for that of this user, which Unix sockets do without.
        owner: who has them, for messages.

    Attributes:
        all: the sockets, in the order of the addresses.
        strangers: how many connections have failed because the other side did not prove that it knows the key.

    Raises:
        ConfigError: `hwm` is less than 1, an address cannot be used, or there is no key, or no CURVE.
    """

    def __init__(
        self, zmq: Any, kind: str, addresses: Sequence[str], hwm: int, bind: bool, key: bytes | None, owner: str
    ) -> None:
        if hwm < 1:
            raise ConfigError(f"{owner}: hwm must be 1 or more, not {hwm}; without a limit memory fills up")
        locked = [key is not None or _is_open_to_others(address, owner) for address in addresses]
        if any(locked) and not zmq.has("curve"):
            raise ConfigError(
                f"{owner}: the ZeroMQ that is installed was built without CURVE, by which sender and receiver know "
                "each other. Install a wheel of pyzmq; or use ipc:// in a directory that is yours alone"
            )
        self._zmq = zmq
        self._owner = owner
        self._key = users_key(owner) if key is None and any(locked) else key
        self._context = zmq.Context()
        self._authenticator: Any = None
        self._monitors: dict[Any, str] = {}
        self._files: dict[str, tuple[int, int]] = {}
        self.all: list[Any] = []
        self.strangers = 0
        try:
            for address, is_locked in zip(addresses, locked, strict=True):
                self.all.append(self._open(kind, address, hwm, bind, is_locked))
        except zmq.ZMQError as error:
            self.close(0)
            raise ConfigError(f"{owner} cannot {'bind' if bind else 'connect'} to {address!r}: {error}") from error

    def poll(self, event: int, seconds: float, among: Sequence[Any] | None = None) -> list[Any]:
        """Return the sockets that can be read from or written to, once there is one or the time is over.

        Args:
            event: `zmq.POLLIN` or `zmq.POLLOUT`.
            seconds: how long to wait.
            among: which sockets; by default all.
        """
        poller = self._zmq.Poller()
        for one in self.all if among is None else among:
            poller.register(one, event)
        for monitor in self._monitors:
            poller.register(monitor, self._zmq.POLLIN)
        end = time.monotonic() + seconds
        while True:
            left = min(max(end - time.monotonic(), 0), _SIGNALS_EVERY)
            found = [one for one, _ in poller.poll(round(left * 1000))]
            ready = [one for one in found if one not in self._monitors]
            for one in found:
                if one in self._monitors:
                    self._note_stranger(one)
            if ready or time.monotonic() >= end:
                return ready

    def close(self, linger: int) -> None:
        """Close all, after up to `linger` milliseconds for what is still to be sent."""
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.destroy(linger=linger)
        # ZeroMQ leaves the files of its sockets; by now one may be that of another process.
        for path, identity in self._files.items():
            with suppress(FileNotFoundError):
                if _identity(path) == identity:
                    os.unlink(path)

    def _open(self, kind: str, address: str, hwm: int, bind: bool, is_locked: bool) -> Any:
        one = self._context.socket(getattr(self._zmq, kind))
        one.set_hwm(hwm)
        if is_locked:
            self._lock(one, is_server=kind == "ROUTER")
            self._monitors[self._monitor(one)] = address
        path = address.removeprefix("ipc://")
        if bind and address != path and _is_listened_to(path):
            # ZeroMQ would take the path away from whoever has it.
            raise self._zmq.ZMQError(self._zmq.EADDRINUSE)
        (one.bind if bind else one.connect)(address)
        if bind and address != path and os.path.exists(path):
            self._files[path] = _identity(path)
        return one

    def _lock(self, one: Any, is_server: bool) -> None:
        """Let nobody get in touch with a socket who does not know the key.

        In CURVE the client makes sure that it has to do with the server that it knows. The server asks ZeroMQ's
        authenticator, which is a thread, whether it knows the client.
        """
        assert self._key is not None
        server, client = (CurvePair.derive(self._key, side) for side in ("server", "client"))
        mine = server if is_server else client
        one.curve_publickey, one.curve_secretkey = mine.public, mine.secret
        if not is_server:
            one.curve_serverkey = server.public
            return
        if self._authenticator is None:
            # Only receivers that need it import it.
            from zmq.auth.thread import ThreadAuthenticator

            self._authenticator = ThreadAuthenticator(self._context)
            self._authenticator.start()
            self._authenticator.configure_curve_callback(_DOMAIN, _OnlyClient(client.public))
        # What the authenticator says comes before the first message and counts as one: at 1, ZeroMQ would get stuck.
        one.rcvhwm = max(one.rcvhwm, 2)
        one.zap_domain = _DOMAIN.encode()
        # Else everybody would be let in if the authenticator were gone.
        one.setsockopt(self._zmq.ZAP_ENFORCE_DOMAIN, 1)
        one.curve_server = True

    def _monitor(self, one: Any) -> Any:
        """Return a socket at which is told that somebody was not let in."""
        events = [getattr(self._zmq, f"EVENT_HANDSHAKE_FAILED_{why}") for why in ("AUTH", "PROTOCOL", "NO_DETAIL")]
        address = f"inproc://monitor-{len(self._monitors)}"
        one.monitor(address, sum(events))
        monitor = self._context.socket(self._zmq.PAIR)
        # Without a limit: at one, ZeroMQ would wait with everything until somebody reads.
        monitor.rcvhwm = 0
        monitor.connect(address)
        return monitor

    def _note_stranger(self, monitor: Any) -> None:
        monitor.recv_multipart()
        self.strangers += 1
        if self.strangers == 1:
            logger.warning(
                "%s at %s has refused a connection, or was refused: the other side did not prove that it knows the "
                "key, which both need to have. The log does not tell of further ones",
                self._owner,
                self._monitors[monitor],
            )


class _OnlyClient:
    """What ZeroMQ's authenticator asks whether a client may come in."""

    def __init__(self, public: bytes) -> None:
        self._public = public

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether that is the one."""
        return key == self._public


def _is_open_to_others(address: str, owner: str) -> bool:
    """Return whether an address needs a key; a Unix socket of this user's own processes does not.

    Raises:
        ConfigError: it is a Unix socket that others can reach, for which nobody but the user can give a key.
    """
    path = address.removeprefix("ipc://")
    if path == address:
        return True
    if path.startswith("@") or not _is_own_directory(os.path.dirname(path) or "."):
        raise ConfigError(
            f"{owner}: others can reach {address!r}, and whoever reaches a receiver of pickled data can run any code "
            "in it. Let the socket be in a directory that is yours alone, as tempfile.mkdtemp() makes one; or give "
            "sender and receiver the same key="
        )
    return False


def _is_own_directory(path: str) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _is_listened_to(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.connect(path)
        return True
    return False


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
