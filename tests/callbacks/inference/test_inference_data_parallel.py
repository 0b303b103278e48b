from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf
from evaluations import BATCHES, train

import tpk
from tpk.callbacks import Inferencer
from tpk.callbacks.inference.inferencers import BinaryClassificationStats
from tpk.callbacks.inference.runner import DataParallelInferenceRunner
from tpk.dataflow import DataFromGenerator
from tpk.input_source import StagingInput

SOURCES = {
    "list": lambda data: data,
    "of unknown length": lambda data: DataFromGenerator(lambda: iter(data)),
    "queue": tpk.QueueInput,
    "tf.data": tpk.TFDatasetInput,
    "staged": lambda data: StagingInput(tpk.QueueInput(data)),
}


class Seen(Inferencer):
    def __init__(self):
        self.batches = []

    def get_fetches(self, tower):
        return {"x": tower.get_tensor("x"), "twice": [tower.get_tensor("x") * 2]}

    def before_inference(self):
        self.batches = []

    def on_fetches(self, results):
        np.testing.assert_array_equal(results["twice"][0], 2 * results["x"])
        self.batches.append(results["x"].tolist())

    def after_inference(self):
        return {}


def inferencers():
    return [tpk.ScalarStats(["average", "cost"]), tpk.ClassificationError(), BinaryClassificationStats("score", "y")]


@pytest.mark.parametrize("count", [1, 2, 6, 7, 14])
@pytest.mark.parametrize("source", SOURCES)
def test_towers_report_what_one_tower_would(source, count):
    """The tails are of 0, 1 and 2 batches; 3 devices take whole rounds of 6."""
    data = (BATCHES + BATCHES)[:count]
    seen = Seen()
    alone = train(tpk.InferenceRunner(data, inferencers()))
    parallel = train(tpk.InferenceRunner(SOURCES[source](data), [*inferencers(), seen], devices=3))
    assert parallel == alone
    # Each batch once, in order.
    assert seen.batches == [x.tolist() for x, _ in data]


class Devices(tpk.Callback):
    def before_train(self, trainer):
        self.of_towers = {tower.ns_name: tower.output.device for tower in trainer.towers.inference()}


@pytest.mark.parametrize(
    ("strategy", "devices", "expected"),
    [
        (tpk.use("replicated", devices=2), None, ["/device:CPU:0", "/device:CPU:1"]),
        (tpk.use("parameter_server", devices=2), None, ["/device:CPU:0", "/device:CPU:1"]),
        ("single", None, ["/device:CPU:0"]),
        (tpk.use("replicated", devices=3), ["/cpu:2", 1], ["/device:CPU:2", "/device:CPU:1"]),
    ],
)
def test_the_towers_are_on_the_devices_of_the_strategy_or_on_those_that_are_named(
    strategy, devices, expected, pretend_gpus
):
    pretend_gpus(0)
    last = Devices()
    runner = DataParallelInferenceRunner(BATCHES, tpk.ClassificationError(), devices=devices)
    history = train(runner, last, strategy=strategy)
    assert list(last.of_towers.values()) == expected
    several = [f"InferenceTower/{index}" for index in range(len(expected))]
    assert list(last.of_towers) == (several if len(expected) > 1 else ["InferenceTower"])
    assert history == train(tpk.InferenceRunner(BATCHES, tpk.ClassificationError()))


def test_several_runners_have_towers_of_their_own():
    last = Devices()
    train(
        DataParallelInferenceRunner(BATCHES, tpk.ScalarStats("cost", prefix="a"), devices=2),
        DataParallelInferenceRunner(BATCHES, tpk.ScalarStats("cost", prefix="b"), devices=2),
        tpk.InferenceRunner(BATCHES, tpk.ScalarStats("cost", prefix="c")),
        last,
    )
    assert list(last.of_towers) == [
        *("InferenceTower/0", "InferenceTower/1", "InferenceTower2/0", "InferenceTower2/1", "InferenceTower3")
    ]


def test_text_is_evaluated_too():
    class Lengths(Seen):
        def get_fetches(self, tower):
            return tower.get_tensor("length")

        def on_fetches(self, results):
            self.batches += results.tolist()

    def build(text):
        tf.strings.length(text, name="length")
        return tf.reduce_mean(tf.compat.v1.get_variable("w", initializer=0.0))

    words, lengths = [[np.array(["a", "bcd"], object)], [np.array([b"ef"], object)]], Lengths()
    trainer = tpk.SingleCostTrainer()
    optimizer = lambda: tf.compat.v1.train.GradientDescentOptimizer(1.0)  # noqa: E731
    trainer.setup_graph([tf.TensorSpec([None], tf.string, "text")], tpk.FeedInput(words), build, optimizer)
    trainer.train(callbacks=[DataParallelInferenceRunner(words, lengths, devices=2)], steps_per_epoch=1, max_epoch=1)
    assert lengths.batches == [1, 3, 2]


@pytest.mark.parametrize("devices", [0, [], [0, 0]])
def test_devices_that_cannot_be_are_an_error(devices):
    with pytest.raises(tpk.ConfigError, match=re.escape(f"devices={devices!r}: expected")):
        DataParallelInferenceRunner(BATCHES, tpk.ClassificationError(), devices=devices)


def test_an_error_of_the_data_comes_out_as_it_is():
    def fails():
        yield from BATCHES[:4]
        raise ZeroDivisionError("in the user's code")

    for source in (tpk.FeedInput, tpk.QueueInput):
        with pytest.raises(ZeroDivisionError, match="in the user's code"):
            train(DataParallelInferenceRunner(source(DataFromGenerator(fails)), tpk.ClassificationError(), devices=2))
