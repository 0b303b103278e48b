from __future__ import annotations

from tpk.testing import fake_distribution, hook_recorder, isolated_catalog, run_steps

__all__ = ["fake_distribution", "hook_recorder", "isolated_catalog", "run_steps"]
