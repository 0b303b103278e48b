"""The same scripts with tensorpack 0.11 and with what stands in for it, each a process of its own.

`nox -s port_oracle` runs them in one environment, on TensorFlow 2.15 and NumPy 1.26: there tensorpack still starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent

# tensorpack itself takes these from NumPy, which has dropped them.
WITH_TENSORPACK = """
import sys
import numpy
numpy.bool, numpy.int, numpy.float, numpy.object = bool, int, float, object
import tensorflow
tensorflow.compat.v1.disable_v2_behavior()
tensorflow.compat.v1.enable_resource_variables()
del sys.argv[0]
# tensorpack has never run the bare names of TensorFlow 1 on 2.x: a script that has them imports the module that has.
source = open(sys.argv[0]).read().replace("import tensorflow as tf", "import tensorflow.compat.v1 as tf")
sys.path[0] = ""
exec(compile(source, sys.argv[0], "exec"), {"__name__": "__main__", "__file__": sys.argv[0]})
"""

pytest.importorskip("tensorpack", reason="the oracle, tensorpack 0.11, is not installed; nox -s port_oracle has it")


def run(arguments, directory):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=directory,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What `layers.py` has written, with tensorpack and here."""
    directory = tmp_path_factory.mktemp("layers")
    run(["-c", WITH_TENSORPACK, HERE / "layers.py", "theirs.npz"], directory)
    run(["-m", "tpk_tensorpack", HERE / "layers.py", "ours.npz"], directory)
    return np.load(directory / "theirs.npz"), np.load(directory / "ours.npz")


def test_layers_have_the_variables_outputs_gradients_and_updates_of_tensorpack(results):
    theirs, ours = results
    assert set(ours) == set(theirs)
    for name in theirs:
        if theirs[name].dtype.kind == "U":
            assert ours[name].tolist() == theirs[name].tolist(), name
        else:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-5, err_msg=name)
