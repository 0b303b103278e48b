from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError, TpkError

v1 = tf.compat.v1
STRATEGIES = ["single", tpk.use("replicated", devices=2)]


class Model(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([], tf.float32, "x")]

    def build_graph(self, x):
        w = v1.get_variable("w", initializer=0.5)
        return tf.square(w * x - 1, name="cost")

    def optimizer(self):
        return v1.train.GradientDescentOptimizer(v1.get_variable("learning_rate", initializer=0.001, trainable=False))


def numbers(count=20):
    return [[np.float32(each)] for each in range(1, count + 1)]


class Taken(tpk.Inferencer):
    """Counts the batches of each evaluation."""

    def __init__(self, name):
        self.name, self.counts = name, []

    @property
    def statistics(self):
        return [self.name]

    def get_fetches(self, tower):
        return tower.get_tensor("cost")

    def before_inference(self):
        self.counts.append(0)

    def on_fetches(self, results):
        self.counts[-1] += 1

    def state(self):
        return self.counts[-1]

    def merge(self, states):
        pass

    def after_inference(self):
        return {self.name: float(self.counts[-1])}


class Seen(tpk.Callback):
    """What there is at the end of the epoch, and of the training."""

    chief_only = False

    def before_train(self, trainer):
        self.run_dir = trainer.run_dir

    def after_train(self, trainer):
        self.counts = (trainer.epoch_num, trainer.global_step)
        self.files = sorted(each.name for each in trainer.run_dir.iterdir())


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where temporary directories are made."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def launch(tmp_path, callbacks, trainer="single", **options):
    data = {} if "data" in options else {"dataflow": numbers()}
    options = {**data, "max_epoch": 9, "run_dir": tmp_path / "run", **options}
    config = tpk.TrainConfig(model=Model(), callbacks=callbacks, **options)
    return tpk.launch_train_with_config(config, trainer)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["single", "replicated"])
def test_a_debug_run_is_two_steps_of_everything_and_leaves_nothing(tmp_path, place, strategy, caplog):
    caplog.set_level(logging.INFO)
    seen, each, later = Seen(), Taken("each_epoch"), Taken("every_fifth")
    trainer = launch(
        tmp_path,
        [
            tpk.ModelSaver(when=tpk.Every(steps=1000)),
            tpk.MinSaver("every_fifth"),
            seen,
            "DebugRun",
            tpk.InferenceRunner(numbers(7), each),
            tpk.PeriodicTrigger(tpk.InferenceRunner(numbers(7), later), every_k_epochs=5),
            tpk.ScheduledHyperParamSetter("learning_rate", [(1, 0.02), (4, 0.001)]),
        ],
        strategy,
    )
    assert seen.counts == (1, 2)
    assert each.counts == [2] and later.counts == [2]
    assert {"model-2.index", "stats.jsonl", "log.txt", "config.json"} <= {*seen.files}
    assert seen.run_dir.parent == place and seen.run_dir.name.startswith("tpk-debug-run-")
    assert not list(place.iterdir()) and not (tmp_path / "run").exists()
    assert trainer.history["every_fifth"] == [2]
    assert "the debug run succeeded" in caplog.messages
    assert not [each for each in caplog.messages if "could not be written" in each]


def test_it_touches_no_run_and_resumes_none(tmp_path, place):
    launch(tmp_path, ["ModelSaver"], max_epoch=1, steps_per_epoch=3)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    seen = Seen()
    launch(tmp_path, ["ModelSaver", tpk.use("DebugRun", steps=1), seen], resume="auto")
    assert seen.counts == (1, 1)
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_training_without_a_config_or_a_directory_is_shortened_too(run_steps, place):
    trainer = run_steps(tpk.DebugRun(), 50, epochs=3)
    assert (trainer.global_step, trainer.epoch_num, trainer.run_dir) == (2, 1, None)


def test_a_shorter_training_stays_as_short(run_steps):
    assert run_steps(tpk.DebugRun(steps=5), 3, epochs=3).global_step == 3


def test_it_works_with_many_steps_in_a_run(tmp_path, place):
    seen = Seen()
    launch(tmp_path, ["DebugRun", seen], tpk.use("QueueInputTrainer", steps_per_run=4))
    assert seen.counts == (1, 2)


def test_its_directory_is_removed_when_the_training_fails(tmp_path, place):
    class Fails(tpk.Callback):
        def trigger_step(self, trainer):
            raise RuntimeError("step")

    with pytest.raises(RuntimeError, match="step"):
        launch(tmp_path, ["DebugRun", Fails()])
    assert not list(place.iterdir())


def test_a_wrapped_callback_configures_the_run(run_steps):
    class Shorter(tpk.Callback):
        def configure_run(self, run):
            run.max_epoch = 2

        def trigger(self):
            pass

    assert run_steps(tpk.PeriodicTrigger(Shorter(), every_k_epochs=1), 3, epochs=5).epoch_num == 2


def test_options_that_a_callback_makes_wrong_are_errors(run_steps):
    class Wrong(tpk.Callback):
        def configure_run(self, run):
            run.steps_per_epoch = 1.5

    with pytest.raises(ConfigError, match=r"steps_per_epoch=1\.5: expected a whole number"):
        run_steps(Wrong(), 3)


def test_phases_that_are_called_by_hand_are_an_error():
    trainer = tpk.Trainer()
    with pytest.raises(ConfigError, match=r"Where you call the phases yourself, write main_loop\(steps_per_epoch=2"):
        trainer.setup(callbacks=["DebugRun"])


@pytest.mark.parametrize("steps", [0, 1.5, True])
def test_a_number_of_steps_that_makes_no_sense_is_an_error(steps):
    with pytest.raises(ConfigError, match=r"DebugRun: steps must be an integer, 1 or more"):
        tpk.DebugRun(steps)


# Overfitting is an option of the config, since only it knows the data.


class Inputs(tpk.Callback):
    """The inputs of the towers, step by step."""

    def before_train(self, trainer):
        self.seen = []
        self.fetches = [tower.inputs[0] for tower in trainer.towers.training()]

    def before_run(self):
        return self.fetches

    def after_run(self, run_values):
        self.seen.append([np.asarray(each).tolist() for each in run_values.results])


def random_dataset():
    return tf.data.Dataset.from_tensor_slices((np.arange(1, 21, dtype=np.float32),)).shuffle(20, seed=1)


SOURCES = {
    "a list": {"dataflow": numbers()},
    "shuffled": {"dataflow": tpk.DataFromList(numbers(), shuffle=True)},
    "a generator": {"dataflow": (each for each in numbers()), "steps_per_epoch": 3},
    "queue": {"data": tpk.QueueInput(tpk.DataFromList(numbers(), shuffle=True))},
    "staging": {"data": tpk.StagingInput(tpk.QueueInput(numbers()))},
    "dataset": {"data": tpk.TFDatasetInput(random_dataset)},
    "dataset of a flow": {"data": tpk.TFDatasetInput(tpk.DataFromList(numbers(), shuffle=True))},
}


@pytest.mark.parametrize("source", SOURCES)
def test_overfitting_repeats_the_first_batches(tmp_path, source):
    inputs = Inputs()
    trainer = launch(tmp_path, [inputs], max_epoch=3, overfit_batches=3, **SOURCES[source])
    seen = [each for (each,) in inputs.seen]
    assert trainer.loop.steps_per_epoch == 3
    assert len({*seen[:3]}) == 3
    assert seen == seen[:3] * 3
    if source in ("a list", "a generator", "staging"):
        assert seen[:3] == [1, 2, 3]


def test_overfitting_shares_the_batches_among_towers(tmp_path):
    inputs = Inputs()
    trainer = launch(tmp_path, [inputs], STRATEGIES[1], max_epoch=2, overfit_batches=4)
    assert trainer.loop.steps_per_epoch == 2
    assert sorted(x for step in inputs.seen for x in step) == sorted([1, 2, 3, 4] * 2)


def test_overfitting_takes_batches_where_the_input_makes_them(tmp_path):
    class Batched(Model):
        def inputs(self):
            return [tf.TensorSpec([None], tf.float32, "x")]

        def build_graph(self, x):
            return tf.reduce_mean(super().build_graph(x))

    inputs = Inputs()
    config = tpk.TrainConfig(
        model=Batched(),
        data=tpk.BatchQueueInput(numbers(), 3),
        overfit_batches=2,
        callbacks=[inputs],
        max_epoch=2,
        run_dir=tmp_path / "run",
    )
    tpk.launch_train_with_config(config)
    assert inputs.seen == [[[1, 2, 3]], [[4, 5, 6]]] * 2


def test_an_input_that_has_no_first_batches_is_an_error(tmp_path):
    with pytest.raises(TpkError, match="TensorInput does not know how to deliver its first 2 batches again and again"):
        launch(tmp_path, [], data=tpk.TensorInput(lambda: [tf.constant(1.0)], size=4), overfit_batches=2)


def test_a_constant_input_is_overfitted_as_it_is(tmp_path):
    trainer = launch(tmp_path, [], data=tpk.DummyConstantInput(), overfit_batches=2, steps_per_epoch=2, max_epoch=1)
    assert trainer.global_step == 2


@pytest.mark.parametrize("given", [0, 1.5, "3"])
def test_a_number_of_batches_that_makes_no_sense_is_an_error(tmp_path, given):
    with pytest.raises(ConfigError, match=r"TrainConfig\(overfit_batches=.*at least 1"):
        launch(tmp_path, [], overfit_batches=given)


def test_an_overfitting_run_that_is_resumed_goes_on_with_the_same_batches(tmp_path):
    def run(directory, epochs, **options):
        inputs = Inputs()
        flow = tpk.DataFromList(numbers(), shuffle=True)
        launch(directory, ["ModelSaver", inputs], dataflow=flow, max_epoch=epochs, overfit_batches=3, seed=4, **options)
        return inputs.seen

    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    whole = run(tmp_path / "a", 3)
    assert run(tmp_path / "b", 1) + run(tmp_path / "b", 3, resume="must") == whole
    assert {path.name for path in Path(tmp_path / "b" / "run").glob("model-*.index")} >= {"model-9.index"}


# A trainer for callbacks alone.


class Weight(tpk.Callback):
    def after_train(self, trainer):
        self.value = trainer.sess.run(v1.trainable_variables()[0])


def test_the_trainer_that_does_nothing_runs_callbacks_on_what_was_trained(tmp_path):
    weight, taken = Weight(), Taken("taken")
    trained = launch(tmp_path, ["ModelSaver", weight], max_epoch=1)
    assert trained.global_step == 20 and weight.value != 0.5
    again, step = Weight(), trained.global_step
    trainer = launch(
        tmp_path / "again",
        [again, tpk.InferenceRunner(numbers(7), taken)],
        "NoOpTrainer",
        session_init=str(tmp_path / "run"),
        steps_per_epoch=2,
        max_epoch=2,
    )
    assert again.value == weight.value
    assert taken.counts == [7, 7]
    assert trainer.global_step - step in (4, 4 - step)
    assert trainer.input_source.consumed == 0
