"""tensorpack's names of ops and collections."""

from __future__ import annotations

from tpk.graph import MOVING_SUMMARY_OPS_KEY

__all__ = ["GLOBAL_STEP_INCR_OP_NAME", "MOVING_SUMMARY_OPS_KEY"]

GLOBAL_STEP_INCR_OP_NAME = "global_step_incr"
