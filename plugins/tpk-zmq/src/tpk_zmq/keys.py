"""The secret key that sender and receiver share, and the CURVE keys that both derive from it."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

import zmq
from zmq.utils import z85

from tpk.errors import ConfigError

_KEY_BYTES = 32


def key_file() -> Path:
    """Return the path of the user's key: ``tpk/zmq.key`` in ``$XDG_CONFIG_HOME``, which is ``~/.config`` by default."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / "tpk" / "zmq.key"


def user_key(owner: str) -> bytes:
    """Return the user's key. The first process that needs it creates it in a file that only the user can read.

    Raises:
        ConfigError: if the file cannot be created or read, contains no key, or can be read or modified by other users.
    """
    try:
        path = key_file()
        if not path.exists():
            _create(path)
        key, mode = path.read_bytes().strip(), path.stat().st_mode
    except (OSError, RuntimeError) as error:  # RuntimeError: the home directory is unknown.
        raise ConfigError(
            f"{owner} cannot read or create the user's key: {error}. Pass the same key= to sender and receiver"
        ) from error
    # Windows has no such permissions.
    if len(key) < _KEY_BYTES or (os.name == "posix" and mode & 0o077):
        raise ConfigError(
            f"{owner}: {path} is not a key that only you can access. Remove it, so that a new one is created; or pass "
            "the same key= to sender and receiver"
        )
    return key


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_hex(_KEY_BYTES).encode())
        # Linking is atomic: the file appears complete. If another process was faster, both use its key.
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)


def curve_pair(key: bytes, side: str) -> tuple[bytes, bytes]:
    """Return the public and the secret CURVE key of a side, ``"server"`` (the receiver) or ``"client"``."""
    secret = z85.encode(hashlib.blake2b(key, digest_size=32, person=f"tpk {side}".encode()).digest())
    return zmq.curve_public(secret), secret
