from __future__ import annotations

import sys
from pathlib import Path

from tpk.testing import fake_distribution, hook_recorder, isolated_catalog, run_steps

__all__ = ["fake_distribution", "hook_recorder", "isolated_catalog", "run_steps"]

sys.path.insert(0, str(Path(__file__).parent))
