"""Key by which a sender and a receiver of datapoints know each other, and the pairs of keys for CURVE."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

import attrs

from tpk.errors import ConfigError

KEY_BYTES = 32


def check_key(key: bytes | str | None, owner: str) -> bytes | None:
    """Return the key that was given as bytes, or None if none was.

    Raises:
        ConfigError: it is empty, or neither text nor bytes.
    """
    if key is not None and (not isinstance(key, (bytes, str)) or not key):
        raise ConfigError(f"{owner}: a key is text or bytes of some length, such as that of secrets.token_hex()")
    return key.encode() if isinstance(key, str) else key


def key_file() -> Path:
    """Return where the key of this user is: ``tpk/zmq.key`` in ``$XDG_CONFIG_HOME``, by default ``~/.config``."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / "tpk" / "zmq.key"


def users_key(owner: str) -> bytes:
    """Return the key of this user, which whoever needs it first makes, in a file that nobody else may read.

    Raises:
        ConfigError: the file cannot be made or read, or others may read or change it.
    """
    remedy = "give sender and receiver the same key="
    try:
        path = key_file()
        if not path.exists():
            _make(path)
        key = path.read_bytes().strip()
        status = path.stat()
    except (OSError, RuntimeError) as error:  # The latter if nobody knows where the user's home is.
        raise ConfigError(f"{owner} neither finds nor makes a key of this user: {error}; {remedy}") from error
    # Windows keeps others out by other means.
    if os.name == "posix" and (status.st_mode & 0o077 or status.st_uid != os.geteuid()):
        raise ConfigError(
            f"{owner} does not use the key in {path}, since it is not this user's alone: let the file be theirs, and "
            f"chmod 600 it; or {remedy}"
        )
    if len(key) < KEY_BYTES:
        raise ConfigError(f"{owner}: {path} holds no key; remove it, and a new one is made; or {remedy}")
    return key


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_hex(KEY_BYTES).encode())
        # Whole, or not at all; and if another process was faster, its key is that of both.
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)


@attrs.frozen
class CurvePair:
    """A pair of keys for CURVE, each as the 40 characters that libzmq takes.

    Attributes:
        public: what the other side has to know.
        secret: what only this side needs.
    """

    public: bytes
    secret: bytes = attrs.field(repr=False)

    @classmethod
    def derive(cls, key: bytes, side: str) -> CurvePair:
        """Return the pair of a side, which all who know the key can derive, and nobody else can.

        Args:
            key: what sender and receiver share.
            side: whose pair it is.
        """
        # An optional package.
        import zmq
        from zmq.utils import z85

        secret = z85.encode(hashlib.blake2b(key, digest_size=32, person=f"tpk {side}".encode()).digest())
        return cls(zmq.curve_public(secret), secret)
