"""Run programs with TensorFlow's Estimator and with this package, each side in one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ORACLES = {
    "2.15": "TPK_ESTIMATOR_2_15",
    "1.15": "TPK_TENSORFLOW_1_15",
}
"""The variables with the Python of each oracle, by the version of TensorFlow."""


@pytest.fixture(scope="session")
def directories(request, tmp_path_factory):
    """The directories of the results of each side, of the programs that were selected; the errors of a side by name."""
    root = tmp_path_factory.mktemp("sides")
    names = sorted({item.callspec.params["name"] for item in request.session.items if "side" in item.fixturenames})
    interpreters = {version: [os.environ[name]] for version, name in ORACLES.items() if name in os.environ}
    interpreters["ours"] = [sys.executable, "-m", "tpk_tensorflow1"]
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    processes = {}
    try:
        for whose, interpreter in interpreters.items():
            with (root / f"{whose}.txt").open("w") as output:
                processes[whose] = subprocess.Popen(
                    [*interpreter, str(HERE / "run_programs.py"), str(root / whose), *names],
                    cwd=HERE,
                    env={name: value for name, value in environment.items() if whose == "ours" or name != "PYTHONPATH"},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
        for whose, process in processes.items():
            assert process.wait(900) == 0, (root / f"{whose}.txt").read_text()[-5000:]
    finally:
        for process in processes.values():
            process.kill()
            process.wait(30)
    return root


@pytest.fixture(params=list(ORACLES))
def side(request):
    """The version of TensorFlow of an oracle."""
    if ORACLES[request.param] not in os.environ:
        pytest.skip(f"{ORACLES[request.param]} is not set to a Python; nox -s estimator_oracle has one")
    return request.param
