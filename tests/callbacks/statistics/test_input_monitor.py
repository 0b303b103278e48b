from __future__ import annotations

import logging
import threading
import time

import pytest
import tensorflow as tf

import tpk
from tpk.dataflow import DataFromGenerator
from tpk.input_source import DummyConstantInput, FeedInput, QueueInput, StagingInput, TFDatasetInput
from tpk.input_source.meter import StopwatchMeter

MONITOR = "tpk.callbacks.statistics.rates:InputMonitor"
SIGNATURE = [tf.TensorSpec([], tf.float32, "x")]
NUMBERS = [[float(number)] for number in range(7)]


class Seen(tpk.Callback):
    def __init__(self):
        self.values = []

    def setup_graph(self, trainer):
        self.inputs = [tower.inputs[0] for tower in trainer.towers.training()]
        self.inputs = [tf.identity(each) for each in self.inputs]

    def before_run(self, run_context):
        return self.inputs

    def after_run(self, run_context, run_values):
        self.values += [int(value) for value in run_values.results]


def train(source, callbacks=(MONITOR,), strategy="single", steps=4, epochs=2):
    trainer = tpk.SingleCostTrainer(strategy=strategy)
    trainer.setup_graph(
        SIGNATURE,
        source,
        lambda x: tf.compat.v1.get_variable("weight", [], initializer=tf.compat.v1.zeros_initializer()) * x,
        lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1),
    )
    trainer.train(callbacks=callbacks, steps_per_epoch=steps, max_epoch=epochs)
    return trainer


def reported(trainer, name):
    return [value for _, value in trainer.monitors.get_history(f"input/{name}")]


SOURCES = {
    "feed": FeedInput,
    "queue": QueueInput,
    "staged queue": lambda flow: StagingInput(QueueInput(flow)),
    "dataset of a flow": TFDatasetInput,
    "dataset": lambda flow: TFDatasetInput(lambda: tf.data.Dataset.from_tensor_slices((tf.range(7.0),))),
    "remapped": lambda flow: tpk.remap_input_source(QueueInput(flow), ["x"]),
}


@pytest.mark.parametrize("make_source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("strategy", ["single", "replicated", "async"])
def test_every_epoch_is_reported_and_nothing_is_taken_for_it(make_source, strategy):
    if strategy == "async" and not isinstance(make_source(NUMBERS), (QueueInput, TFDatasetInput)):
        return  # refused by the strategy
    seen = Seen() if strategy != "async" else None
    name = strategy if strategy == "single" else tpk.use(strategy, devices=2)
    trainer = train(make_source(NUMBERS), [MONITOR, *([seen] if seen else [])], name)
    for waited, share in zip(reported(trainer, "wait_seconds"), reported(trainer, "wait_share"), strict=True):
        assert 0 <= waited < 60
        assert 0 <= share <= 1
    assert len(reported(trainer, "wait_seconds")) == 2
    if seen:
        assert seen.values == [number % 7 for number in range(len(seen.values))]


def test_the_time_in_the_data_code_of_a_feed_is_exact():
    now = [0.0]

    class Timed(FeedInput):
        def make_meter(self):
            super().make_meter()
            self._callback.meter = StopwatchMeter(clock=lambda: now[0])
            return self._callback.meter

    class Steps(tpk.Callback):
        def after_run(self, run_context, run_values):
            now[0] += 3.0

    def slow():
        for (number,) in NUMBERS:
            now[0] += 1.0
            yield [number]

    monitor = tpk.use(MONITOR, clock=lambda: now[0])
    trainer = train(Timed(DataFromGenerator(slow)), [monitor, Steps()])
    assert reported(trainer, "wait_seconds") == [1.0, 1.0]
    assert reported(trainer, "wait_share") == [0.25, 0.25]
    assert "input/queue_fill" not in trainer.monitors.names


@pytest.mark.parametrize("staged", [False, True])
def test_the_wait_for_a_queue_is_that_of_the_step(staged):
    wanted = threading.Event()
    held = []

    def slow():
        yield from NUMBERS[:3]
        assert wanted.wait(60)
        began = time.perf_counter()
        # What makes this datapoint takes its time: long against what may pass before the step begins to wait for it.
        threading.Event().wait(1)
        held.append(time.perf_counter() - began)
        yield NUMBERS[3]

    class Steps(tpk.Callback):
        def before_epoch(self):
            self.began = time.perf_counter()

        def trigger_step(self):
            if self.local_step == 2:
                wanted.set()

        def after_epoch(self):
            self.seconds = time.perf_counter() - self.began

    steps = Steps()
    source = QueueInput(DataFromGenerator(slow), infinite=False)
    trainer = train(StagingInput(source) if staged else source, [steps, MONITOR], epochs=1)
    (waited,) = reported(trainer, "wait_seconds")
    assert held[0] * 0.5 < waited * 4 <= steps.seconds


@pytest.mark.parametrize("staged", [False, True])
def test_the_fill_is_that_which_steps_find(staged):
    is_full = threading.Event()

    def numbers():
        number = 0
        while True:
            # Three are in the queue, this one will wait for room there. Two may be staged.
            if number == (5 if staged else 3):
                is_full.set()
            yield [float(number)]
            number += 1

    class Wait(tpk.Callback):
        def before_epoch(self):
            assert is_full.wait(60)

    source = QueueInput(DataFromGenerator(numbers), queue_size=3)
    source = StagingInput(source, nr_stage=2) if staged else source
    trainer = train(source, [Wait(), MONITOR], steps=1, epochs=1)
    assert 2 <= reported(trainer, "queue_fill")[0] <= 3
    assert reported(trainer, "queue_fill_share")[0] == pytest.approx(reported(trainer, "queue_fill")[0] / 3)


def test_a_source_for_which_no_step_waits_has_nothing_to_report(caplog):
    with caplog.at_level(logging.INFO):
        trainer = train(DummyConstantInput())
    assert "never wait for a DummyConstantInput" in caplog.text
    assert trainer.monitors.names == []


def test_a_trainer_without_input_is_told():
    class Plain(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                self.train_op = tf.no_op()

    with pytest.raises(tpk.ConfigError, match="but Plain has none"):
        Plain().train(callbacks=[MONITOR], steps_per_epoch=1, max_epoch=1)
