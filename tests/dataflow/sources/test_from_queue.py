from __future__ import annotations

import logging
import queue

import pytest

from tpk.dataflow import BatchData, DataFromQueue, Position
from tpk.errors import ConfigError, InputError


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
    logger = logging.getLogger("tpk.dataflow.sources.from_queue")
    logger.addHandler(handler)
    try:
        assert list(DataFromQueue(Late(), warn_after=5)) == []
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
    with pytest.raises(ConfigError, match="DataFromQueue: warn_after must be positive"):
        DataFromQueue(queue.Queue(), warn_after=-1)
