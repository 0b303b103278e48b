"""Serialization with pickle, which can run code: load only data that you trust."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

from tpk_tensorpack.missing import not_here, optional_library

__all__ = ["dumps", "loads"]

__getattr__ = not_here(__name__, {"PyarrowSerializer": "dumps and loads, or MsgpackSerializer; pyarrow has dropped it"})


class MsgpackSerializer:
    """Serialize objects with msgpack, and arrays with msgpack-numpy if it is installed."""

    @staticmethod
    def dumps(obj: Any) -> bytes:
        """Serialize an object.

        Raises:
            ImportError: msgpack is not installed.
        """
        msgpack, arrays = _msgpack()
        packed: bytes = msgpack.packb(obj, use_bin_type=True, default=getattr(arrays, "encode", None))
        return packed

    @staticmethod
    def loads(buf: bytes) -> Any:
        """Deserialize the result of `dumps`.

        Raises:
            ImportError: msgpack is not installed.
        """
        msgpack, arrays = _msgpack()
        return msgpack.unpackb(buf, raw=False, strict_map_key=False, object_hook=getattr(arrays, "decode", None))


def _msgpack() -> tuple[Any, Any]:
    msgpack = optional_library("msgpack", "MsgpackSerializer")
    try:
        return msgpack, importlib.import_module("msgpack_numpy")
    except ImportError:
        return msgpack, None


def dumps(obj: Any) -> bytes:
    """Serialize an object.

    Args:
        obj: anything that can be pickled.
    """
    return pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)


def loads(buf: bytes) -> Any:
    """Deserialize the result of `dumps`."""
    return pickle.loads(buf)
