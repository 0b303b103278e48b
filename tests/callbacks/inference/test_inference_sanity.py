from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from evaluations import BATCHES, Last, train

import tpk
from tpk.callbacks import Inferencer
from tpk.callbacks.averaged_weights import WithAveragedWeights
from tpk.dataflow import DataFromGenerator, DataFromList
from tpk.graph.optimizers.weight_averages import MovingAverageOptimizer

v1 = tf.compat.v1


class Counts(Inferencer):
    def __init__(self):
        self.passes = []

    def get_fetches(self, tower):
        return tower.get_tensor("x")

    def before_inference(self):
        self.passes.append(0)

    def on_fetches(self, results):
        self.passes[-1] += 1

    def after_inference(self):
        return {"batches": self.passes[-1]}


RUNNERS = [tpk.InferenceRunner, partial(tpk.InferenceRunner, devices=2)]


@pytest.mark.parametrize("make", RUNNERS)
@pytest.mark.parametrize("data", [BATCHES, BATCHES[:1]])
def test_a_few_batches_are_tried_before_the_training_and_not_reported(make, data):
    counts, last = Counts(), Last()
    history = train(make(tpk.QueueInput(data), counts, sanity_batches=2), last=last)
    assert counts.passes == [min(2, len(data)), len(data), len(data)]
    assert history["batches"] == [len(data)] * 2
    assert last.steps["batches"] == [2, 4]


class Started(tpk.Callback):
    def before_epoch(self, trainer):
        raise AssertionError("the training has started")


@pytest.mark.parametrize("make", RUNNERS)
def test_what_is_broken_fails_before_the_training(make):
    class Broken(Counts):
        def after_inference(self):
            raise ArithmeticError("of the user's")

    with pytest.raises(ArithmeticError) as caught:
        train(make(BATCHES, Broken(), sanity_batches=2), Started())
    assert any("in the sanity check of" in note for note in caught.value.__notes__)

    with pytest.raises(tpk.InputError, match="delivered nothing"):
        train(make(DataFromGenerator(lambda: iter(())), Counts(), sanity_batches=1), Started())


def drawing():
    """Data that draws from the global generators of Python and NumPy."""
    for x, y in BATCHES:
        random.random()
        np.random.random()
        yield [x, y]


def test_the_training_draws_what_it_would_draw_without():
    class Draws(tpk.Callback):
        def before_epoch(self, trainer):
            self.drawn = random.random(), np.random.random()

    drawn = []
    for sanity_batches in (0, 2):
        random.seed(1)
        np.random.seed(1)
        draws = Draws()
        runner = tpk.InferenceRunner(DataFromGenerator(drawing), Counts(), sanity_batches=sanity_batches)
        train(runner, draws, epochs=1)
        drawn.append(draws.drawn)
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("make", "source", "every"),
    [
        (tpk.InferenceRunner, tpk.FeedInput, 1),
        (tpk.InferenceRunner, tpk.QueueInput, 1),
        (tpk.InferenceRunner, tpk.TFDatasetInput, 1),
        (tpk.InferenceRunner, tpk.QueueInput, 3),
        (partial(tpk.InferenceRunner, devices=2), tpk.QueueInput, 1),
    ],
)
def test_a_resumed_training_reports_what_it_would_have(tmp_path, make, source, every):
    def run(run_dir, epochs, resume="never"):
        # Data that is shuffled anew in each pass: it makes a difference which pass comes next.
        class First(Counts):
            def on_fetches(self, results):
                self.passes[-1] = float(results[0])

        with tf.Graph().as_default():
            v1.set_random_seed(3)
            runner = make(source(DataFromList(BATCHES, shuffle=True)), [First()], sanity_batches=2)
            evaluation = tpk.PeriodicTrigger(runner, every_k_epochs=every)
            return train(evaluation, "ModelSaver", run_dir=run_dir, epochs=epochs, resume=resume)

    whole = run(tmp_path / "whole", 6)
    run(tmp_path / "resumed", 2)
    assert run(tmp_path / "resumed", 6, "must") == whole
    assert len(whole["batches"]) == 6 // every


class Foreign:
    """Data that keeps no position."""

    def __iter__(self):
        return iter(BATCHES)


class ForeignWithState(Foreign):
    """Data of which the position is no plain data."""

    def state_dict(self):
        return {"generator": object()}

    def load_state_dict(self, state):
        raise AssertionError


@pytest.mark.parametrize("data", [Foreign, ForeignWithState])
def test_data_that_cannot_tell_its_position_begins_again_and_prevents_no_checkpoint(tmp_path, data):
    for epochs, resume in ((1, "never"), (2, "must")):
        counts = Counts()
        history = train(
            tpk.InferenceRunner(data(), counts), "ModelSaver", run_dir=tmp_path, epochs=epochs, resume=resume
        )
        assert counts.passes == [len(BATCHES)]
        assert history["batches"] == [len(BATCHES)] * epochs


@pytest.mark.parametrize("make", RUNNERS)
def test_averaged_weights_are_evaluated_beside_the_weights(make):
    def averaged(inferencers, **options):
        return WithAveragedWeights(make(BATCHES, inferencers, **options))

    history = train(
        averaged(tpk.ScalarStats("weight", prefix="averaged"), sanity_batches=2),
        make(BATCHES, tpk.ScalarStats("weight", prefix="plain")),
        optimizer=lambda: MovingAverageOptimizer(v1.train.GradientDescentOptimizer(1.0), 0.5),
    )
    assert history["plain_weight"] == [2.0, 4.0]
    # The average is the weight after the first update, and follows with the factors 1/10, 2/11 and 3/12 of the past.
    expected = [1.0]
    for update, weight in enumerate([2.0, 3.0, 4.0], 1):
        past = min(0.5, update / (9 + update))
        expected.append(past * expected[-1] + (1 - past) * weight)
    assert history["averaged_weight"] == pytest.approx([expected[1], expected[3]])
