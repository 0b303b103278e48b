from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# How long an example takes depends on what else the machine does. CI draws the same examples each time.
settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=50,
    derandomize="CI" in os.environ,
)
settings.load_profile("unhurried")
