"""The directory of a run in the hands of others: links, its removal, and what another training has left there."""

from __future__ import annotations

import json
import shutil

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
        tpk.CheckpointError, match=rf"run_dir '{run_dir}' was removed or moved.*start the training again"
    ):
        train(run_dir, At(step, remove), *saver)
    # TensorFlow would have made it anew, for a checkpoint without the rest.
    assert not list(run_dir.glob("*model-*"))


def test_one_that_is_moved_while_a_checkpoint_is_written_is_an_error_too(tmp_path):
    with pytest.raises(tpk.CheckpointError, match=r"was removed or moved|is not there any more|could not be written"):
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
    with pytest.raises(tpk.CheckpointError, match=rf"{elsewhere}.*is not there any more"):
        train(tmp_path / "run", At(3, lambda run_dir: shutil.rmtree(elsewhere)), saver)
    assert not elsewhere.exists()


# A directory that is used already, and kept on purpose.


def names(directory, pattern):
    return sorted(path.name for path in directory.glob(pattern))


class Named(tpk.Callback):
    """Reports a statistic under a name."""

    def __init__(self, name):
        self._name = name

    def trigger(self):
        self.trainer.monitors.put_scalar(self._name, self.global_step)


def steps_in_events(run_dir):
    files = sorted(run_dir.glob("events.out.tfevents.*"))
    events = [event for path in files for event in tf.compat.v1.train.summary_iterator(str(path))]
    starts = [event.step for event in events if event.HasField("session_log")]
    return starts, [event.step for event in events if event.summary.value]


def test_a_new_training_may_begin_beside_what_is_there(tmp_path):
    train(tmp_path, Named("old"), tpk.ModelSaver(), tpk.MinSaver("old"), max_epoch=3)
    config, log = (tmp_path / "config.json").read_text(), (tmp_path / "log.txt").read_text()
    stats, table = (tmp_path / "stats.jsonl").read_text(), (tmp_path / "stats.csv").read_text()
    with pytest.raises(tpk.ConfigError, match="resume='keep'"):
        train(tmp_path, resume="never")

    train(tmp_path, Named("new"), tpk.ModelSaver(), tpk.MinSaver("new"), max_epoch=2, resume="keep")
    assert (tmp_path / "log.txt").read_text().startswith(log)
    assert (tmp_path / "config-1.json").read_text() == config
    assert json.loads((tmp_path / "config.json").read_text())["max_epoch"] == 2
    lines = (tmp_path / "stats.jsonl").read_text()
    assert lines.startswith(stats)
    assert [json.loads(line)["new"] for line in lines.removeprefix(stats).splitlines()] == [2, 4]
    assert (tmp_path / "stats-1.csv").read_text() == table
    assert len((tmp_path / "stats.csv").read_text().splitlines()) == 1 + 2
    assert len(names(tmp_path, "events.out.*")) == 2
    # TensorBoard would drop what comes before a second start.
    assert steps_in_events(tmp_path) == ([1], [2, 4, 6, 2, 4])

    assert names(tmp_path, "*.index") == ["min-new-2.index", "model-2.index", "model-4.index"]
    assert tpk.newest_complete(tmp_path).step == 4
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model-4")
    kept = tmp_path / "kept-1"
    assert names(kept, "*.index") == ["min-old-2.index", "model-2.index", "model-4.index", "model-6.index"]
    assert tpk.newest_complete(kept).step == 6
    assert tf.train.latest_checkpoint(str(kept)) == str(kept / "model-6")
    assert tf.train.latest_checkpoint(str(kept), "checkpoint-min-old") == str(kept / "min-old-2")


def test_the_new_training_is_the_one_that_goes_on(tmp_path):
    for _ in range(2):
        train(tmp_path, Named("a"), tpk.ModelSaver(max_to_keep=1), max_epoch=2, resume="keep")
    train(tmp_path, Named("a"), tpk.ModelSaver(max_to_keep=1), max_epoch=3, resume="must")
    lines = [json.loads(line) for line in (tmp_path / "stats.jsonl").read_text().splitlines()]
    assert [line["global_step"] for line in lines] == [2, 4, 2, 4, 6]
    assert names(tmp_path, "model-*.index") == ["model-6.index"]
    assert names(tmp_path / "kept-1", "model-*.index") == ["model-4.index"]


def test_a_training_that_goes_on_from_what_is_there_leaves_the_checkpoints_where_they_are(tmp_path):
    train(tmp_path, tpk.ModelSaver(max_to_keep=1), max_epoch=2)
    for step in (6, 8):
        everything = tpk.SaverRestore(tmp_path)
        train(tmp_path, tpk.ModelSaver(max_to_keep=1), max_epoch=1, resume="keep", session_init=everything)
        assert tpk.newest_complete(tmp_path).step == step
    assert names(tmp_path, "model-*.index") == ["model-4.index", "model-6.index", "model-8.index"]
    assert not names(tmp_path, "kept-*")


def test_only_checkpoints_are_moved(tmp_path):
    for name in ("notes-7.txt", "checkpoint.txt", "model.index", "state-x.json"):
        (tmp_path / name).write_text(name)
    train(tmp_path, tpk.ModelSaver(), max_epoch=1, resume="keep")
    train(tmp_path, tpk.ModelSaver(), max_epoch=1, resume="keep")
    assert {path.name for path in (tmp_path / "kept-1").iterdir()} == {
        "checkpoint",
        "model-2.index",
        "model-2.data-00000-of-00001",
        "state-2.json",
    }
    assert (tmp_path / "notes-7.txt").read_text() == "notes-7.txt"


def test_keep_needs_a_directory():
    with pytest.raises(tpk.ConfigError, match="resume='keep' needs a run_dir"):
        train(None, resume="keep")


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
