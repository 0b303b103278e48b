from __future__ import annotations

from hypothesis import settings

# How long an example takes depends on what else the machine does.
settings.register_profile("unhurried", deadline=None, max_examples=50)
settings.load_profile("unhurried")
