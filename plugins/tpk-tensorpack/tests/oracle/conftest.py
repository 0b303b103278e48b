"""Run scripts with tensorpack 0.11 and with this package, each in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytest.register_assert_rewrite("scripts_compared")


@pytest.fixture(scope="session")
def with_tensorpack():
    """A function that runs a script with tensorpack in a directory."""
    return lambda directory, *arguments: _run([HERE / "with_tensorpack.py", *arguments], directory)


@pytest.fixture(scope="session")
def with_tpk():
    """A function that runs a script with this package in a directory."""
    return lambda directory, *arguments: _run(["-m", "tpk_tensorpack", *arguments], directory)


@pytest.fixture
def start(tmp_path):
    """A function that starts a script with tensorpack ("theirs") or without ("ours"), and ends it after the test."""
    started = []

    def start(whose, *arguments):
        first = [HERE / "with_tensorpack.py"] if whose == "theirs" else ["-m", "tpk_tensorpack"]
        command = [sys.executable, *map(str, [*first, *arguments])]
        started.append(subprocess.Popen(command, cwd=tmp_path, env=_environment(), stderr=subprocess.DEVNULL))

    yield start
    for process in started:
        process.kill()
        process.wait(30)


@pytest.fixture(scope="session")
def sides(request, tmp_path_factory):
    """The results of all scripts that the selected tests need, run on the sides that these compare."""
    from scripts_compared import TABLE, Sides

    compared = {"test_training": ("theirs", "ours"), "test_converted": ("ours", "converted")}
    rows = {}
    for item in request.session.items:
        if "sides" in item.fixturenames:
            for whose in compared[item.path.stem]:
                rows.setdefault(whose, set()).add(item.callspec.params["name"])
    rows = {whose: [name for name in TABLE if name in chosen] for whose, chosen in rows.items()}
    return Sides(tmp_path_factory.mktemp("sides"), rows)


def _environment():
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}


def _run(arguments, directory):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=directory,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-5000:]
