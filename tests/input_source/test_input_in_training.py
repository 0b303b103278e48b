"""Input sources under a trainer, its session and its loop."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tpk
from tpk.dataflow import DataFromGenerator
from tpk.input_source import StagingInput


class Seen(tpk.Callback):
    """Records the input of each step."""

    def __init__(self):
        self.values = []

    def before_train(self, trainer):
        self.tensor = trainer.graph.get_tensor_by_name("seen:0")

    def before_run(self, run_context):
        return self.tensor

    def after_run(self, run_context, run_values):
        self.values.append(int(run_values.results))


def cost(number):
    seen = tf.identity(number, name="seen")
    weight = tf.compat.v1.get_variable("weight", [])
    return weight * tf.cast(seen, tf.float32)


def train(source, specs, *, steps, epochs=1, callbacks=()):
    trainer = tpk.SimpleTrainer()
    trainer.setup_graph(specs("number"), source, cost, lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1))
    seen = Seen()
    trainer.train(callbacks=[seen, *callbacks], steps_per_epoch=steps, max_epoch=epochs)
    return seen.values


def failing(good=3):
    yield from ([number] for number in range(good))
    raise ZeroDivisionError("in the user's data code")


def staged(flow, **options):
    return StagingInput(tpk.QueueInput(flow, **options))


SOURCES = [tpk.FeedInput, tpk.QueueInput, tpk.TFDatasetInput, staged]


@pytest.mark.parametrize("source", SOURCES)
def test_a_training_sees_each_datapoint_in_order(source, specs):
    flow = [[number] for number in range(5)]
    assert train(source(flow), specs, steps=4, epochs=3) == [step % 5 for step in range(12)]


@pytest.mark.parametrize("source", SOURCES)
def test_a_finite_source_ends_the_training_in_good_order(source, specs):
    flow = [[number] for number in range(5)]
    assert train(source(flow, infinite=False), specs, steps=3, epochs=100) == list(range(5))


@pytest.mark.parametrize("source", SOURCES)
def test_an_error_of_the_data_code_comes_out_of_train(source, specs):
    with pytest.raises(ZeroDivisionError, match="in the user's data code") as caught:
        train(source(DataFromGenerator(failing)), specs, steps=10)
    assert caught.traceback[-1].name == "failing"
    assert "datapoint 3 from DataFromGenerator" in caught.value.__notes__[0]


@pytest.mark.parametrize("source", SOURCES)
def test_a_wrong_datapoint_comes_out_of_train(source, specs):
    with pytest.raises(tpk.InputError, match=r"datapoint 1, component 0 \('number'\)"):
        train(source([[0], [0.5]]), specs, steps=10)


class Passes(tpk.callbacks.Inferencer):
    """Records the input of each step of each inference."""

    def __init__(self):
        self.passes = []

    def get_fetches(self, tower):
        return tower.get_tensor("seen")

    def before_inference(self):
        self.passes.append([])

    def on_fetches(self, results):
        self.passes[-1].append(int(results))

    def after_inference(self):
        return {}


@pytest.mark.parametrize("source", SOURCES)
def test_each_inference_starts_from_the_beginning(source, specs):
    inferences = Passes()
    runner = tpk.InferenceRunner(source([[10], [11], [12]]), inferences)
    assert train(tpk.QueueInput([[0], [1]]), specs, steps=3, epochs=2, callbacks=[runner]) == [0, 1, 0, 1, 0, 1]
    assert inferences.passes == [[10, 11, 12]] * 2


@pytest.mark.parametrize("source", SOURCES)
def test_an_error_of_the_data_of_an_inference_comes_out_of_train(source, specs):
    runner = tpk.InferenceRunner(source([[10], ["eleven"]]), Passes())
    with pytest.raises(tpk.InputError, match="datapoint 1"):
        train(tpk.FeedInput([[0]]), specs, steps=1, callbacks=[runner])
