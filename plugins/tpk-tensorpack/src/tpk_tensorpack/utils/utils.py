"""Random states, progress bars, environment variables and durations."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import numpy as np
from tqdm import tqdm

__all__ = ["change_env", "execute_only_once", "fix_rng_seed", "get_rng", "get_tqdm", "humanize_time_delta"]

_seed: int | None = None
_seeds: np.random.SeedSequence | None = None
_callers: set[tuple[str, int]] = set()


def humanize_time_delta(sec: float) -> str:
    """Format a duration, such as ``"1 hour 10 minutes 3 seconds"``.

    Args:
        sec: seconds.
    """
    if sec < 0:
        raise ValueError(f"a duration of {sec} s; expected 0 or more")
    if sec < 60:
        return f"{sec:.3g} second{'s' if sec not in (0, 1) else ''}"
    parts = []
    rest = int(sec)
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(parts)


@contextmanager
def change_env(name: str, val: str) -> Iterator[None]:
    """A context in which the environment variable `name` is `val`."""
    before = os.environ.get(name)
    os.environ[name] = val
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def fix_rng_seed(seed: int) -> None:
    """Seed every later `get_rng`; call it at the start of a script to make the data reproducible."""
    global _seed
    _seed = int(seed)


def fixed_rng_seed() -> int | None:
    """Return the seed set by `fix_rng_seed`, or None."""
    return _seed


def draw_rngs_from(seeds: Sequence[int]) -> None:
    """Seed every later `get_rng` with the next number of a sequence; used at the start of worker processes.

    Args:
        seeds: the seeds of the sequence.
    """
    global _seeds
    _seeds = np.random.SeedSequence(seeds)


def get_rng(obj: Any = None) -> np.random.RandomState:
    """Return a random state for `obj`, different in each process and call unless the seed is fixed.

    Args:
        obj: the object that draws the numbers.
    """
    if _seed is not None:
        return np.random.RandomState(_seed)
    if _seeds is not None:
        return np.random.RandomState(_seeds.spawn(1)[0].generate_state(1)[0])
    words = f"{id(obj)} {os.getpid()} {datetime.now():%Y%m%d%H%M%S%f}"
    return np.random.RandomState(zlib.crc32(words.encode()))


def execute_only_once() -> bool:
    """Return whether the calling line runs for the first time."""
    caller = sys._getframe(1)
    line = caller.f_code.co_filename, caller.f_lineno
    is_first = line not in _callers
    _callers.add(line)
    return is_first


def get_tqdm_kwargs(**kwargs: Any) -> dict[str, Any]:
    """Return the options of a progress bar; the given ones override the defaults."""
    is_terminal = sys.stderr.isatty()
    return {
        "smoothing": 0.5,
        "dynamic_ncols": True,
        "ascii": True,
        "bar_format": "{l_bar}{bar}|{n_fmt}/{total_fmt}[{elapsed}<{remaining},{rate_noinv_fmt}]",
        "mininterval": 0.5 if is_terminal else float(os.environ.get("TENSORPACK_PROGRESS_REFRESH", 180)),
        **kwargs,
    }


def get_tqdm(*args: Any, **kwargs: Any) -> Any:
    """Return a `tqdm` progress bar with the default options."""
    return tqdm(*args, **get_tqdm_kwargs(**kwargs))
