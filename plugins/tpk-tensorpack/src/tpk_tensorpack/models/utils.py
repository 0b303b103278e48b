"""`VariableHolder`, under its module name in tensorpack."""

from __future__ import annotations

from tpk_tensorpack.models.common import VariableHolder as VariableHolder
