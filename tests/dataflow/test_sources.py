from __future__ import annotations

import logging
import queue
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tpk.dataflow import BatchData, DataFromGenerator, DataFromIterable, DataFromList, DataFromQueue, FakeData, Position
from tpk.dataflow.base import reset_state
from tpk.errors import ConfigError, InputError

seeds = st.integers(0, 2**63)


@given(st.lists(st.integers()), seeds)
def test_a_shuffled_list_is_a_permutation_in_each_epoch(items, seed):
    flow = DataFromList(items, shuffle=True, seed=seed)
    for _ in range(3):
        delivered = list(flow)
        assert sorted(delivered) == sorted(items)
        assert len(delivered) == len(flow)


@given(st.lists(st.integers()))
def test_without_shuffling_a_list_is_delivered_as_it_stands(items):
    flow = DataFromList(items)
    assert list(flow) == list(flow) == items


def test_epochs_of_a_shuffled_list_differ_and_the_seed_repeats_them():
    items = list(range(50))
    flow, same = (DataFromList(items, shuffle=True, seed=1) for _ in range(2))
    epochs = [list(flow) for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert epochs == [list(same) for _ in range(3)]


def test_rows_of_an_array_are_datapoints_of_a_list():
    rows = np.arange(6).reshape(3, 2)
    assert np.array_equal(list(DataFromList(rows)), rows)


def test_a_list_must_have_length_and_items():
    with pytest.raises(ConfigError, match="DataFromIterable"):
        DataFromList(iter([1]))


@pytest.mark.parametrize("kind", [DataFromIterable, DataFromGenerator])
def test_an_iterable_is_delivered_anew_each_epoch(kind):
    flow = kind([[1], [2]])
    assert list(flow) == list(flow) == [[1], [2]]
    assert len(flow) == 2


@pytest.mark.parametrize("kind", [DataFromIterable, DataFromGenerator])
def test_a_second_epoch_of_a_one_shot_iterator_is_an_error(kind):
    flow = kind(iter([[1], [2]]))
    assert list(flow) == [[1], [2]]
    with pytest.raises(InputError, match="one-shot iterator"):
        list(flow)


def test_a_generator_function_is_called_for_each_epoch():
    calls = []

    def datapoints():
        calls.append(len(calls))
        yield [calls[-1]]

    flow = DataFromGenerator(datapoints)
    assert [list(flow), list(flow)] == [[[0]], [[1]]]
    with pytest.raises(TypeError):
        len(flow)


def test_a_flow_is_true_whether_or_not_it_knows_how_long_it_is():
    endless, empty = DataFromGenerator(lambda: iter([[1]])), DataFromList([])
    assert (endless or empty) is endless and (empty or endless) is empty


def test_a_generator_flow_needs_a_function_or_an_iterable():
    with pytest.raises(ConfigError, match="DataFromGenerator takes"):
        DataFromGenerator(3)


def test_an_iterable_flow_needs_an_iterable():
    with pytest.raises(ConfigError, match="DataFromIterable takes"):
        DataFromIterable(3)


@pytest.mark.parametrize("kind", [DataFromIterable, DataFromGenerator])
def test_a_flow_within_is_made_ready(kind):
    ready = []

    class Source(DataFromList):
        def reset_state(self):
            ready.append("ready")

    reset_state(kind(Source([[1]])))
    assert ready == ["ready"]


def test_a_resumed_list_does_not_touch_what_was_delivered():
    class Items(list):
        def __getitem__(self, index):
            touched.append(index)
            return super().__getitem__(index)

    touched = []
    position = Position(DataFromList(Items(range(6))))
    list(islice(position, 4))
    resumed = Position(DataFromList(Items(range(6))))
    resumed.load_state_dict(position.state_dict())
    touched.clear()
    assert list(resumed) == [4, 5]
    assert touched == [4, 5]


def test_what_has_no_position_is_replayed_with_a_word_about_it(caplog):
    calls = []

    def datapoints():
        calls.append(None)
        yield from ([len(calls), number] for number in range(5))

    position = Position(DataFromGenerator(datapoints))
    list(position)
    list(islice(position, 2))
    list(islice(position, 3))
    state = position.state_dict()
    calls.clear()
    resumed = Position(DataFromGenerator(datapoints))
    resumed.load_state_dict(state)
    with caplog.at_level("INFO"):
        assert list(resumed) == [[3, 3], [3, 4]]
    assert "DataFromGenerator keeps no position: replayed 10 of its datapoints (3 passes)" in caplog.text


def test_a_flow_that_has_become_shorter_cannot_be_resumed():
    position = Position(DataFromIterable({1: 1, 2: 2, 3: 3}))
    list(islice(position, 3))
    resumed = Position(DataFromIterable({1: 1, 2: 2}))
    resumed.load_state_dict(position.state_dict())
    with pytest.raises(InputError, match=r"cannot continue after 3 datapoints of pass 1: .* it ended after 2"):
        list(resumed)


def filled(*items):
    made = queue.Queue()
    for item in items:
        made.put(item)
    return made


def test_a_none_ends_a_pass_and_the_next_goes_on_behind_it():
    flow = DataFromQueue(filled([1], [2], None, [3], None), timeout=10)
    assert list(flow) == [[1], [2]]
    assert list(flow) == [[3]]


def test_what_does_not_come_is_an_error_that_says_which():
    flow = DataFromQueue(filled([1], [2]), timeout=0.01)
    with pytest.raises(InputError, match=r"datapoint 2 did not come within 0.01 seconds"):
        list(flow)


def test_a_warning_says_that_it_waits():
    class Late:
        waits = 0

        def get(self, block=True, timeout=None):
            assert timeout == 5
            self.waits += 1
            if self.waits < 3:
                raise queue.Empty
            return None

    class Log(logging.Handler):
        messages: list[str] = []

        def emit(self, record):
            self.messages.append(record.getMessage())

    handler = Log()
    logger = logging.getLogger("tpk.dataflow.sources")
    logger.addHandler(handler)
    flow = DataFromQueue(Late())
    flow.warn_after = 5
    try:
        assert list(flow) == []
    finally:
        logger.removeHandler(handler)
    assert [message[:40] for message in handler.messages] == [
        "DataFromQueue has waited 5 seconds for d",
        "DataFromQueue has waited 10 seconds for ",
    ]


@pytest.mark.skipif(not hasattr(queue, "ShutDown"), reason="queues are shut down from Python 3.13 on")
def test_shutting_the_queue_down_ends_the_pass():
    made = filled([1])
    made.shutdown()
    assert list(DataFromQueue(made, timeout=10)) == [[1]]


def test_a_resumed_run_takes_what_is_there():
    position = Position(BatchData(DataFromQueue(filled([1], [2], [3], [4], None), timeout=10), 2, use_list=True))
    next(iter(position))
    resumed = Position(BatchData(DataFromQueue(filled([5], [6], None), timeout=10), 2, use_list=True))
    resumed.load_state_dict(position.state_dict())
    assert list(resumed) == [[[5, 6]]]


def test_workers_share_one_queue():
    flow = DataFromQueue(filled([1], [2], None, [3], None), timeout=10)
    first, second = (flow.shard(index, 2) for index in range(2))
    assert [list(first), list(second)] == [[[1], [2]], [[3]]]


def test_what_is_no_queue_or_time_is_refused():
    with pytest.raises(ConfigError, match="DataFromQueue: queue must have get"):
        DataFromQueue([1])
    with pytest.raises(ConfigError, match="DataFromQueue: timeout must be positive"):
        DataFromQueue(queue.Queue(), timeout=0)


def test_arrays_have_the_shapes_dtypes_and_domains():
    flow = FakeData(
        [(3, 4), (), (100,), (2,), (5,)],
        20,
        dtype=["float32", "int64", "uint8", "float16", bool],
        domain=[(-2, 2), (0, 3), (0, 256), (1, 2), (0, 1)],
    )
    datapoints = list(flow)
    assert len(datapoints) == len(flow) == 20
    stacked = [np.stack(component) for component in zip(*datapoints, strict=True)]
    assert [array.shape[1:] for array in stacked] == [(3, 4), (), (100,), (2,), (5,)]
    assert [array.dtype for array in stacked] == [np.float32, np.int64, np.uint8, np.float16, np.bool_]
    assert -2 <= stacked[0].min() < -1.5 < 1.5 < stacked[0].max() < 2
    assert set(stacked[1].tolist()) == {0, 1, 2}
    assert stacked[2].min() < 10 < 245 < stacked[2].max()
    assert 1 <= stacked[3].min() <= stacked[3].max() < 2
    assert set(stacked[4].ravel().tolist()) == {False, True}


@pytest.mark.parametrize(("dtype", "domain"), [("float16", (0, 1)), ("float16", (-1, 0)), ("float32", (1023, 1024))])
def test_no_number_is_rounded_to_the_upper_bound(dtype, domain):
    ((array,),) = FakeData([(100_000,)], 1, dtype=dtype, domain=domain, seed=1)
    assert domain[0] <= array.min() < array.max() < domain[1]


def test_each_datapoint_is_another():
    first, second, *_ = FakeData([(4,)], 5)
    assert not np.array_equal(first[0], second[0])


@pytest.mark.parametrize("random", [True, False])
def test_arrays_are_aligned(random):
    for array, label in FakeData([(3, 5), (7,)], 10, random, dtype=["float32", "int32"]):
        assert array.ctypes.data % 64 == label.ctypes.data % 64 == 0


def test_data_that_is_not_random_is_one_and_the_same():
    flow = FakeData([(4,)], 3, random=False)
    first, second, third = flow
    assert first is second is third


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shapes": [(1,)], "size": -1}, "size must be"),
        ({"shapes": [3]}, "shapes must be one shape for each component"),
        ({"shapes": [(-1,)]}, "shapes must be"),
        ({"shapes": [(1,)], "dtype": "S3"}, "dtype must be boolean"),
        ({"shapes": [(1,)], "dtype": "no"}, "'no' is not a dtype"),
        ({"shapes": [(1,)], "dtype": ["int32", "int32"]}, "dtype has 2 values for 1 shapes"),
        ({"shapes": [(1,)], "domain": (1, 1)}, "domain must be a pair"),
        ({"shapes": [(1,)], "domain": [(0, 1), (0, 1)]}, "domain has 2 values for 1 shapes"),
        ({"shapes": [(1,)], "domain": (0, 257), "dtype": "uint8"}, r"domain \(0, 257\) does not fit into uint8"),
    ],
)
def test_what_cannot_be_made_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=f"FakeData: .*{message}"):
        FakeData(**arguments)
