"""Scripts with tensorpack 0.11 and with this package: compare their results and the costs of their steps.

With `run_compared.py`, both use the same random draws. Therefore a script begins with the same weights, its first steps
have the same costs, and the log directory has the same contents: the variables (name, shape, type, trainable), the
names, shapes and types in each checkpoint, the names of statistics, the tags of events, and their steps; and also their
values, if only the seeds determine them.
"""

from __future__ import annotations

import glob
import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from scripts_compared import SCRIPTS, TABLE, check_arrays, check_costs, compared, in_both, tags, variables
from tensorflow.core.framework.types_pb2 import DataType
from tensorflow.core.framework.variable_pb2 import VariableDef

pytest.importorskip("tensorpack", reason="the oracle, tensorpack 0.11, is not installed; nox -s port_oracle has it")

WITH_ORACLE = {name: row for name, row in TABLE.items() if not row.without_oracle}


@pytest.mark.parametrize("name", WITH_ORACLE)
def test_a_script_leaves_what_it_leaves_with_tensorpack(sides, name):
    row = TABLE[name]
    theirs, ours = sides.of(name, "theirs", "ours")
    for directory in sorted({path.parent for kind in ("index", "meta") for path in theirs.glob(f"**/*.{kind}")}):
        check_logs(row, directory, ours / directory.relative_to(theirs))
    for path in sorted([*theirs.glob("**/*.npz"), *theirs.glob("**/pictures-*.npy")]):
        if not path.parent.name.startswith("prepared"):
            check_arrays(row, path, ours / path.relative_to(theirs))


@pytest.mark.parametrize("name", [name for name, row in WITH_ORACLE.items() if row.costs])
def test_steps_from_the_same_weights_cost_the_same(sides, name):
    check_costs(*sides.of(name, "theirs", "ours"))


@pytest.mark.parametrize("name", ["hooks"])
def test_hooks_are_called_in_the_same_order(sides, name):
    calls = []
    for directory in sides.of(name, "theirs", "ours"):
        with np.load(directory / "calls.npz") as file:
            calls.append(file["calls"])
        # Between two epochs, tensorpack still has the step number of the previous one.
        calls[-1][calls[-1][:, 0] == "before_epoch", 2] = "-1"
    assert calls[0].tolist() == calls[1].tolist()


@pytest.mark.parametrize("name", ["saliency"])
def test_a_classifier_looks_at_the_same(sides, name):
    sides.of(name, "theirs", "ours")
    said = [
        re.findall(r"class \d+, saliency up to [\d.]+", output)
        for output in (sides.outputs["theirs"], sides.outputs["ours"])
    ]
    assert said[0] == said[1]
    assert len(said[0]) == 1


def test_every_script_is_in_the_table():
    assert sorted(TABLE) == sorted(path.stem for path in SCRIPTS.glob("*.py"))


def check_logs(row, theirs, ours):
    """Compare two log directories, or directories of checkpoints."""
    if (theirs / "stats.json").exists():
        their_stats, our_stats = (json.loads((each / "stats.json").read_text()) for each in (theirs, ours))
        assert [in_both(row, set(each)) for each in our_stats] == [in_both(row, set(each)) for each in their_stats]
        for expected, found in zip(their_stats, our_stats, strict=True):
            assert found["global_step"] == expected["global_step"]
            assert found["epoch_num"] == expected["epoch_num"]
            for key in compared(row, in_both(row, set(expected)), "QueueInput/queue_size", "Throughput*"):
                # Summaries of variables may be from before or after the update.
                assert found[key] == pytest.approx(expected[key], rel=1e-3, abs=1e-6), key
    assert in_both(row, tags(ours)) == in_both(row, tags(theirs))
    indices = {path.name for path in theirs.glob("*.index")}
    assert in_both(row, {path.name for path in ours.glob("*.index")}) == in_both(row, indices)
    for index in sorted(indices):
        expected, found = (variables(directory / index[: -len(".index")]) for directory in (theirs, ours))
        kinds = [{name: (each.shape, each.dtype) for name, each in values.items()} for values in (found, expected)]
        assert in_both(row, kinds[0]) == in_both(row, kinds[1])
        for name in compared(row, in_both(row, expected)):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-5, err_msg=f"{index}: {name}")
    graphs = [sorted(glob.glob(f"{glob.escape(str(directory))}/graph-*.meta")) for directory in (theirs, ours)]
    assert bool(graphs[0]) == bool(graphs[1])
    if graphs[0]:
        assert in_both(row, of_graph(graphs[1][-1])) == in_both(row, of_graph(graphs[0][-1]))
    if (theirs / "checkpoint").exists() and "model-6.index" not in row.apart:
        latest = [Path(tf.train.latest_checkpoint(str(each))).name for each in (theirs, ours)]
        assert latest[0] == latest[1]


def of_graph(path):
    """Return the shape and type of each global variable of a graph, and whether it is trainable."""
    meta = tf.compat.v1.MetaGraphDef()
    meta.ParseFromString(Path(path).read_bytes())
    nodes = {node.name: node for node in meta.graph_def.node}
    found = {}
    for collection in ("variables", "trainable_variables"):
        for each in meta.collection_def[collection].bytes_list.value:
            variable = VariableDef()
            variable.ParseFromString(each)
            name = variable.variable_name.partition(":")[0]
            attributes = nodes[name].attr
            shape = [dimension.size for dimension in attributes["shape"].shape.dim]
            found[name] = (shape, DataType.Name(attributes["dtype"].type), collection, variable.trainable)
    return found
