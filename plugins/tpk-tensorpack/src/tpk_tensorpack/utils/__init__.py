"""tensorpack's `utils`: tools for scripts, unrelated to training."""

from __future__ import annotations

from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.utils import (
    change_env,
    execute_only_once,
    fix_rng_seed,
    get_rng,
    get_tqdm,
    humanize_time_delta,
)

__all__ = [
    "change_env",
    "execute_only_once",
    "fix_rng_seed",
    "get_rng",
    "get_tqdm",
    "humanize_time_delta",
    "logger",
]
