"""The same scripts with tensorpack 0.11 and with what stands in for it, each a process of its own.

`nox -s port_oracle` runs them in one environment, on TensorFlow 2.15 and NumPy 1.26: there tensorpack still starts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent


pytest.importorskip("tensorpack", reason="the oracle, tensorpack 0.11, is not installed; nox -s port_oracle has it")


@pytest.fixture(scope="module")
def results(tmp_path_factory, with_tensorpack, with_tpk):
    """What `layers.py` has written, with tensorpack and here."""
    directory = tmp_path_factory.mktemp("layers")
    with_tensorpack(directory, HERE / "layers.py", "theirs.npz")
    with_tpk(directory, HERE / "layers.py", "ours.npz")
    return np.load(directory / "theirs.npz"), np.load(directory / "ours.npz")


def test_layers_have_the_variables_outputs_gradients_and_updates_of_tensorpack(results):
    theirs, ours = results
    assert set(ours) == set(theirs)
    for name in theirs:
        if theirs[name].dtype.kind == "U":
            assert ours[name].tolist() == theirs[name].tolist(), name
        else:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-5, err_msg=name)
