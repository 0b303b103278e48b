from __future__ import annotations

import pytest
import tensorflow as tf

import tpk

v1 = tf.compat.v1


class Counting(tpk.Trainer):
    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            counter = v1.get_variable("counter", initializer=0)
            v1.get_variable("scratch", initializer=0, collections=[v1.GraphKeys.LOCAL_VARIABLES])
            self.train_op = counter.assign_add(10, read_value=False)


class AddsVariable(tpk.Callback):
    def setup_graph(self, trainer):
        v1.get_variable("late", initializer=5.0, trainable=False)


def saved_steps(directory):
    return sorted(int(path.stem.removeprefix("model-")) for path in directory.glob("model-*.index"))


def test_each_epoch_saves_all_variables_also_those_of_later_callbacks(tmp_path):
    Counting().train(callbacks=["ModelSaver", AddsVariable()], steps_per_epoch=3, max_epoch=2, run_dir=tmp_path)
    assert saved_steps(tmp_path) == [3, 6]
    reader = tf.train.load_checkpoint(str(tmp_path))
    values = {name: reader.get_tensor(name).item() for name in reader.get_variable_to_shape_map()}
    assert values == {"counter": 60, "global_step": 6, "late": 5.0}


@pytest.mark.parametrize(("max_to_keep", "steps"), [(2, [3, 4]), (0, [1, 2, 3, 4]), (None, [1, 2, 3, 4])])
def test_only_the_latest_are_kept(tmp_path, max_to_keep, steps):
    saver = tpk.ModelSaver(max_to_keep=max_to_keep)
    Counting().train(callbacks=[saver], steps_per_epoch=1, max_epoch=4, run_dir=tmp_path)
    assert saved_steps(tmp_path) == steps


def test_a_directory_and_times_of_its_own(tmp_path):
    saver = tpk.PeriodicTrigger(tpk.ModelSaver(checkpoint_dir=tmp_path / "a" / "b"), every_k_steps=2)
    Counting().train(callbacks=[saver], steps_per_epoch=5, max_epoch=1)
    assert saved_steps(tmp_path / "a" / "b") == [2, 4]


def test_no_directory_is_an_error_before_the_training():
    with pytest.raises(tpk.ConfigError, match="no directory to save in"):
        Counting().train(callbacks=["ModelSaver"], steps_per_epoch=1, max_epoch=1)


def test_a_negative_number_is_an_error():
    with pytest.raises(tpk.ConfigError, match="max_to_keep=-1"):
        tpk.ModelSaver(max_to_keep=-1)


def test_a_checkpoint_moves_with_its_directory(tmp_path):
    Counting().train(callbacks=["ModelSaver"], steps_per_epoch=1, max_epoch=1, run_dir=tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    assert tf.train.latest_checkpoint(str(tmp_path / "new")) == str(tmp_path / "new" / "model-1")


def test_what_other_callbacks_set_at_the_end_of_the_epoch_is_saved(tmp_path):
    class Model(Counting):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                v1.get_variable("rate", initializer=1.0, trainable=False)

    setter = tpk.ScheduledHyperParamSetter("rate", [(1, 0.5)])
    Model().train(callbacks=["ModelSaver", setter], steps_per_epoch=1, max_epoch=1, run_dir=tmp_path)
    assert tf.train.load_checkpoint(str(tmp_path)).get_tensor("rate") == 0.5
