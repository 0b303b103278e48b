from __future__ import annotations

import logging
import threading

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.dataflow import DataFromGenerator
from tpk.errors import ConfigError, InputError
from tpk.input_source import FeedInput, QueueInput, StagingInput, TensorInput, remap_input_source


def numbers(count):
    return [[number] for number in range(count)]


@pytest.mark.parametrize("nr_stage", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("towers", [1, 2])
def test_all_that_goes_in_comes_out(drive, specs, nr_stage, count, towers):
    with drive(StagingInput(QueueInput(numbers(count), infinite=False), nr_stage), specs("x"), towers) as training:
        steps = count // towers
        assert training.first_components(steps) == list(range(steps * towers))
        for _ in range(2):
            with pytest.raises(tf.errors.OutOfRangeError, match=f"ended after {steps} steps"):
                training.step()


def test_the_next_datapoints_are_staged_before_their_steps(drive, specs):
    source = QueueInput(numbers(4), infinite=False)
    with drive(StagingInput(source, nr_stage=3), specs("x")) as training:
        training.step()
        training.join_thread("QueueInput")
        while source.consumed < 4:
            pass
    assert source.consumed == 4


def test_text_and_numbers_are_staged_together_with_their_shapes(drive):
    signature = [
        tf.TensorSpec([None], tf.string, "text"),
        tf.TensorSpec([None, 2], tf.float32, "x"),
        tf.TensorSpec([], tf.string, "name"),
    ]
    flow = [[["a", "b"], np.ones((3, 2)), "c"], [["d"], np.zeros((1, 2)), "e"]]
    with drive(StagingInput(QueueInput(flow), devices=["/cpu:0"]), signature) as training:
        assert [tensor.shape.as_list() for tensor in training.towers[0]] == [[None], [None, 2], []]
        for texts, shape, name in (([b"a", b"b"], (3, 2), b"c"), ([b"d"], (1, 2), b"e")):
            ((text, x, other),) = training.step()
            assert (text.tolist(), x.shape, other) == (texts, shape, name)


def test_each_tower_has_its_datapoints_on_its_device(drive, specs):
    with drive(StagingInput(QueueInput(numbers(6)), devices=["/cpu:0", "/cpu:1"]), specs("x"), towers=2) as training:
        assert [tower[0].device for tower in training.towers] == ["/device:CPU:0", "/device:CPU:1"]
        assert training.first_components(2) == [0, 1, 2, 3]


def test_there_is_a_device_for_each_tower(drive, specs):
    with pytest.raises(InputError, match="has 1 devices, but tower 1"):
        drive(StagingInput(QueueInput(numbers(6)), devices=["/cpu:0"]), specs("x"), towers=2)


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_a_strategy_says_where_its_towers_are(strategy, specs):
    trainer = tpk.SingleCostTrainer(strategy=tpk.use(strategy, devices=["/cpu:0", "/cpu:1"]))
    trainer.setup_graph(
        specs("x"),
        StagingInput(QueueInput(numbers(7))),
        lambda x: tf.compat.v1.get_variable("weight", []) * tf.cast(x, tf.float32),
        lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1),
    )
    assert [tower.inputs[0].device[-5:] for tower in trainer.towers.training()] == ["CPU:0", "CPU:1"]

    class Seen(tpk.Callback):
        values = []

        def setup_graph(self, trainer):
            self.inputs = [tf.identity(tower.inputs[0]) for tower in trainer.towers.training()]

        def before_run(self, run_context):
            return self.inputs

        def after_run(self, run_context, run_values):
            self.values += list(run_values.results)

    trainer.train(callbacks=[Seen()], steps_per_epoch=5, max_epoch=2)
    assert Seen.values == [number % 7 for number in range(20)]


def test_towers_that_run_by_themselves_cannot_have_it(specs):
    trainer = tpk.SingleCostTrainer(strategy=tpk.use("async", devices=2))
    with pytest.raises(InputError, match="Pass the QueueInput alone"):
        trainer.setup_graph(
            specs("x"),
            StagingInput(QueueInput(numbers(6))),
            lambda x: tf.cast(x, tf.float32),
            lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1),
        )


def test_data_without_a_callback_is_staged_too(drive, specs):
    def count():
        number = tf.compat.v1.get_variable("number", [], tf.int32, tf.compat.v1.ones_initializer(), use_resource=True)
        return [number.assign_add(1)]

    class Initialized(drive):
        def finish_graph(self):
            self.initializer = tf.compat.v1.global_variables_initializer()

    training = Initialized(StagingInput(TensorInput(count)), specs("x"))
    training.hooks.register(Initialize(training))
    with training:
        assert training.first_components(3) == [2, 3, 4]


class Initialize(tpk.Callback):
    def __init__(self, training):
        self.training = training

    @tpk.hookimpl(tryfirst=True)
    def before_train(self, trainer):
        trainer.sess.run(self.training.initializer)


def test_a_failure_ahead_of_the_steps_is_logged_and_not_lost(drive, specs, caplog):
    with drive(StagingInput(QueueInput([[0], ["one"]])), specs("x")) as training:
        training.step()
        training.join_thread("StagingInput")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "StagingInput: the data failed ahead of what was used" in caplog.text


def test_data_code_that_does_not_return_is_left_behind_with_a_warning(drive, specs, caplog, monkeypatch):
    monkeypatch.setattr("tpk.input_source.data_thread.STOP_TIMEOUT", 0.01)
    asked, go_on = threading.Event(), threading.Event()

    def datapoints():
        yield [0]
        asked.set() or go_on.wait(60)  # on one line, since it is shown wherever in it the thread is
        yield [1]

    source = StagingInput(QueueInput(DataFromGenerator(datapoints)))
    with drive(source, specs("x")) as training:
        training.step()
        assert asked.wait(60)
    assert "QueueInput: the dataflow did not finish its datapoint within 0.01 s" in caplog.text
    assert "go_on.wait(60)" in caplog.text
    go_on.set()
    training.join_thread("QueueInput")


def test_a_step_can_be_taken_only_between_before_train_and_after_train(drive, specs):
    with drive(StagingInput(QueueInput(numbers(3))), specs("x")) as training:
        training.step()
        training.source.stop()
        with pytest.raises(InputError, match="before_train starts it"):
            training.step()


def test_what_it_takes():
    with pytest.raises(InputError, match="needs an input source"):
        StagingInput(numbers(3))
    for source in (FeedInput(numbers(3)), remap_input_source(FeedInput(numbers(3)), ["x"])):
        with pytest.raises(InputError, match=r"feeds its data\. Write StagingInput"):
            StagingInput(source)
    with pytest.raises(ConfigError, match="nr_stage must be an integer, 1 or more"):
        StagingInput(QueueInput(numbers(3)), nr_stage=0)


class RawSteps(tpk.SingleCostTrainer):
    """Runs its steps by the raw session."""

    def run_step(self):
        self.sess.run(self.train_op)


@pytest.mark.parametrize("strategy", ["single", tpk.use("replicated", devices=["/cpu:0", "/cpu:1"])])
def test_a_raw_run_that_finds_nothing_staged_is_an_error_and_no_hang(strategy):
    trainer = RawSteps(strategy)
    source = tpk.StagingInput(tpk.QueueInput([[np.ones(2, np.float32)]] * 100))

    def build(x):
        return tf.reduce_sum(tf.compat.v1.get_variable("w", [2]) * x)

    def optimizer():
        return tf.compat.v1.train.GradientDescentOptimizer(0.1)

    trainer.setup_graph([tf.TensorSpec([2], tf.float32, "x")], source, build, optimizer)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"StagingInput.*write self\.hooked_sess\.run"):
        trainer.train(steps_per_epoch=20, max_epoch=1)
