"""Runners of whole flows: what they deliver, in which order, and where a resumed one goes on."""

from __future__ import annotations

import json
import os
import random
import threading
from itertools import islice

import numpy as np
import pytest

from tpk.dataflow import (
    BatchData,
    DataFromGenerator,
    DataFromList,
    MapData,
    MultiProcessRunner,
    MultiThreadRunner,
    RNGDataFlow,
    seed_dataflow,
)
from tpk.dataflow.base import close_dataflow
from tpk.errors import ConfigError, InputError

WORDS = ["one", "two", "three", "four", "five"]


def words():
    """A flow that knows nothing of positions."""
    return DataFromGenerator(lambda: iter(["one", "two", "three", "four", "five"]))


def shuffled():
    return MapData(DataFromList(list(range(23)), shuffle=True, seed=1), lambda number: [np.full([3], number), number])


def processes(flow, number=2, **options):
    return MultiProcessRunner(flow, number, **options)


def threads(flow, number=2, **options):
    return MultiThreadRunner(lambda: words() if isinstance(flow, DataFromGenerator) else shuffled(), number, **options)


RUNNERS = pytest.mark.parametrize("runner", [processes, threads])


def numbers(datapoints):
    return [int(datapoint[1]) for datapoint in datapoints]


def endless(flow):
    while True:
        yield from flow


@RUNNERS
def test_each_datapoint_comes_once_a_pass(runner):
    flow = runner(shuffled())
    assert len(flow) == 23
    passes = [numbers(flow) for _ in range(3)]
    assert all(sorted(each) == list(range(23)) for each in passes)
    assert passes[0] != passes[1] != passes[2]
    close_dataflow(flow)


@RUNNERS
@pytest.mark.parametrize("delivered", [0, 1, 20, 23, 24, 50])
def test_a_resumed_run_goes_on_where_it_was(runner, delivered):
    flow = runner(shuffled())
    stream = endless(flow)
    numbers(islice(stream, delivered))
    state = json.loads(json.dumps(flow.state_dict()))
    expected = numbers(islice(stream, 40))
    close_dataflow(flow)

    resumed = runner(shuffled())
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert numbers(islice(endless(resumed), 40)) == expected
    close_dataflow(resumed)


@RUNNERS
def test_a_flow_without_a_position_is_replayed_by_its_workers(runner, caplog):
    flow = runner(words())
    stream = endless(flow)
    first = [next(stream) for _ in range(7)]
    state = flow.state_dict()
    rest = [next(stream) for _ in range(8)]
    assert sorted(first[:5]) == sorted(rest[3:]) == sorted(WORDS)
    close_dataflow(flow)

    resumed = runner(words())
    resumed.load_state_dict(state)
    with caplog.at_level("INFO", "tpk"):
        assert list(islice(endless(resumed), 8)) == rest
    assert "replayed" in caplog.text
    close_dataflow(resumed)


@RUNNERS
def test_a_pass_that_is_given_up_is_followed_by_the_next_one(runner):
    flow, reference = runner(shuffled()), runner(shuffled())
    numbers(islice(flow, 5))
    second_pass = numbers(flow)
    assert numbers(reference) != second_pass
    assert numbers(reference) == second_pass

    numbers(islice(flow, 3))
    state = flow.state_dict()
    rest_of_third = numbers(reference)[3:]
    close_dataflow(flow)
    resumed = runner(shuffled())
    resumed.load_state_dict(state)
    assert numbers(resumed) == rest_of_third
    close_dataflow(reference)
    close_dataflow(resumed)


@RUNNERS
def test_the_position_of_other_workers_is_refused(runner):
    flow = runner(shuffled(), 3)
    with pytest.raises(InputError, match=r"is of 2 workers, but this Multi.*Runner has 3.*Resume with 2 workers"):
        flow.load_state_dict(runner(shuffled(), 2).state_dict())


def test_shares_of_a_runner_divide_its_datapoints():
    shares = [MultiProcessRunner(shuffled(), 2).shard(index, 2) for index in range(2)]
    delivered = [numbers(share) for share in shares]
    assert sorted(delivered[0] + delivered[1]) == list(range(23))
    for share in shares:
        close_dataflow(share)


@RUNNERS
def test_what_is_delivered_and_in_which_order_is_what_the_flow_delivers(runner):
    flow, reference = runner(shuffled()), shuffled()
    assert [numbers(flow), numbers(flow)] == [numbers(reference), numbers(reference)]
    close_dataflow(flow)


def test_batches_are_those_that_one_worker_would_make():
    batches = BatchData(DataFromList([[np.int64(n)] for n in range(11)]), 2, remainder=True)
    flow = MultiProcessRunner(batches, 3)
    assert [batch[0].tolist() for batch in flow] == [batch[0].tolist() for batch in batches]
    close_dataflow(flow)


def test_endless_random_flows_make_other_numbers_in_each_worker_and_the_same_in_each_run():
    class Noise(RNGDataFlow):
        def __iter__(self):
            rng = self.epoch_rng()
            while True:
                yield [rng.standard_normal(2)]

    def first(count):
        flow = MultiProcessRunner(Noise(seed=5), 2)
        return [tuple(datapoint[0]) for datapoint in islice(flow, count)]

    delivered = first(20)
    assert len(set(delivered)) == 20
    assert delivered == first(20)


def test_the_global_random_numbers_of_workers_differ_and_are_the_same_in_each_run():
    def draw(seed):
        flow = MultiProcessRunner(MapData(DataFromList(range(8)), lambda _: [random.random(), np.random.rand()]), 2)
        seed_dataflow(flow, seed)
        return [tuple(datapoint) for datapoint in flow]

    drawn = draw(seed=3)
    assert len(set(drawn)) == 8
    assert drawn == draw(seed=3) != draw(seed=4)


@pytest.mark.parametrize("delivered", [5, 16, 37, 40])
def test_the_global_random_numbers_of_workers_go_on_where_they_were(delivered):
    def noisy():
        flow = MapData(DataFromList(list(range(23))), lambda _: [np.random.rand(), random.random()])
        return MultiProcessRunner(flow, 2, seed=1)

    flow = noisy()
    stream = endless(flow)
    list(islice(stream, delivered))
    state = json.loads(json.dumps(flow.state_dict()))
    expected = list(islice(stream, 20))
    close_dataflow(flow)

    resumed = noisy()
    resumed.load_state_dict(state)
    assert list(islice(endless(resumed), 20)) == expected
    close_dataflow(resumed)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_has_workers_of_its_own():
    flow = processes(shuffled())
    stream = iter(flow)
    first = numbers(islice(stream, 3))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps(sorted(numbers(flow))).encode())
        close_dataflow(flow)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert json.loads(pipe.read()) == list(range(23))
    os.waitpid(child, 0)
    assert sorted(first + numbers(stream)) == list(range(23))
    close_dataflow(flow)


def test_threads_of_unseeded_flows_shuffle_alike():
    flow = MultiThreadRunner(lambda: DataFromList(list(range(20)), shuffle=True), 4)
    assert sorted(flow) == list(range(20))
    close_dataflow(flow)


def test_a_one_shot_iterator_cannot_go_to_a_worker():
    with pytest.raises(ConfigError, match=r"worker 1 of 1.*cannot be sent to another process.*generator.*reset_state"):
        list(MultiProcessRunner((each for each in [[1]]), 1))


@pytest.mark.parametrize("options", [{"num_proc": 0}, {"num_proc": 1, "num_prefetch": 0}])
def test_what_is_not_positive_is_refused(options):
    with pytest.raises(ConfigError, match=r"MultiProcessRunner: .* must be positive"):
        MultiProcessRunner([[1]], **{"num_proc": 1, **options})


def test_threads_want_a_function_that_makes_flows():
    with pytest.raises(ConfigError, match="a function that returns a flow"):
        MultiThreadRunner([[1]], 2)


def test_an_error_in_a_thread_arrives_as_it_is():
    def broken():
        yield [1]
        raise KeyError("no such file")

    flow = MultiThreadRunner(lambda: DataFromGenerator(broken), 1)
    with pytest.raises(KeyError, match="no such file"):
        list(flow)


def test_a_thread_that_stops_the_iteration_by_force_is_an_error():
    def leaves():
        yield [1]
        raise SystemExit(0)

    with pytest.raises(InputError, match=r"thread 1 of 1 of .*SystemExit\(0\) in leaves, line"):
        list(MultiThreadRunner(lambda: DataFromGenerator(leaves), 1))


def test_a_thread_that_hangs_is_reported_with_its_stack(caplog, when_logged):
    go_on = threading.Event()

    def stuck_in_this_function():
        go_on.wait(60)
        yield ["there"]

    # On a busy machine there may be a warning before the thread has come that far.
    when_logged("stuck_in_this_function", go_on.set)
    flow = MultiThreadRunner(lambda: DataFromGenerator(stuck_in_this_function), 1)
    flow.warn_after = 0.05
    assert list(flow) == [["there"]]
    assert "thread 1 of 1 of MultiThreadRunner has delivered nothing for 0.05 s" in caplog.text
    assert "stuck_in_this_function" in caplog.text
    close_dataflow(flow)


def test_no_thread_is_left():
    before = set(threading.enumerate())
    flow = MultiThreadRunner(shuffled, 3)
    numbers(islice(flow, 4))
    numbers(flow)
    close_dataflow(flow)
    # One of an earlier test may have ended since.
    assert set(threading.enumerate()) <= before


def test_a_flow_that_each_worker_makes_as_a_whole_is_told_of_once(caplog):
    flow = processes(BatchData(DataFromGenerator(lambda: ([number] for number in range(5))), 2, remainder=True))
    assert len(list(flow)) == 3
    next(iter(flow))
    assert len(list(flow)) == 3  # by new workers
    close_dataflow(flow)
    (message,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "MultiProcessRunner: DataFromGenerator cannot be divided, so each of its 2 workers makes all" in message
    assert "MapData" in message


@pytest.mark.parametrize(
    "flow",
    [MapData(words(), len), BatchData([[1], [2], [3]], 1), shuffled()],
    ids=["work in a map", "sequence", "divides"],
)
def test_a_flow_of_which_each_worker_makes_its_share_is_not_told_of(flow, caplog):
    runner = processes(flow)
    list(runner)
    close_dataflow(runner)
    assert "cannot be divided" not in caplog.text


def test_one_worker_divides_nothing(caplog):
    flow = processes(words(), 1)
    list(flow)
    close_dataflow(flow)
    assert "cannot be divided" not in caplog.text


def test_the_workers_of_a_share_divide_it_in_its_order():
    flow = DataFromGenerator(lambda: ([number] for number in range(11)))
    for index in range(2):
        expected = list(flow.shard(index, 2))
        runner = MultiProcessRunner(flow, 2).shard(index, 2)
        assert list(runner) == expected
        close_dataflow(runner)
