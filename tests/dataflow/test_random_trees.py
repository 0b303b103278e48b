"""Random trees of flows, compared with an oracle that makes each pass as a list."""

from __future__ import annotations

import itertools
import json
import sys
from itertools import islice

import cloudpickle
from hypothesis import assume, given, settings, strategies as st

from tpk.dataflow import (
    BatchData,
    CacheData,
    ConcatData,
    DataFlow,
    DataFromGenerator,
    DataFromList,
    FixedSizeData,
    JoinData,
    LocallyShuffleData,
    MapData,
    MultiProcessRunner,
    MultiThreadRunner,
    Position,
    ProxyDataFlow,
    RepeatedData,
    RepeatedDataPoint,
    StatefulDataFlow,
    seed_dataflow,
)
from tpk.dataflow.base import shard

# Worker processes cannot import a module of tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Empty(Exception):
    """Raised by the oracle where a flow raises an `InputError`, because it would repeat a pass without datapoints."""


class Counting(StatefulDataFlow):
    """A user's source with a position."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        for number in range(self.begin() or 0, self.size):
            self.place = number + 1
            yield [number]
        self.place = None


class Reading(DataFlow):
    """A user's flow that reads an attribute, and has no position and no length."""

    def __init__(self, ds):
        self.ds = ds

    def __iter__(self):
        yield from self.ds


class Negated(ProxyDataFlow):
    """A user's proxy without a position."""

    def __iter__(self):
        for datapoint in self.flow:
            yield ["negated", *datapoint]


def items(size):
    return [[number] for number in range(size)]


def drops(datapoint):
    return sum(map(ord, repr(datapoint))) % 3 == 0


def tagged(datapoint):
    return ["tagged", *datapoint]


def joined(datapoints):
    return [component for datapoint in datapoints for component in datapoint]


SOURCES = {
    "list": items,
    "DataFromList": lambda size: DataFromList(items(size)),
    "generator": lambda size: DataFromGenerator(lambda: iter(items(size))),
    "a user's source": Counting,
}
SHUFFLED_SOURCES = {"DataFromList, shuffled": lambda size: DataFromList(items(size), shuffle=True)}
MAPS = {
    "MapData": lambda flow, n: MapData(flow, tagged),
    "MapData that drops": lambda flow, n: MapData(flow, lambda datapoint: None if drops(datapoint) else datapoint),
    "RepeatedData": RepeatedData,
    "RepeatedDataPoint": RepeatedDataPoint,
    "CacheData": lambda flow, n: CacheData(flow),
    "a user's flow": lambda flow, n: Reading(flow),
    "a user's proxy": lambda flow, n: Negated(flow),
}
SHUFFLES = {
    "LocallyShuffleData": LocallyShuffleData,
    "CacheData, shuffled": lambda flow, n: CacheData(flow, shuffle=True),
}
BATCHES = {
    "BatchData": lambda flow, n: BatchData(flow, n, use_list=True),
    "BatchData with remainder": lambda flow, n: BatchData(flow, n, remainder=True, use_list=True),
}
SIZES = {
    "FixedSizeData": FixedSizeData,
    "FixedSizeData, endless beneath": lambda flow, n: FixedSizeData(RepeatedData(flow, -1), n),
}
# These leave a pass beneath in the middle, so the passes beneath must be the same each time.
LEAVING = {"FixedSizeData, anew": lambda flow, n: FixedSizeData(flow, n, keep_state=False)}
COMBINATIONS = {"ConcatData": ConcatData}
LEAVING_COMBINATIONS = {"JoinData": JoinData}
ALL_SOURCES = SOURCES | SHUFFLED_SOURCES
ALL_PROXIES = MAPS | SHUFFLES | BATCHES | SIZES | LEAVING


def build(tree):
    """Return the flow of a tree."""
    name, *rest = tree
    if name in ALL_SOURCES:
        return ALL_SOURCES[name](*rest)
    if name in ALL_PROXIES:
        beneath, number = rest
        return ALL_PROXIES[name](build(beneath), number)
    return (COMBINATIONS | LEAVING_COMBINATIONS)[name](map(build, rest[0]))


def passes(tree):
    """Yield each pass over the flow of a tree, as a list, without any flow."""
    name, *rest = tree
    if name in ALL_SOURCES:
        while True:
            yield items(*rest)
    if name == "ConcatData":
        yield from map(joined, zip(*map(passes, rest[0]), strict=True))
    if name == "JoinData":
        flows = list(map(passes, rest[0]))
        while True:
            together = []
            for flow in flows:
                together.append(next(flow))
                if not together[-1]:
                    break  # the flows after it do not begin
            yield list(map(joined, zip(*together, strict=False)))
    beneath, number = passes(rest[0]), rest[1]
    held = []
    while True:
        if name.startswith("FixedSizeData"):
            if name == "FixedSizeData, anew":
                held = []
            while len(held) < number:
                held = held + a_pass_with_datapoints(beneath)
            yield held[:number]
            held = held[number:]
        elif name == "RepeatedData":
            repetitions = [next(beneath)]
            while len(repetitions) < number:
                repetitions.append(a_pass_with_datapoints(beneath) if repetitions[-1] else next(beneath))
            yield joined(repetitions)
        elif name.startswith("CacheData"):
            held = held or [next(beneath)]
            yield held[0]
        else:
            yield mapped(name, number, next(beneath))


def a_pass_with_datapoints(beneath):
    datapoints = next(beneath)
    if not datapoints:
        raise Empty
    return datapoints


def mapped(name, number, datapoints):
    """Return the pass of a flow that keeps nothing from pass to pass, from the pass beneath it."""
    if name == "MapData":
        return list(map(tagged, datapoints))
    if name == "MapData that drops":
        return [datapoint for datapoint in datapoints if not drops(datapoint)]
    if name == "a user's proxy":
        return [["negated", *datapoint] for datapoint in datapoints]
    if name == "RepeatedDataPoint":
        return [datapoint for datapoint in datapoints for _ in range(number)]
    if name.startswith("BatchData"):
        batches = [datapoints[start : start + number] for start in range(0, len(datapoints), number)]
        if batches and len(batches[-1]) < number and name == "BatchData":
            batches.pop()
        return [list(map(list, zip(*batch, strict=True))) for batch in batches]
    return datapoints


def names(tree):
    """Return all names in a tree."""
    name, *rest = tree
    if name in ALL_SOURCES:
        return {name}
    return {name}.union(*map(names, [rest[0]] if name in ALL_PROXIES else rest[0]))


def trees(sources, proxies, combinations, leaving=None, depth=4):
    """Draw trees of at most `depth` flows on top of each other, with the `leaving` flows if there are any."""
    source = st.tuples(st.sampled_from(sorted(sources)), st.integers(0, 7))
    if depth == 1:
        return source
    beneath = trees(sources, proxies, combinations, leaving, depth - 1)
    number = st.integers(1, 4)
    flows = st.lists(beneath, min_size=1, max_size=3)
    drawn = [
        source,
        st.tuples(st.sampled_from(sorted(proxies)), beneath, number),
        st.tuples(st.sampled_from(sorted(combinations)), flows),
    ]
    if leaving is not None:
        same = beneath.filter(lambda tree: names(tree).isdisjoint(SIZES | {"CacheData": 0}))
        drawn.append(st.tuples(st.sampled_from(sorted(LEAVING)), same, number))
        drawn.append(st.tuples(st.sampled_from(sorted(LEAVING_COMBINATIONS)), st.lists(same, min_size=1, max_size=2)))
    return st.one_of(drawn)


def batches_fit(tree):
    """Whether each batch has datapoints of the same length."""
    try:
        list(islice(passes(tree), 3))
    except ValueError:
        return False
    except Empty:
        pass
    return True


def a_part_of(drawn):
    """Draw trees that deliver a part of another tree, which is often as long as the shares need it."""
    return st.tuples(st.just("FixedSizeData"), drawn, st.sampled_from([2, 4, 6]))


IN_ORDER = trees(SOURCES, MAPS | BATCHES | SIZES, COMBINATIONS, LEAVING).filter(batches_fit)
IN_ANY_ORDER = trees(SOURCES | SHUFFLED_SOURCES, MAPS | SHUFFLES, COMBINATIONS)


def drops_beneath_batches(tree):
    """Whether a tree makes batches of what a map leaves over, which depend on the number of shares."""
    name, *rest = tree
    if name in ALL_SOURCES:
        return False
    if name in BATCHES and "MapData that drops" in names(rest[0]):
        return True
    return any(map(drops_beneath_batches, [rest[0]] if name in ALL_PROXIES else rest[0]))


def expected_passes(tree, count):
    """Return the first passes according to the oracle, fewer if the flow fails in the next one."""
    expected, oracle = [], passes(tree)
    for _ in range(count):
        try:
            expected.append(next(oracle))
        except Empty:
            break
    return expected


def in_any_order(datapoints):
    return sorted(map(repr, datapoints))


COUNTS = [(2,), (3,), (2, 2)]


@settings(max_examples=400)
@given(IN_ORDER)
def test_each_pass_has_the_datapoints_in_order(tree):
    flow = build(tree)
    for datapoints in expected_passes(tree, 3):
        assert list(flow) == datapoints


@given(IN_ANY_ORDER)
def test_each_shuffled_pass_has_the_same_datapoints(tree):
    flow = build(tree)
    for datapoints in expected_passes(tree, 3):
        assert in_any_order(flow) == in_any_order(datapoints)


@given(IN_ORDER)
def test_the_length_is_that_of_each_pass(tree):
    assume("MapData that drops" not in names(tree))
    try:
        length = len(build(tree))
    except TypeError:
        assume(False)
    for datapoints in expected_passes(tree, 2):
        assert length == len(datapoints)


@settings(max_examples=400)
@given(IN_ORDER | a_part_of(IN_ORDER), st.sampled_from(COUNTS))
def test_the_shares_together_are_the_flow(tree, counts):
    assume(not drops_beneath_batches(tree))
    shares = shares_of(tree, counts)
    for datapoints in expected_passes(tree, 2):
        assert in_any_order(itertools.chain(*shares)) == in_any_order(datapoints)


@given(IN_ANY_ORDER, st.sampled_from(COUNTS))
def test_the_shuffled_shares_together_are_the_flow(tree, counts):
    shares = shares_of(tree, counts)
    for datapoints in expected_passes(tree, 2):
        assert in_any_order(itertools.chain(*shares)) == in_any_order(datapoints)


def shares_of(tree, counts):
    """Return all shares of shares of a flow, each of a flow of its own, as in workers."""
    shares = []
    for indices in itertools.product(*map(range, counts)):
        share = build(tree)
        seed_dataflow(share, 1)
        for index, count in zip(indices, counts, strict=True):
            share = shard(share, index, count)
        shares.append(share)
    return shares


@settings(max_examples=400)
@given(IN_ORDER, st.integers(0, 2), st.integers(0, 12))
def test_a_resumed_flow_continues_exactly(tree, before, count):
    expected = expected_passes(tree, before + 3)
    assume(len(expected) > before)
    position = Position(build(tree))
    for _ in range(before):
        list(position)
    count = min(count, len(expected[before]))
    assert list(islice(position, count)) == expected[before][:count]
    resumed = Position(build(tree))
    resumed.load_state_dict(json.loads(json.dumps(position.state_dict())))
    assert list(resumed) == expected[before][count:]
    for datapoints in expected[before + 1 :]:
        assert list(resumed) == datapoints


def check_workers(tree, run, before, count):
    """Compare a flow in workers with the oracle, and one that resumes with one that was never interrupted."""
    expected = expected_passes(tree, before + 2)
    assume(len(expected) == before + 2)
    uninterrupted, resumed = Position(run()), Position(run())
    try:
        for datapoints in expected[:before]:
            assert in_any_order(uninterrupted) == in_any_order(datapoints)
        under_way = iter(uninterrupted)
        delivered = list(islice(under_way, min(count, len(expected[before]))))
        state = json.loads(json.dumps(uninterrupted.state_dict()))
        rest = list(under_way)
        assert in_any_order(delivered + rest) == in_any_order(expected[before])
        resumed.load_state_dict(state)
        assert list(resumed) == rest
        assert list(resumed) == list(uninterrupted)
    finally:
        uninterrupted.flow.close()
        resumed.flow.close()


@settings(max_examples=40)
@given(IN_ORDER, st.integers(0, 1), st.integers(0, 12))
def test_threads_deliver_the_flow(tree, before, count):
    assume(not drops_beneath_batches(tree))
    check_workers(tree, lambda: MultiThreadRunner(lambda: build(tree), 2), before, count)


@settings(max_examples=4)
@given(IN_ORDER, st.integers(0, 1), st.integers(0, 12))
def test_worker_processes_deliver_the_flow(tree, before, count):
    assume(not drops_beneath_batches(tree))
    check_workers(tree, lambda: MultiProcessRunner(build(tree), 2), before, count)
