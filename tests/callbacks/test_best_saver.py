from __future__ import annotations

import math

import pytest
import tensorflow as tf

import tpk
from tpk.callbacks.guards.stopping import EarlyStopping
from tpk.callbacks.savers import MaxSaver, MinSaver

v1 = tf.compat.v1


class Counting(tpk.Trainer):
    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.train_op = v1.get_variable("counter", initializer=0).assign_add(1, read_value=False)


class Report(tpk.Callback):
    """Reports one value at the end of each epoch; None is no report."""

    def __init__(self, *values):
        self.values = values

    def trigger_epoch(self, trainer):
        value = self.values[trainer.epoch_num - 1]
        if value is not None:
            trainer.monitors.put_scalar("val/error", value)


class Killed(BaseException):
    pass


class KillAt(tpk.Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def before_epoch(self, trainer):
        if trainer.epoch_num == self.epoch:
            raise Killed


def train(run_dir, *callbacks, epochs, resume="auto"):
    trainer = Counting()
    trainer.train(callbacks=callbacks, steps_per_epoch=1, max_epoch=epochs, run_dir=run_dir, resume=resume)
    return trainer


def saved(run_dir, word="min"):
    return sorted(int(path.stem.rsplit("-", 1)[1]) for path in run_dir.glob(f"{word}-val_error-*.index"))


VALUES = (5.0, 3.0, 4.0, math.nan, 3.0, 2.0, 6.0)


@pytest.mark.parametrize(
    ("make", "keep", "order"),
    [
        (MinSaver, 1, [6]),
        (MinSaver, 3, [6, 2, 5]),
        (MaxSaver, 1, [7]),
        (MaxSaver, 2, [7, 1]),
        (MinSaver, 9, [6, 2, 5, 3, 1, 7]),
    ],
)
@pytest.mark.parametrize("saver_first", [True, False])
def test_the_best_are_kept_in_their_order(tmp_path, make, keep, order, saver_first):
    saver = make("val/error", keep=keep)
    callbacks = [saver, Report(*VALUES)]
    train(tmp_path, *(callbacks if saver_first else callbacks[::-1]), epochs=7)
    word = make.__name__[:3].lower()
    assert saved(tmp_path, word) == sorted(order)
    assert [path.name for _, path in saver.best] == [f"{word}-val_error-{step}" for step in order]
    best = tf.train.latest_checkpoint(str(tmp_path), f"checkpoint-{word}-val_error")
    assert tf.train.load_checkpoint(best).get_tensor("counter") == order[0]


def test_a_value_is_looked_at_once(tmp_path):
    saver = MinSaver("val/error", keep=5)
    train(tmp_path, saver, Report(3.0, None, None, 2.0, None), epochs=5)
    assert saved(tmp_path) == [1, 4]


@pytest.mark.parametrize("saves_every", [1, 3])
@pytest.mark.parametrize("killed_in", [3, 6, 7])
@pytest.mark.parametrize("keep", [1, 2])
def test_the_list_survives_a_resume(tmp_path, killed_in, saves_every, keep):
    def callbacks():
        return [
            tpk.ModelSaver(when=tpk.Every(epochs=saves_every)),
            MinSaver("val/error", keep=keep),
            MaxSaver("val/error", keep=keep),
            Report(*VALUES),
        ]

    whole = callbacks()
    train(tmp_path / "whole", *whole, epochs=7)
    with pytest.raises(Killed):
        train(tmp_path / "killed", KillAt(killed_in), *callbacks(), epochs=7)
    resumed = callbacks()
    train(tmp_path / "killed", *resumed, epochs=7)
    for one, other in zip(whole[1:3], resumed[1:3], strict=True):
        assert [(value, path.name) for value, path in one.best] == [(value, path.name) for value, path in other.best]
    for word in ("min", "max"):
        assert saved(tmp_path / "whole", word) == saved(tmp_path / "killed", word)


def test_a_file_of_its_own_in_a_directory_of_its_own(tmp_path):
    saver = MinSaver("val/error", filename="best", checkpoint_dir=tmp_path / "a" / "b")
    train(tmp_path / "run", saver, Report(1.0), epochs=1)
    assert tf.train.latest_checkpoint(str(tmp_path / "a" / "b"), "checkpoint-best").endswith("best-1")


def test_wrong_options_are_errors(tmp_path):
    with pytest.raises(tpk.ConfigError, match="keep must be an integer, 1 or more, not 0"):
        MinSaver("val/error", keep=0)
    with pytest.raises(tpk.ConfigError, match="MaxSaver needs the directory of the run"):
        Counting().train(callbacks=[MaxSaver("val/error")], steps_per_epoch=1, max_epoch=1)


# Early stopping.


@pytest.mark.parametrize(
    ("options", "values", "epochs"),
    [
        ({"patience": 2}, [5, 4, 4, 4, 1], 4),
        ({"patience": 2}, [5, 4, 4.5, 3, 3, 2, 9, 9, 1], 8),
        ({"patience": 1}, [math.nan, 1], 1),
        ({"patience": 2, "min_delta": 0.5}, [5, 4.6, 4.5, 1], 3),
        ({"patience": 2, "min_delta": 0.5}, [5, 4.6, 4.4, 4.3], 4),
        ({"patience": 2, "mode": "max"}, [1, 2, 2, 1, 9], 4),
        ({"patience": 1}, [3, None, None, 3, 1], 4),
    ],
)
def test_early_stopping(tmp_path, options, values, epochs):
    trainer = train(tmp_path, EarlyStopping("val/error", **options), "ModelSaver", Report(*values), epochs=len(values))
    assert trainer.epoch_num == epochs
    assert tf.train.load_checkpoint(str(tmp_path)).get_tensor("counter") == epochs


@pytest.mark.parametrize("killed_in", [2, 3, 4])
def test_early_stopping_survives_a_resume_and_stays_stopped(tmp_path, killed_in, caplog):
    def callbacks():
        return ["ModelSaver", EarlyStopping("val/error", patience=3), Report(5, 4, 4, 4, 4, 4)]

    with pytest.raises(Killed):
        train(tmp_path, KillAt(killed_in), *callbacks(), epochs=6)
    assert train(tmp_path, *callbacks(), epochs=6).global_step == 5
    again = train(tmp_path, *callbacks(), epochs=6, resume="must")
    assert again.global_step == 5


@pytest.mark.parametrize(
    "options", [{"patience": "x"}, {"patience": 1, "min_delta": "x"}, {"patience": 1, "mode": "no"}]
)
def test_early_stopping_refuses_values_of_another_kind(options):
    with pytest.raises(tpk.ConfigError, match=f"EarlyStopping: {list(options)[-1]} must be"):
        EarlyStopping("x", **options)


def test_early_stopping_with_wrong_options():
    with pytest.raises(tpk.ConfigError, match="patience must be an integer, 1 or more, not 0"):
        EarlyStopping("x", 0)
    with pytest.raises(tpk.ConfigError, match="min_delta must be a number that is not negative, not -1"):
        EarlyStopping("x", 1, min_delta=-1)
