"""The scripts to compare, how to run them, and how to compare their results."""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import tensorflow as tf

HERE = Path(__file__).parent
SCRIPTS = HERE.parent / "scripts"
STEPS = 20


def names(text):
    return attrs.field(default=text, converter=str.split)


@attrs.frozen
class Row:
    """A script and its comparisons.

    Attributes:
        runs: the arguments of each of its runs, in one directory.
        costs: the tensors in a tower that must be the same in each of the first steps.
        values: whether statistics, variables and arrays must have the same values.
        unequal: patterns of values that may differ, although `values` is set.
        apart: patterns of variables, statistics, tags and files that only one side has.
        process: scripts with the same value run in the same process; scripts that start processes or threads run alone.
        without_oracle: why tensorpack 0.11 cannot run it, if it cannot.
    """

    runs: tuple[tuple[str, ...], ...] = ((),)
    costs: str = names("")
    values: bool = True
    unequal: str = names("")
    apart: str = names("")
    process: str = "shared"
    without_oracle: str = ""


# With one thread, draws in a loop and reads of updated variables have a fixed order, but queues may block it.
IN_ORDER = "in order"


# In tensorpack, the first of several towers may get either batch, so its statistics vary.
TABLE = {
    # The number of simulator steps depends on timing.
    "actor_critic": Row(values=False, process="actor_critic"),
    # The order in which towers update the shared variables varies.
    "async_towers": Row(values=False),
    "autoresume": Row(((), ("--epochs", "3")), costs="cost"),
    # The worker's draws depend on its process ID; tensorpack reads only the complete CIFAR-10.
    "cifar": Row((("--make-data", "10000", "--processes", "1"),), values=False, process="cifar"),
    # Dropout draws from the state in two variables.
    "convnet": Row(values=False, apart="tpk_random_seed tpk_further_runs"),
    "detection": Row(),
    "digits": Row(costs="total_cost"),
    "dqn": Row(costs="cost"),
    "export": Row(),
    # tensorpack's optimizer counts all steps, and ours counts accumulated steps.
    "fine_tune": Row(costs="cost", apart="AccumGrad/counter fc/W/AccumGrad/counter", process=IN_ORDER),
    "gan": Row(costs="GAN_loss/g_loss GAN_loss/d_loss"),
    "gan_towers": Row(costs="GAN_loss/g_loss GAN_loss/d_loss", unequal="GAN_loss/*"),
    # A checkpoint of the last step.
    "hooks": Row(costs="cost", unequal="calls.npz:calls", apart="model-6.index"),
    # The queue of an evaluation has no moving average.
    "inference": Row(
        costs="cost", unequal="cost error error5", apart="tower1/* *InferenceRunner/QueueInput/queue_size"
    ),
    # Dropout draws from its own seed.
    "keras_model": Row(
        values=False, without_oracle="it ends the process while it builds a tower of Keras layers on TensorFlow 2"
    ),
    # Dropout draws from different sources.
    "lstm": Row(values=False),
    "mask_rcnn": Row(costs="total_cost", process="mask_rcnn"),
    "multi_tower": Row(costs="cost", unequal="cost train_error validation_* bn/*/EMA learning_rate", apart="tower1/*"),
    # Dropout draws from the state in two variables.
    "old_style": Row(values=False, without_oracle="it was written for 0.5; TrainConfig has no nr_tower"),
    # Threads map the data in any order.
    "own_data": Row(values=False),
    # Dropout in a loop draws in the order in which the iterations run.
    "ptb": Row(costs="cost", values=False, process=IN_ORDER),
    "residual": Row(costs="cost", unequal="learning_rate"),
    # The setters come after the saver, so tensorpack saves the old values.
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


class Sides:
    """The results of the scripts: with tensorpack (`theirs`), without (`ours`), and `converted` to tpk's names.

    Args:
        directory: the directory for the results.
        rows: the scripts to run on each side.
    """

    def __init__(self, directory, rows):
        self._directory = directory
        for whose in rows:
            (directory / whose).mkdir()
        self.outputs = dict.fromkeys(rows, "")
        for process in dict.fromkeys(row.process for row in TABLE.values()):
            chosen = {whose: [each for each in rows[whose] if TABLE[each].process == process] for whose in rows}
            self._run({whose: chosen[whose] for whose in chosen if chosen[whose]}, process == IN_ORDER)

    def _run(self, rows, in_order):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        if in_order:
            environment["TF_NUM_INTEROP_THREADS"] = "1"
        processes = {}
        for whose, chosen in rows.items():
            runs = {name: [[str(SCRIPTS / f"{name}.py"), *run] for run in TABLE[name].runs] for name in chosen}
            table = self._directory / f"{whose}.json"
            table.write_text(json.dumps([{"name": n, "runs": runs[n], "costs": TABLE[n].costs} for n in chosen]))
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
                status = process.wait(900)
                self.outputs[whose] = (self._directory / f"{whose}.txt").read_text()
                assert status == 0, self.outputs[whose][-3000:]
        finally:
            for process in processes.values():
                process.kill()
                process.wait()

    def of(self, name, *sides):
        """Return the directories of a script on these sides; raise an error if it failed on one of them."""
        directories = [self._directory / whose / name for whose in sides]
        for directory in directories:
            error = directory / "error.txt"
            assert not error.exists(), error.read_text()
        return directories


def check_costs(expected, found):
    """Compare the costs of the first steps of two scripts, by their directories."""
    expected, found = (np.load(directory / "costs.npy") for directory in (expected, found))
    assert expected.shape == found.shape
    assert len(expected) >= 6 and np.isfinite(expected).all()
    # Large numbers cancel each other, which loses precision on both sides.
    np.testing.assert_allclose(found[:STEPS], expected[:STEPS], rtol=1e-4, atol=1e-6)


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
    """Return the names whose values must be the same."""
    patterns = [*row.unequal, *unequal]
    return [name for name in found if row.values and not any(fnmatch.fnmatch(name, each) for each in patterns)]


def in_both(row, found):
    """Return the names that both sides must have."""
    kept = [name for name in found if not any(fnmatch.fnmatch(name, each) for each in row.apart)]
    return {name: found[name] for name in kept} if isinstance(found, dict) else set(kept)


def variables(path):
    reader = tf.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def tags(directory):
    """Return the kinds of values and the steps of each tag in the event files."""
    found = {}
    for path in sorted(glob.glob(f"{glob.escape(str(directory))}/events*")):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.WhichOneof("value")))
    return found
