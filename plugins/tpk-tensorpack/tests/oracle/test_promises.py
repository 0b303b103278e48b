"""Documented features that are listed as failing in tensorpack 0.11 do fail there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("tensorpack", reason="the oracle, tensorpack 0.11, is not installed; nox -s port_oracle has it")

WITH_SOME_VERSIONS = {"convolutions_in_groups_have_outputs_and_gradients_on_cpus", "an_affine_map_is_drawn"}
"""These fail there on processors without oneDNN's convolutions, and with some versions of OpenCV."""

SCRIPT = Path(__file__).parent.parent / "promises.py"


def test_each_promise_is_kept_here_and_not_by_tensorpack(tmp_path, with_tensorpack, with_tpk):
    with_tensorpack(tmp_path, SCRIPT, "theirs.json")
    with_tpk(tmp_path, SCRIPT, "ours.json")
    theirs, ours = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("theirs", "ours"))
    assert set(theirs) == set(ours)
    assert not {name: error for name, error in ours.items() if error is not None}
    assert {name for name, error in theirs.items() if error is None} <= WITH_SOME_VERSIONS
