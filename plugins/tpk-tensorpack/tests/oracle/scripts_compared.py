"""The scripts, what of each is compared, what has run them, and how what they leave is compared."""

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
    """A script, and what of it is compared.

    Attributes:
        runs: the arguments of each of its runs, in one directory.
        costs: the tensors in a tower that have to be the same in each of the first steps.
        values: whether statistics, variables and arrays have to have the same values.
        unequal: patterns of those that do not, although `values` is set.
        apart: patterns of variables, statistics, tags and files that only one of both has.
        process: those of one run in the same process; a script that starts processes or threads has one for itself.
        without_oracle: why tensorpack 0.11 does not run it, if that is so.
    """

    runs: tuple[tuple[str, ...], ...] = ((),)
    costs: str = names("")
    values: bool = True
    unequal: str = names("")
    apart: str = names("")
    process: str = "shared"
    without_oracle: str = ""


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
    # Dropout draws from a seed of its own.
    "keras_model": Row(
        values=False, without_oracle="it ends the process while it builds a tower of Keras layers on TensorFlow 2"
    ),
    # Dropout draws from other sources.
    "lstm": Row(values=False),
    "multi_tower": Row(costs="cost", unequal="cost train_error validation_* bn/*/EMA learning_rate", apart="tower1/*"),
    # Dropout draws from what is in two variables.
    "old_style": Row(values=False, without_oracle="it was written for 0.5; TrainConfig has no nr_tower"),
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


class Sides:
    """What the scripts have left: with tensorpack (`theirs`), without (`ours`), and `converted` to tpk's names.

    Args:
        directory: gets all that.
        rows: those that run on each side, by its name.
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
        """The directories of a script on these sides; if it has failed on one of them, that is an error."""
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
    # What is lost where large numbers cancel each other is not ours to keep.
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


def tags(directory):
    """What the event files hold: the kinds of values, and the steps, of each tag."""
    found = {}
    for path in sorted(glob.glob(f"{glob.escape(str(directory))}/events*")):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.WhichOneof("value")))
    return found
