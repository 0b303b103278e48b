from __future__ import annotations

from tpk.testing import run_steps

__all__ = ["run_steps"]
