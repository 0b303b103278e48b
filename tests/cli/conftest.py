from __future__ import annotations

from tpk.testing import fake_distribution, isolated_catalog

__all__ = ["fake_distribution", "isolated_catalog"]
