"""The runner runs the scripts of this directory unchanged; the oracle compares their results with TensorFlow 1.15."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
SCRIPTS = sorted(path.stem for path in (HERE / "scripts").glob("*.py"))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The directory with the results of all scripts, which run in one process."""
    directory = tmp_path_factory.mktemp("scripts")
    names = [f"../scripts/{name}.py" for name in SCRIPTS]
    done = subprocess.run(
        [sys.executable, "-m", "tpk_tensorflow1", str(HERE / "oracle" / "run_compared.py"), str(directory), *names],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    return directory


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_and_its_costs_fall(results, name):
    error = results / name / "error.txt"
    assert not error.exists(), error.read_text()
    with np.load(results / name / "results.npz") as found:
        for costs in [value for key, value in found.items() if key.endswith("costs")]:
            assert costs[-1] < costs[0]
