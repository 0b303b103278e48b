"""Of which data a pass of an evaluation consists: all of it, whatever it says of its length."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf
from evaluations import BATCHES, SIGNATURE, train

import tpk
from tpk.callbacks import Inferencer
from tpk.dataflow import BatchData, DataFromGenerator, MapData, MultiThreadRunner
from tpk.input_source import BatchQueueInput, StagingInput, TensorInput

v1 = tf.compat.v1


class Seen(Inferencer):
    """Keeps what was evaluated in each pass."""

    def __init__(self):
        self.passes = []

    def get_fetches(self, tower):
        return tower.get_tensor("x")

    def before_inference(self):
        self.passes.append([])

    def on_fetches(self, results):
        self.passes[-1].append(results.tolist())

    def after_inference(self):
        return {}


def passes(data, **options):
    seen = Seen()
    train(tpk.InferenceRunner(data, seen), epochs=options.pop("epochs", 3), steps=1, **options)
    return seen.passes


ALL = [x.tolist() for x, _ in BATCHES]
# Single examples, as batches of one, and as they are.
SINGLES = [[x[i : i + 1], y[i : i + 1]] for x, y in BATCHES for i in range(len(x))]
EXAMPLES = [[x[0], y[0]] for x, y in SINGLES]


def unknown():
    return DataFromGenerator(lambda: iter(BATCHES))


def dataset():
    """Of a cardinality that TensorFlow does not know."""
    examples = tf.data.Dataset.from_tensor_slices(tuple(np.array(part) for part in zip(*EXAMPLES, strict=True)))
    return examples.filter(lambda x, y: x > -100.0).batch(5)


SOURCES = {
    "iterable": unknown,
    "feed": lambda: tpk.FeedInput(unknown()),
    "queue": lambda: tpk.QueueInput(unknown()),
    "finite queue": lambda: tpk.QueueInput(unknown(), infinite=False),
    "staged": lambda: StagingInput(tpk.QueueInput(unknown())),
    "remapped": lambda: tpk.input_source.remap_input_source(tpk.QueueInput(unknown()), ["x", "y"]),
    "flow through tf.data": lambda: tpk.TFDatasetInput(unknown()),
    "known queue": lambda: tpk.QueueInput(BATCHES),
    "known staged": lambda: StagingInput(tpk.QueueInput(BATCHES, infinite=False)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_pass_ends_at_the_end_of_the_data(source):
    assert passes(SOURCES[source]()) == [ALL] * 3


def test_a_dataset_of_unknown_cardinality_is_evaluated_to_its_end():
    examples = [x for batch in ALL for x in batch]
    joined = [examples[start : start + 5] for start in range(0, 22, 5)]
    for infinite in (True, False):
        assert passes(tpk.TFDatasetInput(dataset, infinite=infinite)) == [joined] * 3


def test_a_queue_of_single_datapoints_gives_its_tail_too():
    (first, *rest) = passes(BatchQueueInput(EXAMPLES, 5))
    assert [len(batch) for batch in first] == [5, 5, 5, 5, 2]
    assert [first] * 2 == rest


def test_tensors_with_a_size_make_that_many_batches():
    tensors = TensorInput(lambda: [tf.constant([1.0, 2.0]), tf.constant([0, 1], tf.int64)], size=4)
    assert passes(tensors) == [[[1.0, 2.0]] * 4] * 3


class Claims(DataFromGenerator):
    """Data that says that it has `length` datapoints."""

    def __init__(self, length):
        super().__init__(lambda: iter(BATCHES))
        self.length = length

    def __len__(self):
        return self.length


@pytest.mark.parametrize(("length", "message"), [(9, "ended after 7"), (6, "goes on after these")])
@pytest.mark.parametrize("make", [lambda flow: flow, tpk.QueueInput, tpk.TFDatasetInput])
def test_data_of_another_length_than_it_says_is_an_error_and_no_end_of_the_training(make, length, message):
    with pytest.raises(tpk.InputError, match=f"says that it has {length} datapoints, but {message}"):
        passes(make(Claims(length)))


class Empty(DataFromGenerator):
    def __init__(self):
        super().__init__(lambda: iter(()))


@pytest.mark.parametrize("make", [lambda flow: flow, tpk.QueueInput, tpk.TFDatasetInput])
def test_data_that_delivers_nothing_is_an_error(make):
    with pytest.raises(tpk.InputError, match="delivered nothing"):
        passes(make(Empty()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BatchData(EXAMPLES[:3], 4), r"length 0.*BatchData\(\.\.\., remainder=True\)"),
        (lambda: tpk.QueueInput(BatchData(EXAMPLES[:3], 4)), "length 0"),
        (lambda: TensorInput(lambda: []), "never end.*size"),
        (lambda: tpk.TFDatasetInput(lambda: dataset().repeat()), "never end.*repeat"),
        (lambda: tpk.FeedInput(iter(BATCHES)), "one-shot"),
    ],
)
def test_data_on_which_nothing_can_be_evaluated_is_an_error(make, message):
    with pytest.raises(ValueError, match=message):
        passes(make())


def test_less_than_a_batch_is_evaluated_if_it_is_kept():
    assert passes(BatchData(EXAMPLES[:3], 4, remainder=True)) == [[[x.item() for x, _ in EXAMPLES[:3]]]] * 3


def messages(caplog):
    return [record.getMessage() for record in caplog.records if record.name.startswith("tpk.callbacks")]


@pytest.mark.parametrize(
    "make",
    [
        lambda: BatchData(EXAMPLES, 4),
        lambda: tpk.QueueInput(BatchData(EXAMPLES, 4)),
        lambda: MapData(BatchData(EXAMPLES, 4), list),
        lambda: tpk.TFDatasetInput(BatchData(EXAMPLES, 4)),
    ],
)
def test_the_log_says_what_is_left_out(make, caplog):
    passes(make())
    (message,) = (message for message in messages(caplog) if "leaves out" in message)
    assert "the last 2 datapoints" in message
    assert "remainder=True" in message


@pytest.mark.parametrize(("make", "said"), [(unknown, "its length is unknown"), (lambda: BATCHES, "7 batches")])
def test_the_log_says_what_a_pass_is(make, said, caplog):
    with caplog.at_level(logging.INFO):
        passes(make())
    assert [message for message in messages(caplog) if said in message and "InferenceTower" in message]


@pytest.mark.parametrize("devices", [None, 2])
def test_an_op_of_the_model_that_is_out_of_range_is_an_error_and_no_end_of_the_data(devices):
    def build(x, y):
        w = v1.get_variable("w", initializer=0.0)
        if not tpk.get_current_tower_context().is_training:
            queue = tf.queue.FIFOQueue(1, [tf.float32])
            with tf.control_dependencies([queue.close()]):
                tf.identity(queue.dequeue(), name="missing")
        return tf.negative(w, name="cost")

    trainer = tpk.SingleCostTrainer()
    trainer.setup_graph(SIGNATURE, tpk.FeedInput(BATCHES), build, lambda: v1.train.GradientDescentOptimizer(1.0))

    class Missing(Seen):
        def get_fetches(self, tower):
            return tower.get_tensor("missing")

    with pytest.raises(tpk.errors.TowerError, match="failed in the model, and not because its data ended"):
        trainer.train(
            callbacks=[tpk.InferenceRunner(unknown(), Missing(), devices=devices)], steps_per_epoch=1, max_epoch=2
        )


def test_the_seed_of_the_graph_is_that_of_the_data():
    def shuffled():
        with tf.Graph().as_default():
            v1.set_random_seed(7)
            return passes(tpk.dataflow.DataFromList(BATCHES, shuffle=True))

    first = shuffled()
    assert first == shuffled()
    assert first[0] != first[1]


def test_what_works_ahead_is_stopped_in_the_end():
    assert passes(MultiThreadRunner(lambda: BATCHES, 1)) == [ALL] * 3
