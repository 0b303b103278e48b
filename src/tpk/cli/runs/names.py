"""Names of runs in a legend."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tpk.cli.runs.run import Run


def short_names(runs: Sequence[Run]) -> list[str]:
    """Return what tells runs apart: their paths without the directories that all of them are in."""
    paths = [os.path.realpath(run.directory) for run in runs]
    common = os.path.commonpath([os.path.dirname(path) for path in paths])
    return [os.path.relpath(path, common) for path in paths]
