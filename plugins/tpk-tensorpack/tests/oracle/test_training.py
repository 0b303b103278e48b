"""Trainings with tensorpack 0.11 and with what stands in for it: what they leave, and what it says."""

from __future__ import annotations

import glob
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.variable_pb2 import VariableDef

pytest.importorskip("tensorpack", reason="the oracle, tensorpack 0.11, is not installed; nox -s port_oracle has it")

SCRIPTS = Path(__file__).parent.parent / "scripts"


class Both:
    """Runs a script in two directories, with tensorpack in the one, and here in the other."""

    def __init__(self, directory, with_tensorpack, with_tpk):
        self._with_tensorpack, self._with_tpk = with_tensorpack, with_tpk
        self.theirs, self.ours = directory / "theirs", directory / "ours"
        self.theirs.mkdir()
        self.ours.mkdir()

    def run(self, script, *arguments):
        self._with_tensorpack(self.theirs, SCRIPTS / script, *arguments)
        self._with_tpk(self.ours, SCRIPTS / script, *arguments)


@pytest.fixture
def both(tmp_path, with_tensorpack, with_tpk):
    return Both(tmp_path, with_tensorpack, with_tpk)


def stats(directory):
    return json.loads((directory / "stats.json").read_text())


def variables(path):
    reader = tf.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def collection(directory, name):
    """The names and shapes of the variables in a collection of the newest graph, in its order."""
    meta = tf.compat.v1.MetaGraphDef()
    meta.ParseFromString(Path(sorted(glob.glob(f"{directory}/graph-*.meta"))[-1]).read_bytes())
    found = []
    for each in meta.collection_def[name].bytes_list.value:
        variable = VariableDef()
        variable.ParseFromString(each)
        found.append((variable.variable_name, variable.trainable))
    return found


def calls_of(directory):
    with np.load(directory / "calls.npz") as file:
        return dict(file)


def tags(directory):
    """What the event files hold: the kinds of values, and the steps, of each tag."""
    found = {}
    for path in sorted(glob.glob(f"{directory}/events*")):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.WhichOneof("value")))
    return found


def check_alike(theirs, ours, apart_from=("QueueInput/queue_size",)):
    """Statistics, event tags, checkpoints and variables are the same ones, and have the same values."""
    their_stats, our_stats = stats(theirs), stats(ours)
    assert [set(each) for each in our_stats] == [set(each) for each in their_stats]
    values_apart = set(apart_from) - {"learning_rate"}
    for expected, found in zip(their_stats, our_stats):  # noqa: B905 - of one length, by now
        for name in set(expected) - values_apart:
            assert found[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6), name
    assert tags(ours) == tags(theirs)
    indices = sorted(path.name for path in theirs.glob("*.index"))
    assert sorted(path.name for path in ours.glob("*.index")) == indices
    for index in indices:
        name = index[: -len(".index")]
        expected, found = variables(theirs / name), variables(ours / name)
        assert {key: (each.shape, each.dtype) for key, each in found.items()} == {
            key: (each.shape, each.dtype) for key, each in expected.items()
        }
        for key in set(expected) - set(apart_from):
            np.testing.assert_allclose(found[key], expected[key], rtol=1e-3, atol=1e-5, err_msg=key)
    for name in ("trainable_variables", "variables"):
        assert sorted(collection(ours, name)) == sorted(collection(theirs, name))
    latest = [Path(tf.train.latest_checkpoint(str(each))).name for each in (theirs, ours)]
    assert latest[0] == latest[1]


def test_digits_from_the_same_weights(tmp_path, both, with_tensorpack):
    with_tensorpack(both.theirs, SCRIPTS / "digits.py", "--epochs", "1")
    start = tmp_path / "start"
    shutil.copytree(both.theirs / "train_log" / "digits", start)
    both.run("digits.py", "--load", start / "model-20", "--epochs", "2")
    theirs, ours = both.theirs / "train_log/digits", both.ours / "train_log/digits"
    check_alike(theirs, ours)
    assert not (ours / "model-20.index").exists()  # The directory was deleted before, as the script says.


def test_a_residual_network_from_the_same_weights(tmp_path, both, with_tensorpack):
    with_tensorpack(both.theirs, SCRIPTS / "residual.py", "--epochs", "1")
    start = tmp_path / "start"
    shutil.copytree(both.theirs / "train_log" / "residual", start)
    # Within an epoch they differ by a last bit or so; later on, by what activations make of that which are about 0.
    both.run("residual.py", "--load", start / "model-15", "--epochs", "1")
    # An image or so is on the edge between two classes.
    apart = ("QueueInput/queue_size", "learning_rate", "validation_error", "min-validation_error")
    check_alike(both.theirs / "train_log/residual", both.ours / "train_log/residual", apart)


def test_a_trainer_of_ones_own(both):
    both.run("gan.py")
    check_alike(both.theirs / "train_log/gan", both.ours / "train_log/gan")


def test_a_training_that_goes_on(both):
    both.run("resume.py")
    both.run("resume.py", "--load", "train_log/resume/checkpoint", "--from-epoch", "3")
    theirs, ours = both.theirs / "train_log/resume", both.ours / "train_log/resume"
    assert [each["global_step"] for each in stats(ours)] == [8, 16, 24, 32]
    # The setter stands behind the saver: tensorpack saves what it has not set yet, and here all have done their part.
    check_alike(theirs, ours, apart_from=("learning_rate",))
    for step in (24, 32):
        assert variables(ours / f"model-{step}")["learning_rate"] == np.float32(0.05)


def test_hooks_and_costs(both):
    both.run("hooks.py")
    theirs, ours = calls_of(both.theirs), calls_of(both.ours)
    # Between two epochs, tensorpack still has the step of the one that is over.
    for calls in (ours["calls"], theirs["calls"]):
        calls[calls[:, 0] == "before_epoch", 2] = "-1"
    assert ours["calls"].tolist() == theirs["calls"].tolist()
    np.testing.assert_allclose(ours["costs"], theirs["costs"], rtol=1e-4)
    np.testing.assert_allclose(ours["noises"], theirs["noises"], rtol=1e-6)
