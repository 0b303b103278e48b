"""Runs of a script with tensorpack 0.11 and with what stands in for it, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# tensorpack itself takes names from NumPy and TensorFlow that these have dropped.
_WITH_TENSORPACK = """
import sys
import numpy
numpy.bool, numpy.int, numpy.float, numpy.object = bool, int, float, object
import tensorflow
for ours, theirs in ((tensorflow, tensorflow.compat.v1), (tensorflow.train, tensorflow.compat.v1.train)):
    for name in set(dir(theirs)) - set(dir(ours)):
        setattr(ours, name, getattr(theirs, name))
tensorflow.compat.v1.disable_v2_behavior()
tensorflow.compat.v1.enable_resource_variables()
del sys.argv[0]
# tensorpack has never run the bare names of TensorFlow 1 on 2.x: a script that has them imports the module that has.
source = open(sys.argv[0]).read().replace("import tensorflow as tf", "import tensorflow.compat.v1 as tf")
sys.path[0] = ""
__file__ = sys.argv[0]
exec(compile(source, __file__, "exec"))
"""


@pytest.fixture(scope="session")
def with_tensorpack():
    """A function that runs a script with tensorpack, in a directory."""
    return lambda directory, *arguments: _run(["-c", _WITH_TENSORPACK, *arguments], directory)


@pytest.fixture(scope="session")
def with_tpk():
    """A function that runs a script with what stands in for it, in a directory."""
    return lambda directory, *arguments: _run(["-m", "tpk_tensorpack", *arguments], directory)


@pytest.fixture
def start(tmp_path):
    """A function that starts a script with tensorpack (`"theirs"`) or without (`"ours"`), until the test is over."""
    started = []

    def start(whose, *arguments):
        first = ["-c", _WITH_TENSORPACK] if whose == "theirs" else ["-m", "tpk_tensorpack"]
        command = [sys.executable, *first, *map(str, arguments)]
        started.append(subprocess.Popen(command, cwd=tmp_path, env=_environment(), stderr=subprocess.DEVNULL))

    yield start
    for process in started:
        process.kill()
        process.wait(30)


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
