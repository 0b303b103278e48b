"""`VariableHolder`, by the path of where tensorpack has it."""

from __future__ import annotations

from tpk_tensorpack.models.common import VariableHolder as VariableHolder
