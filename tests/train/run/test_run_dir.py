"""The directory of a run in the hands of others: links, its removal, and what another training has left there."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext

import pytest
import tensorflow as tf

import tpk
from tpk.train.run.lock import LOCK_NAME

MONITORS = ["JSONWriter", "CSVWriter", "TFEventWriter"]


class Counting(tpk.Trainer):
    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.count = tf.compat.v1.get_variable("count", initializer=0)
            self.train_op = self.count.assign_add(1, read_value=False)


def train(run_dir, *callbacks, max_epoch=3, **options):
    with tf.Graph().as_default():
        Counting().train(
            callbacks=callbacks,
            steps_per_epoch=2,
            max_epoch=max_epoch,
            run_dir=run_dir,
            **{"monitors": MONITORS, "resume": "auto", **options},
        )


class At(tpk.Callback):
    """Does something after a step, and reports a scalar in each."""

    def __init__(self, step, what):
        self.step, self.what = step, what

    def trigger_step(self, trainer):
        trainer.monitors.put_scalar("step", trainer.global_step)
        if trainer.global_step == self.step:
            self.what(trainer.run_dir)


@pytest.fixture
def victim(tmp_path):
    """A file of the user's, which is no part of the run."""
    path = tmp_path / "victim"
    path.write_text('{"private": true}')
    yield path
    assert path.read_text() == '{"private": true}'


@pytest.mark.parametrize(
    "name", [".config.json.new", "config.json", "checkpoint", ".writing-model-2.state", "state-4.json"]
)
def test_a_link_where_a_file_is_replaced_is_replaced(tmp_path, victim, name):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / name).symlink_to(victim)
    train(run_dir, tpk.ModelSaver())
    assert not (run_dir / name).is_symlink()
    assert json.loads((run_dir / "config.json").read_text())["trainer"]["name"] == "Counting"
    assert "private" not in (run_dir / "log.txt").read_text()


@pytest.mark.parametrize("name", [LOCK_NAME, "log.txt", "stats.jsonl", "stats.csv"])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_where_a_file_is_appended_to_is_an_error_before_the_training(tmp_path, victim, name, dangling):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    target = tmp_path / "nothing" if dangling else victim
    (run_dir / name).symlink_to(target)
    with pytest.raises(tpk.ConfigError, match=rf"{name}' is a symbolic link\. .*Remove it"):
        train(run_dir)
    assert not (tmp_path / "nothing").exists()
    (run_dir / name).unlink()
    train(run_dir)


def test_links_that_are_put_there_later_are_not_followed(tmp_path, victim):
    def put_links(run_dir):
        for name in (".writing-model-4.state", ".writing-model-pointer", "state-6.json", ".config.json.new"):
            (run_dir / name).symlink_to(victim)

    train(tmp_path / "run", At(3, put_links), tpk.ModelSaver())
    assert json.loads((tmp_path / "run" / "state-6.json").read_text())["step"] == 6


def move(run_dir):
    run_dir.rename(run_dir.with_name("moved"))


@pytest.mark.parametrize("remove", [shutil.rmtree, move])
@pytest.mark.parametrize("step", [3, 6])
@pytest.mark.parametrize("saver", [[], [tpk.ModelSaver], [tpk.use("ModelSaver", when=tpk.Every(steps=1))]])
def test_a_directory_that_is_removed_ends_the_training_with_an_error(tmp_path, remove, step, saver):
    run_dir = tmp_path / "run"
    with pytest.raises(
        tpk.CheckpointError, match=rf"run_dir '{run_dir}' was removed or moved.*Start the training again"
    ):
        train(run_dir, At(step, remove), *saver)
    # TensorFlow would have made it anew, for a checkpoint without the rest.
    assert not list(run_dir.glob("*model-*"))


def test_one_that_is_moved_while_a_checkpoint_is_written_is_an_error_too(tmp_path):
    with pytest.raises(tpk.CheckpointError, match=r"was removed or moved|no longer exists|could not be written"):
        train(tmp_path / "run", At(3, move), tpk.ModelSaver(when=tpk.Every(steps=1), asynchronous=True))


def test_a_directory_that_is_removed_when_the_training_is_told_to_stop_is_an_error_too(tmp_path):
    def end(run_dir):
        shutil.rmtree(run_dir)
        raise tpk.StopTraining("enough")

    with pytest.raises(tpk.CheckpointError, match="was removed"):
        train(tmp_path / "run", At(3, end))


def test_a_training_that_fails_with_its_directory_removed_says_why_it_failed(tmp_path):
    def fail(run_dir):
        shutil.rmtree(run_dir)
        raise ArithmeticError("bad number")

    with pytest.raises(ArithmeticError, match="bad number"):
        train(tmp_path / "run", At(3, fail))


def test_the_directory_of_a_saver_that_is_removed_is_an_error_too(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    saver = tpk.ModelSaver(checkpoint_dir=elsewhere)
    with pytest.raises(tpk.CheckpointError, match=rf"{elsewhere}.*no longer exists"):
        train(tmp_path / "run", At(3, lambda run_dir: shutil.rmtree(elsewhere)), saver)
    assert not elsewhere.exists()


class SharedDirectory(tpk.Callback):
    def configure_run(self, run):
        run.may_hold_run = True


@pytest.mark.parametrize("shares", [False, True])
def test_a_directory_that_holds_a_run_is_an_error_unless_a_callback_allows_it(tmp_path, shares):
    train(tmp_path, tpk.ModelSaver(), max_epoch=1)
    with tf.Graph().as_default():
        trainer = Counting()
        with nullcontext() if shares else pytest.raises(tpk.ConfigError, match=r"holds a run already .*resume='auto'"):
            trainer.train(
                callbacks=[SharedDirectory()] if shares else [], steps_per_epoch=2, max_epoch=1, run_dir=tmp_path
            )
    assert trainer.global_step == (2 if shares else 0)


@pytest.mark.parametrize("name", ["log.txt", "config.json", "config.toml"])
def test_a_directory_where_a_file_is_to_be_is_an_error_that_names_it(tmp_path, name):
    (tmp_path / name / "inside").mkdir(parents=True)
    with pytest.raises(tpk.ConfigError, match=rf"{name}' cannot be written: .*Remove what is in the way"):
        train(tmp_path)


def test_a_name_that_no_directory_can_have_is_an_error():
    with pytest.raises(tpk.ConfigError, match=r"run_dir 'a\\x00b' cannot be created"):
        train("a\0b")


def test_a_limit_on_the_size_of_files_is_an_error_that_names_the_file(tmp_path):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(tpk.ConfigError, match=r"'.*' cannot be written: .*File too large"):
            train(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
