"""A checkpoint that was truncated, zeroed, or has a flipped bit at a random place, over all its files."""

from __future__ import annotations

import json
import random
import shutil

import pytest
import tensorflow as tf

import tpk
from tpk.checkpoint.files import newest_complete
from tpk.checkpoint.reader import CheckpointReader, find_checkpoint
from tpk.cli.main import main

pytestmark = pytest.mark.once

v1 = tf.compat.v1

FILES = ["model-8.index", "model-8.data-00000-of-00001", "state-8.json", "checkpoint"]
PLACES = 60


class Recurrence(tpk.Trainer):
    """Has a state that depends on each of the steps before."""

    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.values = v1.get_variable("values", initializer=tf.linspace(0.1, 0.9, 300))
            self.train_op = self.values.assign(3.7 * self.values * (1 - self.values), read_value=False)


class Values(tpk.Callback):
    def trigger_epoch(self, trainer):
        trainer.monitors.put_scalar("epoch", trainer.epoch_num)

    def after_train(self, trainer):
        self.values = trainer.sess.run(trainer.values).tobytes()


def train(run_dir, max_epoch):
    values = Values()
    with tf.Graph().as_default():
        Recurrence().train(
            callbacks=[tpk.ModelSaver(max_to_keep=4), values],
            monitors=["JSONWriter"],
            steps_per_epoch=2,
            max_epoch=max_epoch,
            run_dir=run_dir,
            resume="auto",
        )
    return values.values


def epochs(run_dir):
    return [json.loads(line)["epoch"] for line in (run_dir / "stats.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory):
    """The directory of a run that goes on; and the values of its variables after step 8, and at its end."""
    run_dir = tmp_path_factory.mktemp("undamaged")
    after_8 = train(run_dir, 4)
    shutil.copytree(run_dir, run_dir / "whole")
    whole = train(run_dir / "whole", 6)
    shutil.rmtree(run_dir / "whole")
    return run_dir, after_8, whole


@pytest.fixture(params=range(PLACES))
def damaged(request, tmp_path, undamaged):
    """A copy of it, and the file that is damaged."""
    rng = random.Random(request.param)
    run_dir = tmp_path / "run"
    shutil.copytree(undamaged[0], run_dir)
    path = run_dir / FILES[request.param % len(FILES)]
    path.write_bytes(damage(path.read_bytes(), rng))
    return run_dir, path


def damage(content, rng):
    """Return other bytes: these, but truncated, with zeros, or with one bit flipped, at a random place."""
    place, data = rng.randrange(len(content)), bytearray(content)
    kind = rng.choice(["truncated", "zeroed", "zeroed from there", "a block of zeros", "flipped"])
    if kind == "truncated":
        del data[place:]
    elif kind == "flipped":
        data[place] ^= 1 << rng.randrange(8)
    else:
        begin = 0 if kind == "zeroed" else place
        end = place + 64 if kind == "a block of zeros" else len(data)
        data[begin:end] = bytes(len(data[begin:end]))
    if data == content:  # There were zeros before.
        data[place] ^= 0xFF
    return bytes(data)


def test_the_one_before_is_used_and_the_file_named(damaged, undamaged, caplog):
    run_dir, path = damaged
    after_8, whole = undamaged[1:]
    pointer_is_damaged = path.name == "checkpoint"
    assert newest_complete(run_dir).step == (8 if pointer_is_damaged else 6)
    # A resumed training does not depend on TensorFlow's pointer.
    assert (str(path) in caplog.text) is not pointer_is_damaged
    assert all(record.levelname == "WARNING" for record in caplog.records)
    assert train(run_dir, 6) == whole
    assert epochs(run_dir) == [1, 2, 3, 4, 5, 6]
    assert not pointer_is_damaged or "skipping" not in caplog.text

    # By now, what was damaged is replaced.
    caplog.clear()
    assert newest_complete(run_dir).step == 12
    assert find_checkpoint(run_dir) == str(run_dir / "model-12")
    assert not caplog.text
    assert train(run_dir, 4) == whole != after_8


def test_a_damaged_checkpoint_that_the_resumed_run_saves_again_is_whole(tmp_path, undamaged, caplog, capsys):
    """The run that goes on is exact, so it makes the very variables that the state of the damaged one claims."""
    run_dir, after_8 = tmp_path / "run", undamaged[1]
    for name in FILES[:3]:
        shutil.rmtree(run_dir, ignore_errors=True)
        shutil.copytree(undamaged[0], run_dir)
        content = bytearray((run_dir / name).read_bytes())
        content[len(content) // 2] ^= 0xFF
        (run_dir / name).write_bytes(content)
        caplog.clear()
        assert train(run_dir, 4) == after_8
        assert f"skipping the checkpoint of step 8: {run_dir / name}" in caplog.text

        caplog.clear()
        assert train(run_dir, 4) == after_8
        assert "skipping" not in caplog.text
        assert problems(run_dir, capsys) == {f"model-{step}": None for step in (2, 4, 6, 8)}


def problems(run_dir, capsys):
    """What ``tpk checkpoint ls --verify`` has against each checkpoint."""
    assert main(["checkpoint", "ls", str(run_dir), "--verify", "--json"]) == 0
    return {each["name"]: each["problem"] for each in json.loads(capsys.readouterr().out)}


def test_whoever_reads_the_run_gets_the_newest_whole_checkpoint_and_is_told_of_the_other(damaged, undamaged, caplog):
    run_dir, path = damaged
    prefix = find_checkpoint(run_dir)
    values = CheckpointReader(prefix)["values"]
    if prefix.endswith("model-8"):
        assert values.tobytes() == undamaged[1]
    else:
        assert f"skipping the checkpoint of step 8: {path}" in caplog.text


def test_whoever_reads_its_variables_gets_them_or_a_clear_error(damaged, undamaged):
    run_dir, path = damaged
    try:
        values = CheckpointReader(find_checkpoint(run_dir / "model-8"))["values"]
    except tpk.CheckpointError as error:
        assert path.name in str(error)
    else:
        assert values.tobytes() == undamaged[1]
