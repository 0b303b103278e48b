from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tpk.testing import hook_recorder, run_steps

__all__ = ["hook_recorder", "run_steps"]

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("evaluations", "guarded_trainings")
