"""What holds for every source that knows its position: a resumed run uses what the first one would have used."""

from __future__ import annotations

import json
import logging
import threading

import numpy as np
import pytest
import tensorflow as tf

from tpk.dataflow import DataFromGenerator, DataFromList, RNGDataFlow, seed_dataflow
from tpk.errors import InputError
from tpk.input_source import (
    BatchQueueInput,
    DummyConstantInput,
    FeedInput,
    QueueInput,
    StagingInput,
    TFDatasetInput,
    remap_input_source,
)

PASS = 7


def seeded_dataset(infinite=True):
    def dataset():
        return tf.data.Dataset.range(PASS).shuffle(PASS, seed=3).map(lambda number: (tf.cast(number, tf.int32),))

    return TFDatasetInput(dataset, infinite=infinite)


FLOW_SOURCES = {
    "feed": FeedInput,
    "queue": QueueInput,
    "small queue": lambda flow, **options: QueueInput(flow, queue_size=1, **options),
    "queue of the user's": lambda flow, **options: OwnQueue(flow, **options),
    "dataset of a flow": TFDatasetInput,
    "remapped": lambda flow, **options: remap_input_source(FeedInput(flow, **options), ["number"]),
    "staged queue": lambda flow, **options: StagingInput(QueueInput(flow, **options), nr_stage=3),
    "staged remapped": lambda flow, **options: StagingInput(
        remap_input_source(QueueInput(flow, queue_size=2, **options), ["number"])
    ),
    "staged dataset of a flow": lambda flow, **options: StagingInput(TFDatasetInput(flow, **options)),
    "dataset": lambda flow, **options: seeded_dataset(**options),
    "staged dataset": lambda flow, **options: StagingInput(seeded_dataset(**options)),
}


class OwnQueue(QueueInput):
    def _setup(self):
        self.queue = tf.queue.PaddingFIFOQueue(5, [tf.int32], shapes=[[]])
        return super()._setup()


class Orders(RNGDataFlow):
    """Another order in each pass, and no position."""

    def __iter__(self):
        for number in self.epoch_rng().permutation(PASS):
            yield [int(number)]

    def __len__(self):
        return PASS


class Reading:
    """A user's flow, which keeps the one that it reads as an attribute."""

    def __init__(self):
        self.ds = DataFromList([[number] for number in range(PASS)], shuffle=True)

    def __iter__(self):
        yield from self.ds


def seeded_by_the_run():
    flow = Reading()
    seed_dataflow(flow, 5)
    return flow


FLOWS = {
    "list": lambda: [[number] for number in range(PASS)],
    "with a state": lambda: DataFromList([[number] for number in range(PASS)], shuffle=True, seed=5),
    "replayed": lambda: Orders(seed=5),
    "reading another": seeded_by_the_run,
}


WITH_A_STATE = [(source, "with a state") for source in FLOW_SOURCES]
OTHERS = [(source, flow) for source in ("feed", "queue", "staged queue", "dataset of a flow") for flow in FLOWS]


@pytest.fixture(params=sorted({*WITH_A_STATE, *OTHERS}), ids=", ".join)
def make_input(request):
    source, flow = request.param
    return lambda **options: FLOW_SOURCES[source](FLOWS[flow](), **options)


@pytest.fixture(params=FLOWS)
def make_flow(request):
    return FLOWS[request.param]


def through_json(state):
    return json.loads(json.dumps(state))


@pytest.mark.parametrize("towers", [1, 2])
def test_a_resumed_run_uses_what_the_first_one_would_have_used(make_input, drive, specs, towers):
    states = {}
    with drive(make_input(), specs("number"), towers) as training:
        expected = []
        for step in range(22):
            # The beginning, in the first pass, its end, several passes later, more than the queue holds.
            if step in (0, 3, 7, 17):
                states[step] = through_json(training.source.state_dict())
            expected.append(training.first_components(1))
    for step, state in states.items():
        with drive(make_input(), specs("number"), towers, state) as training:
            # Before the first datapoint a position is unknown until a thread has begun, which means the same.
            assert step == 0 or training.source.state_dict() == state
            for later in range(step, min(step + 10, 22)):
                assert training.first_components(1) == expected[later]


def test_a_run_may_be_resumed_again_and_again(make_input, drive, specs):
    with drive(make_input(), specs("number")) as training:
        expected = training.first_components(15)
    state, seen = None, []
    for _ in range(3):
        with drive(make_input(), specs("number"), 1, state) as training:
            seen += training.first_components(5)
        state = through_json(training.source.state_dict())  # after the end of the training
    assert seen == expected


def test_a_finite_source_has_the_rest_left_and_then_nothing(make_input, drive, specs):
    with drive(make_input(infinite=False), specs("number")) as training:
        seen = training.first_components(4)
        state = through_json(training.source.state_dict())
    with drive(make_input(infinite=False), specs("number"), 1, state) as training:
        seen += training.first_components(PASS - 4)
        with pytest.raises(tf.errors.OutOfRangeError):
            training.step()
        at_the_end = through_json(training.source.state_dict())
    assert sorted(seen) == list(range(PASS))
    with (
        drive(make_input(infinite=False), specs("number"), 1, at_the_end) as training,
        pytest.raises(tf.errors.OutOfRangeError),
    ):
        training.step()


def test_reset_state_begins_a_pass_that_can_be_resumed(make_input, drive, specs):
    with drive(make_input(), specs("number")) as training:
        training.first_components(3)
        training.source.reset_state()
        begun = through_json(training.source.state_dict())
        expected = training.first_components(2)
        state = through_json(training.source.state_dict())
        expected += training.first_components(8)
    with drive(make_input(), specs("number"), 1, begun) as training:
        assert training.first_components(10) == expected
    with drive(make_input(), specs("number"), 1, state) as training:
        assert training.first_components(8) == expected[2:]


def test_reset_state_after_a_resume_begins_with_the_next_pass(make_flow, drive, specs):
    with drive(FeedInput(make_flow()), specs("number")) as training:
        training.first_components(PASS + 3)
        state = through_json(training.source.state_dict())
        training.first_components(PASS - 3)
        expected = training.first_components(PASS)
    with drive(FeedInput(make_flow()), specs("number"), 1, state) as training:
        training.first_components(1)
        training.source.reset_state()
        assert training.first_components(PASS) == expected


def test_what_was_read_ahead_is_not_taken_for_used(drive, specs):
    reached = threading.Event()

    def numbers():
        for number in range(40):
            if number == 30:
                reached.set()
            yield [number]

    flow = DataFromGenerator(numbers)
    with drive(QueueInput(flow, queue_size=35), specs("number")) as training:
        training.first_components(2)
        assert reached.wait(60)
        state = through_json(training.source.state_dict())
    with drive(QueueInput(flow, queue_size=35), specs("number"), 1, state) as training:
        assert training.first_components(3) == [2, 3, 4]


def test_towers_that_run_by_themselves_are_counted(drive, specs):
    with drive(QueueInput(FLOWS["list"]()), specs("number"), towers=2) as training:
        first, _ = training.fetches
        assert training.sess.run(first) == [0]
        assert [training.sess.run(first) for _ in range(3)] == [[1], [2], [3]]
        assert training.source.consumed == 4
        assert training.source.state_dict()["datapoints"] == 4


def test_a_tower_that_goes_on_while_the_position_is_asked_for_does_not_lose_it(drive, specs):
    class Overtaken(QueueInput):
        """Once it has told its count, another tower takes more than the source remembers."""

        @property
        def consumed(self):
            count = super().consumed
            for _ in range(takes.pop() if takes else 0):
                training.sess.run(training.fetches)
            return count

    takes = [100]
    with drive(Overtaken(FLOWS["list"](), queue_size=1), specs("number")) as training:
        state = through_json(training.source.state_dict())
        expected = training.first_components(3)
    assert state["datapoints"] == 100
    with drive(Overtaken(FLOWS["list"](), queue_size=1), specs("number"), 1, state) as training:
        assert training.first_components(3) == expected


def test_a_run_that_needs_no_input_takes_none(drive, specs):
    class WithAnother(drive):
        def finish_graph(self):
            self.other = tf.constant(1) + 1

    for source in (QueueInput(FLOWS["list"]()), StagingInput(QueueInput(FLOWS["list"]()))):
        with WithAnother(source, specs("number")) as training:
            assert training.first_components(2) == [0, 1]
            assert [training.hooked_sess.run(training.other) for _ in range(5)] == [2] * 5
            assert training.source.state_dict()["datapoints"] == 2
            assert training.first_components(2) == [2, 3]


def test_batches_of_single_datapoints_are_resumed(make_flow, drive):
    signature = [tf.TensorSpec([None], tf.int32, "number")]

    def batches(training, steps):
        return [training.step()[0][0].tolist() for _ in range(steps)]

    with drive(BatchQueueInput(make_flow(), 3), signature) as training:
        batches(training, 4)
        state = through_json(training.source.state_dict())
        expected = batches(training, 6)
    assert state["datapoints"] == 12
    with drive(BatchQueueInput(make_flow(), 3), signature, 1, state) as training:
        assert batches(training, 3) == expected[:3]
        state = through_json(training.source.state_dict())
    with drive(StagingInput(BatchQueueInput(make_flow(), 3)), signature, 1, state) as training:
        assert batches(training, 3) == expected[3:]
        state = through_json(training.source.state_dict())
    # Another batch size goes on at the same datapoint.
    with drive(BatchQueueInput(make_flow(), 2), signature, 1, state) as training:
        assert batches(training, 1)[0] == batches_after(make_flow, drive, signature, 30)[:2]
        assert training.source.state_dict()["datapoints"] == 32


def batches_after(make_flow, drive, signature, count):
    with drive(BatchQueueInput(make_flow(), 10), signature) as training:
        taken = [number for _ in range(count // 10 + 1) for number in training.step()[0][0].tolist()]
    return taken[count:]


@pytest.mark.parametrize(
    "make_source",
    [FeedInput, QueueInput, TFDatasetInput, FLOW_SOURCES["staged remapped"], lambda flow: BatchQueueInput(flow, 2)],
)
def test_the_seed_of_a_run_is_handed_on(make_source):
    def derived(seed):
        make_source(flow := Orders()).seed(seed)
        return flow.seed

    assert derived(1) == derived(1) != derived(2)


def test_a_flow_of_which_the_seed_was_drawn_is_resumed_with_that_seed(drive, specs):
    with drive(QueueInput(Orders()), specs("number")) as training:
        training.first_components(10)
        state = through_json(training.source.state_dict())
        expected = training.first_components(20)
    with drive(QueueInput(Orders()), specs("number"), 1, state) as training:
        assert training.first_components(20) == expected


def test_how_much_is_made_again_is_logged(drive, specs, caplog):
    state = {"source": "TFDatasetInput", "datapoints": 9, "size": PASS}
    with caplog.at_level(logging.INFO), drive(seeded_dataset(), specs("number"), 1, state):
        assert "makes 9 elements again" in caplog.text


def test_a_queue_that_shuffles_has_no_position_and_says_so(drive, specs, caplog):
    class Shuffled(QueueInput):
        def _setup(self):
            self.queue = tf.queue.RandomShuffleQueue(20, 0, [tf.int32], shapes=[[]])
            return super()._setup()

    with drive(Shuffled(FLOWS["list"]()), specs("number")) as training:
        training.step()
        assert training.source.state_dict() == training.source.state_dict() == {}
        (record,) = caplog.records
        assert "RandomShuffleQueue does not keep the order" in record.message
        with pytest.raises(InputError, match="keeps no position"):
            training.source.load_state_dict({"datapoints": 3})


def test_a_source_without_a_position_takes_none_back(specs):
    source = DummyConstantInput()
    assert source.state_dict() == {}
    source.load_state_dict({})
    with pytest.raises(InputError, match="DummyConstantInput keeps no position"):
        source.load_state_dict({"datapoints": 3})


@pytest.mark.parametrize(
    ("source", "other", "message"),
    [
        (FeedInput, QueueInput, "QueueInput cannot continue from a position of 'FeedInput'"),
        (TFDatasetInput, FeedInput, "FeedInput cannot continue from a position of 'TFDatasetInput'"),
        (FeedInput, lambda flow: seeded_dataset(), "cannot continue from a position of 'FeedInput' over list"),
        (
            TFDatasetInput,
            lambda flow: seeded_dataset(),
            "cannot continue from a position of 'TFDatasetInput' over list",
        ),
        (FeedInput, lambda flow: FeedInput(flow[1:]), "list, of length 7, but the data is list now, of length 6"),
        (QueueInput, lambda flow: QueueInput(DataFromList(flow)), "but the data is DataFromList now, of length 7"),
    ],
)
def test_a_position_in_other_data_is_refused(source, other, message):
    state = source(FLOWS["list"]()).state_dict()
    with pytest.raises(InputError, match=message):
        other(FLOWS["list"]()).load_state_dict(state)


def test_a_position_in_another_dataset_is_refused(drive, specs):
    with pytest.raises(InputError, match="elements per pass, but it has 7 now"):
        drive(
            seeded_dataset(), specs("number"), 1, {"source": "TFDatasetInput", "datapoints": 3, "size": 6}
        ).__enter__()


def test_data_that_has_become_less_is_refused(drive, specs):
    def source(count):
        return QueueInput(DataFromGenerator(lambda: ([number] for number in range(count))), infinite=False)

    with drive(source(30), specs("number")) as training:
        training.first_components(25)
        state = through_json(training.source.state_dict())
    with (
        drive(source(20), specs("number"), 1, state) as training,
        pytest.raises(InputError, match="Has the data changed"),
    ):
        training.step()


def test_how_far_ahead_something_reads_must_be_known_before(drive, specs):
    with drive(FeedInput(FLOWS["list"]()), specs("number")) as training:
        training.first_components(3)
        with pytest.raises(InputError, match="set max_ahead"):
            training.source.state_dict(ahead=1)
    source = FeedInput(FLOWS["list"]())
    source.max_ahead = 2
    with drive(source, specs("number")) as training:
        training.first_components(3)
        assert training.source.state_dict(ahead=2)["datapoints"] == 1


def test_arrays_that_come_after_a_resume_are_checked_with_their_number(drive, specs):
    with drive(FeedInput([[0], [1], [np.zeros(3)]]), specs("number")) as training:
        training.step()
        state = through_json(training.source.state_dict())
    with drive(FeedInput([[0], [1], [np.zeros(3)]]), specs("number"), 1, state) as training:
        training.step()
        with pytest.raises(InputError, match="datapoint 2, component 0"):
            training.step()
