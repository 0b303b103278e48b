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


def start_programs(whose, directory, names, output):
    """Start a process that runs programs; a directory that has been used is used again."""
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    if whose == "ours":
        interpreter = [sys.executable, "-m", "tpk_tensorflow1"]
    else:
        interpreter = [os.environ[ORACLES[whose]]]
        environment.pop("PYTHONPATH", None)
    command = [*interpreter, str(HERE / "run_programs.py"), str(directory), *names]
    return subprocess.Popen(command, cwd=HERE, env=environment, stdout=output, stderr=subprocess.STDOUT)


@pytest.fixture
def run_program(tmp_path):
    """Run a program with one side after another in one directory; return that."""

    def run(name, *sides):
        directory = tmp_path / "-".join(sides)
        for whose in sides:
            with (tmp_path / "output.txt").open("w") as output:
                process = start_programs(whose, directory, [name], output)
            try:
                assert process.wait(900) == 0, (tmp_path / "output.txt").read_text()[-5000:]
            finally:
                process.kill()
                process.wait(30)
            error = directory / name / "error.txt"
            assert not error.exists(), f"{whose}: {error.read_text()}"
        return directory / name

    return run


@pytest.fixture(scope="session")
def directories(request, tmp_path_factory):
    """The directories of the results of each side, of the programs that were selected; the errors of a side by name."""
    if not os.environ.keys() & ORACLES.values():
        pytest.skip("there is no oracle; nox -s estimator_oracle has both")
    root = tmp_path_factory.mktemp("sides")
    names = sorted(
        {item.callspec.params["name"] for item in request.session.items if "directories" in item.fixturenames}
    )
    sides = ["ours", *(version for version, name in ORACLES.items() if name in os.environ)]
    processes = {}
    try:
        for whose in sides:
            with (root / f"{whose}.txt").open("w") as output:
                processes[whose] = start_programs(whose, root / whose, names, output)
        for whose, process in processes.items():
            assert process.wait(2400) == 0, (root / f"{whose}.txt").read_text()[-5000:]
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
