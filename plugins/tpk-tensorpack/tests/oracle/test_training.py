"""The scripts with tensorpack 0.11 and with what stands in for it: what they leave, and what their steps cost.

`run_compared.py` has both draw the same. So a script begins with the same weights, its first steps cost the same, and
what is in its log directory is the same: the variables (name, shape, type, trainable), the names, shapes and types in
each checkpoint, the names of statistics, the tags of events, the steps of all that; and their values, where nothing
but the seeds decides on them.
"""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.types_pb2 import DataType
from tensorflow.core.framework.variable_pb2 import VariableDef

pytest.importorskip("tensorpack", reason="the oracle, tensorpack 0.11, is not installed; nox -s port_oracle has it")

HERE = Path(__file__).parent
SCRIPTS = HERE.parent / "scripts"
STEPS = 20


def names(text):
    return attrs.field(default=text, converter=str.split)


@attrs.frozen
class Row:
    """A script, and what of it is compared.

    Attributes:
        runs: the arguments of each of its runs, in one directory.
        costs: the tensors in a tower that have to be the same in each of the first steps.
        values: whether statistics, variables and arrays have to have the same values.
        unequal: patterns of those that do not, although `values` is set.
        apart: patterns of variables, statistics, tags and files that only one of both has.
        process: those of one run in the same process; a script that starts processes or threads has one for itself.
    """

    runs: tuple[tuple[str, ...], ...] = ((),)
    costs: str = names("")
    values: bool = True
    unequal: str = names("")
    apart: str = names("")
    process: str = "shared"


# With one thread, what draws in a loop of the graph, or reads what is updated, has an order; but queues may block it.
IN_ORDER = "in order"


# Of several towers, tensorpack's first one may have either batch, so its statistics are those of either.
TABLE = {
    # Simulators play as fast as they can.
    "actor_critic": Row(values=False, process="actor_critic"),
    # Towers update the same variables as they come.
    "async_towers": Row(values=False),
    "autoresume": Row(((), ("--epochs", "3")), costs="cost"),
    # What the worker draws depends on the number of its process; tensorpack reads nothing but the whole CIFAR-10.
    "cifar": Row((("--make-data", "10000", "--processes", "1"),), values=False, process="cifar"),
    # Dropout draws from what is in two variables.
    "convnet": Row(values=False, apart="tpk_random_seed tpk_further_runs"),
    "detection": Row(),
    "digits": Row(costs="total_cost"),
    "dqn": Row(costs="cost"),
    "export": Row(),
    # tensorpack's optimizer counts all steps, ours those that are accumulated.
    "fine_tune": Row(costs="cost", apart="AccumGrad/counter fc/W/AccumGrad/counter", process=IN_ORDER),
    "gan": Row(costs="GAN_loss/g_loss GAN_loss/d_loss"),
    "gan_towers": Row(costs="GAN_loss/g_loss GAN_loss/d_loss", unequal="GAN_loss/*"),
    # A checkpoint of the last step.
    "hooks": Row(costs="cost", unequal="calls.npz:calls", apart="model-6.index"),
    # The queue of an evaluation has no moving average.
    "inference": Row(
        costs="cost", unequal="cost error error5", apart="tower1/* *InferenceRunner/QueueInput/queue_size"
    ),
    # Dropout draws from other sources.
    "lstm": Row(values=False),
    "multi_tower": Row(costs="cost", unequal="cost train_error validation_* bn/*/EMA learning_rate", apart="tower1/*"),
    # Threads map the data in any order.
    "own_data": Row(values=False),
    # What dropout draws within a loop is in the order in which its iterations happen to run.
    "ptb": Row(costs="cost", values=False, process=IN_ORDER),
    "residual": Row(costs="cost", unequal="learning_rate"),
    # Setters stand behind the saver, so tensorpack saves what they have not set yet.
    "resume": Row(
        ((), ("--load", "train_log/resume/checkpoint", "--from-epoch", "3")), costs="cost", unequal="learning_rate"
    ),
    "saliency": Row(),
    "serialized": Row(),
    "siamese": Row(costs="cost", unequal="cost constrastive_loss/* learning_rate"),
    "spatial_transformer": Row(costs="cost"),
    "super_resolution": Row(costs="cost", unequal="learning_rate"),
    "surgery": Row(costs="cost"),
    "wgan": Row(costs="d_loss g_loss", unequal="learning_rate"),
}
# Those that tensorpack 0.11 does not run.
WITHOUT_ORACLE = {
    "keras_model": "it ends the process while it builds a tower of Keras layers on TensorFlow 2",
    "old_style": "it was written for 0.5; TrainConfig has no nr_tower",
}


class Both:
    """What the scripts have left, with tensorpack and without."""

    def __init__(self, directory, rows):
        self._directory = directory
        for whose in ("theirs", "ours"):
            (directory / whose).mkdir()
        self.outputs = {"theirs": "", "ours": ""}
        for process in dict.fromkeys(TABLE[name].process for name in rows):
            self._run([name for name in rows if TABLE[name].process == process], process == IN_ORDER)

    def _run(self, rows, in_order):
        table = self._directory / "table.json"
        runs = {name: [[str(SCRIPTS / f"{name}.py"), *run] for run in TABLE[name].runs] for name in rows}
        table.write_text(json.dumps([{"name": n, "runs": runs[n], "costs": TABLE[n].costs} for n in rows]))
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        if in_order:
            environment["TF_NUM_INTEROP_THREADS"] = "1"
        processes = {}
        for whose in self.outputs:
            output = self._directory / f"{whose}.txt"
            with output.open("a") as file:
                processes[whose] = subprocess.Popen(
                    [sys.executable, str(HERE / "run_compared.py"), whose, str(table)],
                    cwd=self._directory / whose,
                    env=environment,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
        try:
            for whose, process in processes.items():
                status = process.wait(600)
                self.outputs[whose] = (self._directory / f"{whose}.txt").read_text()
                assert status == 0, self.outputs[whose][-3000:]
        finally:
            for process in processes.values():
                process.kill()
                process.wait()

    def of(self, name):
        directories = [self._directory / whose / name for whose in self.outputs]
        for directory in directories:
            error = directory / "error.txt"
            assert not error.exists(), error.read_text()
        return directories


@pytest.fixture(scope="module")
def both(request, tmp_path_factory):
    """All scripts of the tests that were chosen have run."""
    chosen = [item.callspec.params["name"] for item in request.session.items if hasattr(item, "callspec")]
    return Both(tmp_path_factory.mktemp("both"), [name for name in TABLE if name in chosen])


@pytest.mark.parametrize("name", TABLE)
def test_a_script_leaves_what_it_leaves_with_tensorpack(both, name):
    row = TABLE[name]
    theirs, ours = both.of(name)
    for directory in sorted({path.parent for kind in ("index", "meta") for path in theirs.glob(f"**/*.{kind}")}):
        check_logs(row, directory, ours / directory.relative_to(theirs))
    for path in sorted([*theirs.glob("**/*.npz"), *theirs.glob("**/pictures-*.npy")]):
        if not path.parent.name.startswith("prepared"):
            check_arrays(row, path, ours / path.relative_to(theirs))


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.costs])
def test_steps_from_the_same_weights_cost_the_same(both, name):
    expected, found = (np.load(directory / "costs.npy") for directory in both.of(name))
    assert expected.shape == found.shape
    assert len(expected) >= 6 and np.isfinite(expected).all()
    # What is lost where large numbers cancel each other is not ours to keep.
    np.testing.assert_allclose(found[:STEPS], expected[:STEPS], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["hooks"])
def test_hooks_are_called_in_the_same_order(both, name):
    calls = []
    for directory in both.of(name):
        with np.load(directory / "calls.npz") as file:
            calls.append(file["calls"])
        # Between two epochs, tensorpack still has the step of the one that is over.
        calls[-1][calls[-1][:, 0] == "before_epoch", 2] = "-1"
    assert calls[0].tolist() == calls[1].tolist()


@pytest.mark.parametrize("name", ["saliency"])
def test_a_classifier_looks_at_the_same(both, name):
    both.of(name)
    said = [re.findall(r"class \d+, saliency up to [\d.]+", output) for output in both.outputs.values()]
    assert said[0] == said[1]
    assert len(said[0]) == 1


def test_every_script_is_in_the_table():
    assert sorted([*TABLE, *WITHOUT_ORACLE]) == sorted(path.stem for path in SCRIPTS.glob("*.py"))


def check_logs(row, theirs, ours):
    """Compare two log directories, or directories of checkpoints."""
    if (theirs / "stats.json").exists():
        their_stats, our_stats = (json.loads((each / "stats.json").read_text()) for each in (theirs, ours))
        assert [in_both(row, set(each)) for each in our_stats] == [in_both(row, set(each)) for each in their_stats]
        for expected, found in zip(their_stats, our_stats, strict=True):
            assert found["global_step"] == expected["global_step"]
            assert found["epoch_num"] == expected["epoch_num"]
            for key in compared(row, in_both(row, set(expected)), "QueueInput/queue_size", "Throughput*"):
                # Summaries of variables may be from before or after their update.
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


def check_arrays(row, theirs, ours):
    """Compare two files of arrays."""
    expected, found = np.load(theirs), np.load(ours)
    if isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected)
        return
    with expected, found:
        assert set(found) == set(expected)
        for name in expected:
            if compared(row, [f"{theirs.name}:{name}"]):
                if expected[name].dtype.kind == "f":
                    np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
                else:
                    np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
            else:
                assert found[name].shape == expected[name].shape


def compared(row, found, *unequal):
    """The names of those that have to have the same values."""
    patterns = [*row.unequal, *unequal]
    return [name for name in found if row.values and not any(fnmatch.fnmatch(name, each) for each in patterns)]


def in_both(row, found):
    """Those that both have to have."""
    kept = [name for name in found if not any(fnmatch.fnmatch(name, each) for each in row.apart)]
    return {name: found[name] for name in kept} if isinstance(found, dict) else set(kept)


def variables(path):
    reader = tf.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def of_graph(path):
    """The shape and type of each global variable of a graph, and whether it is trainable."""
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


def tags(directory):
    """What the event files hold: the kinds of values, and the steps, of each tag."""
    found = {}
    for path in sorted(glob.glob(f"{glob.escape(str(directory))}/events*")):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.WhichOneof("value")))
    return found
