"""An old name of `tpk_tensorpack.utils.serialize`."""

from __future__ import annotations

from tpk_tensorpack.utils.serialize import dumps, loads

__all__ = ["dumps", "loads"]
