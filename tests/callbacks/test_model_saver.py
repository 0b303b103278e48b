from __future__ import annotations

import threading

import pytest
import tensorflow as tf

import tpk
from tpk.checkpoint.files import newest_complete
from tpk.checkpoint.variable_writer import VariableWriter

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
    assert saved_steps(tmp_path / "a" / "b") == [2, 4, 5]


def test_a_subclass_may_save_at_times_of_its_own(tmp_path):
    class InThirdStep(tpk.ModelSaver):
        def trigger_step(self, trainer):
            if trainer.local_step == 2:
                self.trigger(trainer)

    Counting().train(callbacks=[InThirdStep()], steps_per_epoch=5, max_epoch=1, run_dir=tmp_path)
    assert saved_steps(tmp_path) == [3, 5]


def test_no_directory_is_an_error_before_the_training():
    with pytest.raises(tpk.ConfigError, match="ModelSaver needs the directory of the run"):
        Counting().train(callbacks=["ModelSaver"], steps_per_epoch=1, max_epoch=1)


@pytest.mark.parametrize("options", [{"when": 1000}, {"when": "epoch"}], ids=str)
def test_an_option_that_is_none_of_its_values_is_an_error(options):
    ((name, value),) = options.items()
    with pytest.raises(tpk.ConfigError, match=f"{name}={value!r}"):
        tpk.ModelSaver(**options)


@pytest.mark.parametrize(
    "options",
    [
        *({"max_to_keep": value} for value in (-1, "x", 1.5, True)),
        *({"keep_checkpoint_every_n_hours": value} for value in (-1, float("nan"), "x")),
        {"weights_only": "no"},
        {"asynchronous": "no"},
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_an_error(options):
    ((name, value),) = options.items()
    with pytest.raises(tpk.ConfigError, match=f"ModelSaver: {name} must be .*, not {value!r}"):
        tpk.ModelSaver(**options)


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


# Times.


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        # The last step of all is saved in any case.
        ({}, [5, 10, 15]),
        ({"when": tpk.Every(epochs=2)}, [10, 15]),
        ({"when": tpk.Every(steps=4)}, [4, 8, 12, 15]),
        ({"when": tpk.Every(steps=4, epochs=3)}, [4, 8, 12, 15]),
        ({"when": tpk.Every(steps=5, epochs=1)}, [5, 10, 15]),
        ({"when": tpk.Every(steps=9, before_train=True)}, [0, 9, 15]),
    ],
    ids=str,
)
def test_it_saves_every_so_many_steps_and_epochs(tmp_path, options, steps):
    Counting().train(callbacks=[tpk.ModelSaver(**options)], steps_per_epoch=5, max_epoch=3, run_dir=tmp_path)
    assert saved_steps(tmp_path) == steps


def test_it_saves_every_so_many_minutes(tmp_path):
    times = iter(range(0, 10_000, 25))
    saver = tpk.ModelSaver(when=tpk.Every(minutes=1, clock=lambda: next(times)))
    Counting().train(callbacks=[saver], steps_per_epoch=10, max_epoch=1, run_dir=tmp_path)
    # A look at the clock takes 25 s: once before the training, after each step, and at each checkpoint.
    assert saved_steps(tmp_path) == [3, 6, 9, 10]


def test_one_of_each_so_many_hours_is_kept(tmp_path):
    saver = tpk.ModelSaver(max_to_keep=1, keep_checkpoint_every_n_hours=0)
    Counting().train(callbacks=[saver], steps_per_epoch=1, max_epoch=3, run_dir=tmp_path)
    assert saved_steps(tmp_path) == [1, 2, 3]
    assert tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths == [
        str(tmp_path / f"model-{step}") for step in (1, 2, 3)
    ]


# What is saved, and when.


@pytest.mark.parametrize("last_in_list", [False, True])
def test_a_checkpoint_comes_after_all_have_done_their_part(tmp_path, last_in_list):
    class Late(tpk.Callback):
        """Changes a variable and reports, after everybody else."""

        @tpk.hookimpl(trylast=True)
        def trigger_step(self, trainer):
            trainer.sess.run(trainer.bump)
            trainer.monitors.put_scalar("late", trainer.global_step)

    class Bumped(Counting):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                self.bump = v1.get_variable("bumps", initializer=0).assign_add(1, read_value=False)

    callbacks = [tpk.ModelSaver(when=tpk.Every(steps=2)), Late()]
    Bumped().train(
        callbacks=callbacks[::-1] if last_in_list else callbacks, steps_per_epoch=2, max_epoch=1, run_dir=tmp_path
    )
    checkpoint = newest_complete(tmp_path)
    assert checkpoint.step == 2
    assert tf.train.load_checkpoint(checkpoint.prefix).get_tensor("bumps") == 2
    assert checkpoint.state["monitors"]["history"]["late"]["values"].tolist() == [1, 2]


def test_what_was_asked_for_before_the_training_stopped_is_saved(tmp_path):
    class Stop(tpk.Callback):
        def trigger_step(self, trainer):
            if trainer.global_step == 4:
                raise tpk.StopTraining

    Counting().train(
        callbacks=[tpk.PeriodicTrigger(tpk.ModelSaver(), every_k_steps=2, before_train=True), Stop()],
        steps_per_epoch=10,
        max_epoch=1,
        run_dir=tmp_path,
    )
    assert saved_steps(tmp_path) == [0, 2, 4]

    class AsksFirst(tpk.Callback):
        def __init__(self):
            self.saver = tpk.ModelSaver(when=tpk.Every(epochs=1000))

        def trigger_epoch(self, trainer):
            self.saver.trigger(self.trainer)
            raise tpk.StopTraining

    asks = AsksFirst()
    Counting().train(callbacks=[asks.saver, asks], steps_per_epoch=3, max_epoch=9, run_dir=tmp_path / "b")
    assert newest_complete(tmp_path / "b").state["epoch_is_over"] is True


def test_weights_only_leaves_no_training_state(tmp_path):
    saver = tpk.ModelSaver(weights_only=True)
    Counting().train(callbacks=[saver], steps_per_epoch=1, max_epoch=2, run_dir=tmp_path)
    assert saved_steps(tmp_path) == [1, 2]
    assert not list(tmp_path.glob("state-*"))
    assert tf.train.load_checkpoint(str(tmp_path)).get_tensor("counter") == 20


def test_a_list_of_variables_is_weights_only(tmp_path):
    trainer = Counting()
    (counter,) = [variable for variable in trainer.graph.get_collection("variables") if "counter" in variable.name]
    trainer.train(callbacks=[tpk.ModelSaver(var_list=[counter])], steps_per_epoch=1, max_epoch=1, run_dir=tmp_path)
    assert list(tf.train.load_checkpoint(str(tmp_path)).get_variable_to_shape_map()) == ["counter"]
    assert not list(tmp_path.glob("state-*"))


def test_two_savers_of_the_same_files_are_an_error(tmp_path):
    savers = [tpk.ModelSaver(), tpk.ModelSaver(checkpoint_dir=tmp_path, weights_only=True)]
    with pytest.raises(tpk.ConfigError, match="ModelSaver and ModelSaver#2 both save in"):
        Counting().train(callbacks=savers, steps_per_epoch=1, max_epoch=1, run_dir=tmp_path)


def test_a_state_that_is_not_plain_names_the_callback(tmp_path):
    class Strange(tpk.Callback):
        def before_train(self, trainer):
            pass

        def state_dict(self):
            return {"thing": range(2)}

    with pytest.raises(
        tpk.CheckpointError, match=r"^the state of callback 'Strange'\['thing'\] is not plain data: range"
    ):
        Counting().train(callbacks=["ModelSaver", Strange()], steps_per_epoch=1, max_epoch=1, run_dir=tmp_path)


# Failures, and writing in a thread.


class Full:
    """What comes in place of the write of variables, on a disk that is full from some step on."""

    def __init__(self, monkeypatch, from_step):
        write = VariableWriter.write

        def failing(writer, prefix, variables, values):
            write(writer, prefix, variables, values)
            if int(prefix.rsplit("-", 1)[1]) >= from_step:
                raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

        monkeypatch.setattr(VariableWriter, "write", failing)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_full_disk_ends_the_training_and_the_former_checkpoint_is_usable(tmp_path, monkeypatch, asynchronous):
    Full(monkeypatch, 3)
    trainer = Counting()
    message = rf"step 3 .*{tmp_path}: No space left on device\. Free disk space: .* MB"
    with pytest.raises(tpk.CheckpointError, match=message):
        trainer.train(
            callbacks=[tpk.ModelSaver(asynchronous=asynchronous)], steps_per_epoch=1, max_epoch=9, run_dir=tmp_path
        )
    assert trainer.global_step == 3 + asynchronous  # met when the next one is due
    assert newest_complete(tmp_path).step == 2
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_full_disk_is_a_warning_if_that_is_wanted(tmp_path, monkeypatch, asynchronous, caplog):
    Full(monkeypatch, 3)
    trainer = Counting()
    saver = tpk.ModelSaver(asynchronous=asynchronous, on_failure="warn")
    trainer.train(callbacks=[saver], steps_per_epoch=1, max_epoch=4, run_dir=tmp_path)
    assert trainer.global_step == 4
    assert newest_complete(tmp_path).step == 2
    assert len([message for message in caplog.messages if "The training continues" in message]) == 2


def test_a_failure_of_the_last_write_is_not_lost(tmp_path, monkeypatch):
    Full(monkeypatch, 2)
    with pytest.raises(tpk.CheckpointError, match="step 2"):
        saver = tpk.ModelSaver(asynchronous=True)
        Counting().train(callbacks=[saver], steps_per_epoch=1, max_epoch=2, run_dir=tmp_path)


def test_the_training_goes_on_while_files_are_written(tmp_path, monkeypatch):
    write, may_write, steps_meanwhile = VariableWriter.write, threading.Event(), []

    def waiting(writer, prefix, variables, values):
        assert may_write.wait(60)
        write(writer, prefix, variables, values)

    monkeypatch.setattr(VariableWriter, "write", waiting)

    class Meanwhile(tpk.Callback):
        def trigger_step(self, trainer):
            steps_meanwhile.append(saved_steps(tmp_path))
            if trainer.global_step == 4:
                may_write.set()

    saver = tpk.ModelSaver(when=tpk.Every(steps=2), max_to_keep=1, asynchronous=True)
    Counting().train(callbacks=[saver, Meanwhile()], steps_per_epoch=5, max_epoch=1, run_dir=tmp_path)
    assert steps_meanwhile[:3] == [[], [], []]
    # One write at a time: each waited for the one before.
    assert saved_steps(tmp_path) == [5]
    assert tf.train.load_checkpoint(str(tmp_path)).get_tensor("counter") == 50


def test_an_unknown_way_to_fail_is_an_error():
    with pytest.raises(tpk.ConfigError, match="on_failure must be one of 'raise', 'warn', not 'ignore'"):
        tpk.ModelSaver(on_failure="ignore")


def test_savers_elsewhere_only_is_said(tmp_path, caplog):
    saver = tpk.ModelSaver(checkpoint_dir=tmp_path / "elsewhere")
    Counting().train(callbacks=[saver], steps_per_epoch=1, max_epoch=1, run_dir=tmp_path / "run")
    assert "resume=... looks for them in the run_dir" in caplog.text
