"""The same scripts with tensorpack 0.11 and with this package, in separate processes.

`nox -s port_oracle` runs them in one environment with TensorFlow 2.15 and NumPy 1.26, where tensorpack still starts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent


pytest.importorskip("tensorpack", reason="the oracle, tensorpack 0.11, is not installed; nox -s port_oracle has it")


@pytest.mark.parametrize("script", ["layers.py", "tools.py", "images.py"])
def test_results_are_those_of_tensorpack(script, tmp_path, with_tensorpack, with_tpk):
    """For layers: variables, outputs, gradients and updates. For tools: values, predictions and images. For augmentors:
    images and coordinates.
    """
    with_tensorpack(tmp_path, HERE / script, "theirs.npz")
    with_tpk(tmp_path, HERE / script, "ours.npz")
    theirs, ours = np.load(tmp_path / "theirs.npz"), np.load(tmp_path / "ours.npz")
    assert set(ours) == set(theirs)
    for name in theirs:
        if theirs[name].dtype.kind == "U":
            assert ours[name].tolist() == theirs[name].tolist(), name
        else:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-5, err_msg=name)
