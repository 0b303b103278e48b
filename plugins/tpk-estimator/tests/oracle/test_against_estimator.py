"""Programs with TensorFlow's own Estimator and with this package: what they print, and their files, are the same.

To add a program, put it into `programs`. It writes to the current directory, and prints JSON. What depends on the clock
or on the host is not compared. `nox -s estimator_oracle` runs all of them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

HERE = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in HERE.glob("programs/*.py"))

# The first test waits until each side has run all programs.
pytestmark = pytest.mark.timeout(3600)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_the_same_results(name, side, directories):
    theirs, ours = directories / side / name, directories / "ours" / name
    for directory in (theirs, ours):
        error = directory / "error.txt"
        assert not error.exists(), f"{directory.parent.name}: {error.read_text()}"
    printed, expected = (
        list(map(json.loads, (each / "printed.txt").read_text().splitlines())) for each in (ours, theirs)
    )
    assert_same(printed, expected, "what is printed")
    assert names_in(ours) == names_in(theirs)
    for path in sorted(theirs.rglob("*.index")):
        checkpoint = path.relative_to(theirs).with_suffix("")
        if "variables" not in checkpoint.parts:  # An export's directory is named after the time.
            assert_same(values_in(ours / checkpoint), values_in(theirs / checkpoint), str(checkpoint))
    for path in sorted({path.parent for path in theirs.rglob("events.out.tfevents.*")}):
        directory = path.relative_to(theirs)
        assert_same(events_in(ours / directory), events_in(path), f"the events in {directory}")
    for ours_exported, exported in zip(saved_models_in(ours), saved_models_in(theirs), strict=True):
        assert_same(signatures_in(ours_exported), signatures_in(exported), str(exported))


def test_each_side_continues_the_directory_of_the_other(side, run_program):
    expected = run_program("continuing", side, side)
    for order in ((side, "ours"), ("ours", side)):
        found = run_program("continuing", *order)
        printed, printed_there = (json.loads((each / "printed.txt").read_text()) for each in (found, expected))
        assert printed_there["global_step"] == 40
        assert_same(printed, printed_there, f"{order}")
        assert_same(values_in(found / "model/model.ckpt-40"), values_in(expected / "model/model.ckpt-40"), f"{order}")


def assert_same(found, expected, where):
    if isinstance(expected, dict):
        assert list(found) == list(expected), where
        for key, value in expected.items():
            assert_same(found[key], value, f"{where}, {key}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), (where, found, expected)
        for position, value in enumerate(expected):
            assert_same(found[position], value, f"{where}, {position}")
    elif isinstance(expected, float | np.ndarray):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=where)
    else:
        assert found == expected, where


def names_in(directory):
    """Return the relative paths of all visible files, without times, hosts and hidden folders.

    In how many files a saver writes the variables depends on the version of TensorFlow.
    """
    paths = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
    paths = {re.sub(r"\.data-\d{5}-of-\d{5}", ".data", path) for path in paths}
    paths = {re.sub(r"tfevents\..*", "tfevents", re.sub(r"/\d{10}/", "/<time>/", path)) for path in paths}
    return sorted(path for path in paths if not re.search(r"(^|/)\.tpk/|fingerprint\.pb", path))


def values_in(checkpoint):
    return {name: tf.train.load_variable(str(checkpoint), name) for name, _ in tf.train.list_variables(str(checkpoint))}


def events_in(directory):
    """Return the step, the tag and the value of each scalar; 0 for what depends on timing.

    That is rates, how full a queue is, and weights, which may be read before or after the step updates them. How far
    apart summaries are depends on timing in Estimator, too, unless each step has one.
    """
    return [
        (event.step, value.tag, 0.0 if value.tag.endswith(_DEPENDS_ON_TIMING) else value.simple_value)
        for path in sorted(directory.glob("events.out.tfevents.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]


_DEPENDS_ON_TIMING = ("/sec", "_full", "/bias", "_weights")


def saved_models_in(directory):
    return sorted(path.parent for path in directory.rglob("saved_model.pb"))


def signatures_in(directory):
    """Return the inputs and outputs of each signature: name, dtype and shape."""
    model = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())
    described = {}
    for graph in model.meta_graphs:
        for name, signature in sorted(graph.signature_def.items()):
            if name.startswith("__"):
                continue
            described[f"{sorted(graph.meta_info_def.tags)} {name}"] = {"method": signature.method_name} | {
                f"{kind} {key}": f"{tensor.dtype} {[size.size for size in tensor.tensor_shape.dim]}"
                for kind, tensors in (("input", signature.inputs), ("output", signature.outputs))
                for key, tensor in sorted(tensors.items())
            }
    return described
