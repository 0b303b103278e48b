"""Run cases and scripts with TensorFlow 1.15 and with this package, each side in one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def sides(request, tmp_path_factory):
    """The directories of results with TensorFlow 1.15 and with this package, of everything that was selected."""
    root = tmp_path_factory.mktemp("sides")
    names = [item.callspec.params["name"] for item in request.session.items if "sides" in item.fixturenames]
    interpreters = {"theirs": [os.environ["TPK_TENSORFLOW_1_15"]], "ours": [sys.executable, "-m", "tpk_tensorflow1"]}
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    processes = {}
    try:
        for whose, interpreter in interpreters.items():
            (root / whose).mkdir()
            with (root / f"{whose}.txt").open("w") as output:
                processes[whose] = subprocess.Popen(
                    [*interpreter, str(HERE / "run_compared.py"), str(root / whose), *names],
                    cwd=HERE,
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
        for whose, process in processes.items():
            assert process.wait(3600) == 0, (root / f"{whose}.txt").read_text()[-5000:]
    finally:
        for process in processes.values():
            process.kill()
            process.wait(30)
    return root / "theirs", root / "ours"
