"""Bytes of objects, as `tpk_tensorpack.utils.serialize` has them: under the name that tensorpack gave it for a time."""

from __future__ import annotations

from tpk_tensorpack.utils.serialize import dumps, loads

__all__ = ["dumps", "loads"]
