from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from evaluations import BATCHES, train, train_together

import tpk
from tpk.callbacks import Inferencer
from tpk.callbacks.inference.inferencers import BinaryClassificationStats, MetricInferencer
from tpk.callbacks.inference.runner import DataParallelInferenceRunner
from tpk.errors import PeerError

metrics = tf.compat.v1.metrics


def inferencers():
    return [
        tpk.ScalarStats(["average", "weight"]),
        tpk.ClassificationError(),
        BinaryClassificationStats("score", "y", threshold=0.6),
        MetricInferencer(metrics.auc, {"labels": "y", "predictions": "score"}, num_thresholds=20),
    ]


@pytest.mark.parametrize(
    ("count", "make"),
    [(2, tpk.InferenceRunner), (3, tpk.InferenceRunner), (2, partial(DataParallelInferenceRunner, devices=2))],
    ids=["two", "three", "two with two devices each"],
)
def test_processes_evaluate_a_share_each_and_report_what_one_would(count, make):
    alone = train(tpk.InferenceRunner(BATCHES, inferencers()))
    outcomes = train_together(count, lambda rank: [make(BATCHES, inferencers(), sanity_batches=1)])
    for history in outcomes:
        assert history.keys() == alone.keys()
        for name, values in alone.items():
            # What Python counts is the same to the bit, TensorFlow's own sums are rounded in another order.
            assert history[name] == (pytest.approx(values, rel=1e-6) if "auc" in name else values)


class Largest(Inferencer):
    seen: list

    def get_fetches(self, tower):
        return {"x": tower.get_tensor("x")}

    def before_inference(self):
        self.seen = []

    def on_fetches(self, results):
        self.seen.append(results["x"])

    def after_inference(self):
        return {"largest": max(x.max() for x in self.seen)}


class MergedLargest(Largest):
    def state(self):
        return self.seen

    def merge(self, states):
        self.parts = [len(state) for state in states]
        self.seen = [x for state in states for x in state]


def test_an_inferencer_of_ones_own_is_merged_as_it_says():
    largest = [MergedLargest(), MergedLargest()]
    outcomes = train_together(2, lambda rank: [tpk.InferenceRunner(BATCHES, largest[rank])])
    expected = max(x.max() for x, _ in BATCHES)
    assert [history["largest"] for history in outcomes] == [[expected] * 2] * 2
    assert [each.parts for each in largest] == [[4, 3]] * 2


def test_one_that_does_not_say_how_is_an_error_at_setup():
    for error in train_together(2, lambda rank: [tpk.InferenceRunner(BATCHES, Largest())]):
        assert isinstance(error, tpk.ConfigError)
        assert "Largest does not say" in str(error)
        assert "state() and merge(states)" in str(error)


@pytest.mark.parametrize("wrap", [lambda runner: runner, partial(tpk.PeriodicTrigger, every_k_epochs=1)])
def test_it_can_evaluate_in_the_chief_alone(wrap):
    def callbacks(rank):
        runner = tpk.InferenceRunner(BATCHES, Largest())
        runner.chief_only = True
        return [wrap(runner), tpk.InferenceRunner(BATCHES, tpk.ScalarStats("cost"))]

    chief, other = train_together(2, callbacks)
    assert chief["largest"] == [max(x.max() for x, _ in BATCHES)] * 2
    assert "largest" not in other
    assert chief["validation_cost"] == other["validation_cost"]


def test_wrappers_run_in_every_process():
    def callbacks(rank):
        runner = tpk.InferenceRunner(BATCHES, tpk.ClassificationError())
        return [tpk.PeriodicTrigger(runner, every_k_steps=3, before_train=True)]

    alone = train(*callbacks(0), epochs=3)
    assert len(alone["validation_error"]) == 3
    assert train_together(2, callbacks, epochs=3) == [alone, alone]


def test_fewer_batches_than_processes_are_no_problem():
    alone = train(tpk.InferenceRunner(BATCHES[:1], inferencers()))
    for history in train_together(2, lambda rank: [tpk.InferenceRunner(BATCHES[:1], inferencers())]):
        assert history == {name: pytest.approx(values, rel=1e-6) for name, values in alone.items()}


def test_data_that_is_divided_already_is_evaluated_as_it_is():
    alone = train(tpk.InferenceRunner(BATCHES, tpk.ClassificationError()))
    outcomes = train_together(
        2, lambda rank: [tpk.InferenceRunner(BATCHES[rank::2], tpk.ClassificationError(), shard_data=False)]
    )
    assert outcomes == [alone, alone]


def test_shuffled_data_is_shuffled_alike_before_it_is_divided():
    seen = [MergedLargest(), MergedLargest()]

    def callbacks(rank):
        return [tpk.InferenceRunner(tpk.dataflow.DataFromList(BATCHES, shuffle=True), seen[rank])]

    train_together(2, callbacks, epochs=1)
    batches = sorted(x.tolist() for x in seen[0].seen)
    assert batches == sorted(x.tolist() for x, _ in BATCHES)


def test_data_that_cannot_be_divided_says_what_to_do():
    class Own(tpk.TFDatasetInput):
        shard = tpk.input_source.InputSource.shard

    outcomes = train_together(2, lambda rank: [tpk.InferenceRunner(Own(BATCHES), tpk.ClassificationError())])
    for error in outcomes:
        assert isinstance(error, tpk.ConfigError)
        assert any("InferenceRunner shard_data=False" in note for note in error.__notes__)


def failing_at_data(rank):
    def batches():
        yield BATCHES[0]
        yield BATCHES[1]
        if rank == 1:
            raise ZeroDivisionError("in the data of rank 1")

    return tpk.InferenceRunner(tpk.dataflow.DataFromGenerator(batches), tpk.ClassificationError(), shard_data=False)


def failing_at_state(rank):
    class Failing(MergedLargest):
        def state(self):
            # No process but the one that has it can pickle a lambda.
            return [lambda: None] if rank == 1 else super().state()

    return tpk.InferenceRunner(BATCHES, Failing())


@pytest.mark.parametrize("make", [failing_at_data, failing_at_state])
def test_a_failure_in_one_process_is_an_error_in_all(make):
    ours, theirs = train_together(2, lambda rank: [make(rank)])
    assert isinstance(ours, PeerError)
    assert "rank 1" in str(ours)
    assert str(theirs) in str(ours)
    assert not isinstance(theirs, PeerError)


def test_a_metric_that_is_no_sum_is_refused():
    def largest(values):
        variable = tf.Variable(-np.inf, trainable=False, name="largest")
        return variable.read_value(), variable.assign(tf.maximum(variable, tf.reduce_max(values)))

    inferencer = MetricInferencer(largest, {"values": "x"}, name="largest")
    alone = train(tpk.InferenceRunner(BATCHES, inferencer))
    assert alone["largest"] == [max(x.max() for x, _ in BATCHES)] * 2
    for error in train_together(
        2, lambda rank: [tpk.InferenceRunner(BATCHES, MetricInferencer(largest, {"values": "x"}))]
    ):
        assert isinstance(error, tpk.ConfigError)
        assert "largest need not be sums" in str(error)
