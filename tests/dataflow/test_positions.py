"""What holds for every composition of flows: positions, lengths, seeds, shares."""

from __future__ import annotations

import itertools
import json
import zlib
from itertools import islice

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from tpk.dataflow import (
    BatchData,
    BatchDataByShape,
    CacheData,
    ConcatData,
    DataFlow,
    DataFromGenerator,
    DataFromIterable,
    DataFromList,
    FakeData,
    FixedSizeData,
    JoinData,
    LocallyShuffleData,
    MapData,
    MapDataComponent,
    Position,
    PrintData,
    RandomChooseData,
    RandomMixData,
    RepeatedData,
    RepeatedDataPoint,
    RNGDataFlow,
    SelectComponent,
    seed_dataflow,
)
from tpk.dataflow.base import shard
from tpk.errors import ConfigError, InputError

# Every datapoint is a list of one component, so that everything can stand on everything.


class Noise(RNGDataFlow):
    """A flow of a user, with random numbers and without a position."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def __iter__(self):
        rng = self.epoch_rng()
        for _ in range(self.size):
            yield [float(rng.random())]

    def __len__(self):
        return self.size


class Reading(DataFlow):
    """A flow of a user, which keeps the flow that it reads as an attribute, and no position."""

    def __init__(self, ds):
        self.ds = ds

    def __iter__(self):
        yield from self.ds

    def __len__(self):
        return len(self.ds)


class ReadingRandomly(RNGDataFlow):
    """The same, with its own random numbers and without a length."""

    def __init__(self, ds):
        super().__init__()
        self.ds = ds

    def __iter__(self):
        rng = self.epoch_rng()
        for datapoint in self.ds:
            yield [(int(rng.integers(100)), *datapoint)]


class Paired(DataFlow):
    """A flow of a user that reads two flows."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def __iter__(self):
        for pair in zip(self.first, self.second, strict=False):
            yield [pair]


class Loader:
    """Somebody else's loader: it has a position, and knows nothing of tpk."""

    def __init__(self, size):
        self.size, self.next, self.passes, self.is_loaded = size, None, 0, False

    def __iter__(self):
        if not self.is_loaded or self.next is None:
            self.next = 0
            self.passes += 1
        self.is_loaded = False
        while self.next < self.size:
            self.next += 1
            yield [f"pass {self.passes}, {self.next}"]
        self.next = None

    def __len__(self):
        return self.size

    def state_dict(self):
        return {"next": self.next, "passes": self.passes}

    def load_state_dict(self, state):
        self.next, self.passes, self.is_loaded = state["next"], state["passes"], True


def counting(size):
    """A function that yields something else each time it is called."""
    calls = []

    def datapoints():
        calls.append(None)
        for number in range(size):
            yield [f"call {len(calls)}, {number}"]

    return datapoints


def hashed(datapoint):
    return zlib.crc32(repr(datapoint).encode())


def drop_some(datapoint):
    return None if hashed(datapoint) % 3 == 0 else datapoint


def shaped(datapoint):
    return [hashed(datapoint), np.zeros(hashed(datapoint) % 3)]


def plain(datapoint):
    return [[np.asarray(component).tolist() for component in datapoint]]


def tagged(component):
    return ("mapped", component)


def fake(size):
    return MapData(FakeData([(2,), ()], size, dtype=["float32", "uint8"], domain=[(0, 1), (0, 100)]), plain)


def items(size):
    return [[number] for number in range(size)]


def mixed(flows):
    try:
        return RandomMixData(flows)
    except ValueError:  # no length
        return ConcatData(flows)


LEAVES = {
    "list": items,
    "DataFromList": lambda size: DataFromList(items(size)),
    "shuffled": lambda size: DataFromList(items(size), shuffle=True),
    "FakeData": fake,
    "iterable": lambda size: DataFromIterable(items(size)),
    "Loader": Loader,
    "generator": lambda size: DataFromGenerator(counting(size)),
    "Noise": Noise,
}
CHANGED_BY_USE = {
    "generator",
    "Noise",
    "Loader",
    "attribute",
    "attribute, random",
    "attributes",
}  # they do not start anew, or have no position

PROXIES = {
    "BatchData": lambda flow, n: BatchData(flow, n, use_list=True),
    "BatchData with remainder": lambda flow, n: BatchData(flow, n, remainder=True, use_list=True),
    "BatchDataByShape": lambda flow, n: MapData(BatchDataByShape(MapData(flow, shaped), n, 1), plain),
    "by shape with remainder": lambda flow, n: MapData(BatchDataByShape(MapData(flow, shaped), n, 1, True), plain),
    "FixedSizeData": FixedSizeData,
    "FixedSizeData anew": lambda flow, n: FixedSizeData(flow, n, keep_state=False),
    "MapDataComponent": lambda flow, n: MapDataComponent(flow, tagged),
    "dropping": lambda flow, n: MapData(flow, drop_some),
    "RepeatedData": RepeatedData,
    "RepeatedDataPoint": RepeatedDataPoint,
    "LocallyShuffleData": LocallyShuffleData,
    "CacheData": lambda flow, n: CacheData(flow),
    "CacheData shuffled": lambda flow, n: CacheData(flow, shuffle=True),
    "SelectComponent": lambda flow, n: SelectComponent(flow, [0]),
    "PrintData": PrintData,
    "attribute": lambda flow, n: Reading(flow),
    "attribute, random": lambda flow, n: ReadingRandomly(flow),
    "attributes": lambda flow, n: Paired(flow, DataFromList(items(5), shuffle=True)),
}
COMBINATIONS = {
    "ConcatData": ConcatData,
    "JoinData": lambda flows: MapData(JoinData(flows), lambda datapoint: [list(datapoint)]),
    "RandomMixData": mixed,
    "RandomChooseData": RandomChooseData,
}


def build(recipe):
    """Build a flow anew from what `recipes` draws."""
    name, *rest = recipe
    if name in LEAVES:
        return LEAVES[name](*rest)
    if name in PROXIES:
        beneath, number = rest
        return PROXIES[name](build(beneath), number)
    return COMBINATIONS[name]([build(beneath) for beneath in rest[0]])


def names(recipe):
    """All names in a recipe."""
    name, *rest = recipe
    found = {name}
    if name in PROXIES:
        found |= names(rest[0])
    elif name in COMBINATIONS:
        for beneath in rest[0]:
            found |= names(beneath)
    return found


def recipes(leaves=LEAVES, proxies=PROXIES, combinations=COMBINATIONS):
    leaf = st.tuples(st.sampled_from(sorted(leaves)), st.integers(0, 7))

    def extend(beneath):
        proxy = st.tuples(st.sampled_from(sorted(proxies)), beneath, st.integers(1, 4))
        if not combinations:
            return proxy
        combined = st.tuples(st.sampled_from(sorted(combinations)), st.lists(beneath, min_size=1, max_size=3))
        return proxy | combined

    return st.recursive(leaf, extend, max_leaves=4)


def take(flow, count):
    """Deliver `count` datapoints of a pass, None for all, and break it off."""
    return list(islice(iter(flow), count))


def taken_or_discarded(flow, count):
    """The same, but an example whose flows have no data, where there must be some, shows nothing."""
    try:
        return take(flow, count)
    except InputError as error:
        assume("has no datapoint" not in str(error))
        raise


breaks = st.lists(st.none() | st.integers(0, 5), max_size=3)


@settings(max_examples=400)
@given(recipes(), breaks, st.integers(0, 12), st.booleans())
def test_a_flow_goes_on_exactly_where_its_position_was_taken(recipe, breaks, count, between_passes):
    uninterrupted = Position(build(recipe))
    seed_dataflow(uninterrupted.flow, 7)
    for delivered in breaks:
        taken_or_discarded(uninterrupted, delivered)
    rest = []
    if between_passes:
        uninterrupted.break_off()
    else:
        under_way = iter(uninterrupted)
        is_over = len(taken_or_discarded(under_way, count)) < count
    state = json.loads(json.dumps(uninterrupted.state_dict()))
    if not between_passes and not is_over:
        rest = [taken_or_discarded(under_way, None)]
    flow = build(recipe)
    resumed = Position(flow)
    resumed.load_state_dict(state)
    assert json.loads(json.dumps(resumed.state_dict())) == state
    for expected in rest:
        assert take(resumed, None) == expected
    for _ in range(2):
        expected = taken_or_discarded(uninterrupted, None)
        assert take(resumed, None) == expected


@settings(max_examples=150)
@given(recipes(), breaks)
def test_a_position_is_only_looked_at(recipe, breaks):
    looked_at, left_alone = Position(build(recipe)), Position(build(recipe))
    for position in (looked_at, left_alone):
        seed_dataflow(position.flow, 3)
        for delivered in breaks:
            taken_or_discarded(position, delivered)
    for _ in range(2):
        expected = taken_or_discarded(left_alone, None)
        delivered = []
        for datapoint in looked_at:
            assert looked_at.state_dict() == looked_at.state_dict()
            delivered.append(datapoint)
        assert delivered == expected


@settings(max_examples=150)
@given(recipes(), breaks, breaks, st.integers(0, 12))
def test_loading_a_position_leaves_nothing_of_before(recipe, breaks, other_breaks, count):
    assume(not names(recipe) & CHANGED_BY_USE)
    flow, used = Position(build(recipe)), Position(build(recipe))
    seed_dataflow(flow.flow, 5)
    for delivered in breaks:
        taken_or_discarded(flow, delivered)
    for delivered in other_breaks:
        taken_or_discarded(used, delivered)
    under_way = iter(flow)
    is_over = len(taken_or_discarded(under_way, count)) < count
    used.load_state_dict(flow.state_dict())
    if not is_over:
        expected = taken_or_discarded(under_way, None)
        assert take(used, None) == expected
    expected = taken_or_discarded(flow, None)
    assert take(used, None) == expected


def test_a_position_is_small():
    flow = DataFromList([[number] for number in range(10_000)], shuffle=True)
    flow = CacheData(LocallyShuffleData(RepeatedDataPoint(FixedSizeData(flow, 1000, keep_state=False), 3), 500))
    position = Position(BatchDataByShape(flow, 7, 0, remainder=True))
    for count in (None, 3, 1, 4, 1, 5, 9):
        take(position, count)
    state = json.dumps(position.state_dict())
    assert len(state) < 1500
    resumed = Position(BatchDataByShape(flow, 7, 0, remainder=True))
    resumed.load_state_dict(json.loads(state))
    assert len(take(resumed, None)) == 429 - 9


@given(recipes(), st.integers(1, 3))
def test_a_pass_is_as_long_as_the_length_says(recipe, passes):
    assume("dropping" not in names(recipe))
    flow = build(recipe)
    try:
        length = len(flow)
    except TypeError:
        assume(False)
    for _ in range(passes):
        assert len(taken_or_discarded(flow, None)) == length
        assert len(flow) == length


@given(recipes(), st.integers(0, 2**40))
def test_one_seed_gives_one_stream(recipe, seed):
    streams = []
    for _ in range(2):
        flow = build(recipe)
        seed_dataflow(flow, seed)
        streams.append([taken_or_discarded(flow, None) for _ in range(2)])
    assert streams[0] == streams[1]


RANDOM = [
    ("shuffled", 50),
    ("attribute", ("shuffled", 50), 1),
    ("attributes", ("list", 50), 1),
    ("FakeData", 5),
    ("LocallyShuffleData", ("list", 50), 10),
    ("RandomMixData", [("list", 20), ("DataFromList", 20)]),
    ("RandomChooseData", [("list", 40), ("DataFromList", 40)]),
]


@pytest.mark.parametrize("recipe", [*RANDOM, ("CacheData shuffled", ("list", 50), 1)], ids=lambda recipe: recipe[0])
def test_two_seeds_and_two_passes_give_two_streams(recipe):
    def stream(seed):
        flow = build(recipe)
        seed_dataflow(flow, seed)
        return [take(flow, None) for _ in range(3)]

    assert stream(1)[1] != stream(1)[2]
    assert stream(1)[1:] != stream(2)[1:]


IN_ORDER = {"list", "DataFromList", "iterable", "generator"}
EXACTLY_SHARED = {
    "BatchData",
    "BatchData with remainder",
    "MapDataComponent",
    "RepeatedData",
    "RepeatedDataPoint",
    "CacheData",
    "SelectComponent",
    "attribute",
}


def shares_of(recipe, counts):
    shares = []
    for indices in np.ndindex(*counts):
        share = build(recipe)
        seed_dataflow(share, 11)
        for index, count in zip(indices, counts, strict=True):
            share = shard(share, index, count)
        shares.append(share)
    return shares


def check_shares(recipe, counts, passes=2):
    whole, shares = build(recipe), shares_of(recipe, counts)
    seed_dataflow(whole, 11)
    for _ in range(passes):
        expected = sorted(map(repr, whole))
        delivered = [list(share) for share in shares]
        assert sorted(map(repr, itertools.chain(*delivered))) == expected
    return delivered, shares


@settings(max_examples=200)
@given(recipes(IN_ORDER, EXACTLY_SHARED, {"ConcatData", "JoinData"}), st.sampled_from([(2,), (3,), (2, 2)]))
def test_the_shares_together_are_the_flow(recipe, counts):
    delivered, shares = check_shares(recipe, counts)
    for datapoints, share in zip(delivered, shares, strict=True):
        try:
            length = len(share)
        except TypeError:
            continue
        assert len(datapoints) == length


@given(
    recipes(
        {"list", "shuffled", "DataFromList"},
        {"LocallyShuffleData", "MapDataComponent", "CacheData shuffled", "RepeatedData", "RepeatedDataPoint"},
        {"RandomMixData", "ConcatData"},
    ),
    st.sampled_from([(2,), (3,), (2, 2)]),
)
def test_random_shares_have_every_datapoint_once_a_pass(recipe, counts):
    check_shares(recipe, counts)


@given(recipes(), st.integers(2, 3), breaks, st.integers(0, 8))
def test_a_share_has_a_position_too(recipe, count, breaks, index):
    def build_share():
        flow = build(recipe)
        seed_dataflow(flow, 2)
        return Position(shard(flow, index % count, count))

    uninterrupted = build_share()
    for delivered in breaks:
        taken_or_discarded(uninterrupted, delivered)
    uninterrupted.break_off()
    resumed = build_share()
    resumed.load_state_dict(json.loads(json.dumps(uninterrupted.state_dict())))
    for _ in range(2):
        expected = taken_or_discarded(uninterrupted, None)
        assert take(resumed, None) == expected


@pytest.mark.parametrize("flow_size", [6, 7, 12])
@pytest.mark.parametrize("keep_state", [True, False])
def test_shares_of_passes_of_a_fixed_size_are_those_passes(flow_size, keep_state):
    def build_flow():
        return FixedSizeData(DataFromList(items(flow_size)), 4, keep_state)

    whole, shares = build_flow(), [build_flow().shard(index, 2) for index in range(2)]
    assert sum(map(len, shares)) == 4
    for _ in range(5):
        assert sorted(itertools.chain(*shares)) == sorted(whole)


@pytest.mark.parametrize("recipe", RANDOM[1:], ids=lambda recipe: recipe[0])
def test_workers_have_random_numbers_of_their_own(recipe):
    first, second = shares_of(recipe, (2,))

    def turns(share):
        # Which datapoints each has must not show, only their order.
        delivered = [datapoint[0] for datapoint in share]
        return [value // 2 for value in delivered] if isinstance(delivered[0], int) else delivered

    assert turns(first) != turns(second)


def test_workers_do_not_repeat_each_other_where_a_random_flow_reads_another():
    recipe = ("attribute, random", ("DataFromList", 10), 1)
    delivered = [number for share in shares_of(recipe, (3,)) for [(_, number)] in share]
    assert sorted(delivered) == list(range(10))


def test_there_are_only_so_many_shares():
    for recipe in [*LEAVES, *COMBINATIONS]:
        recipe = (recipe, 3) if recipe in LEAVES else (recipe, [("list", 3)])
        with pytest.raises(ConfigError, match="the index of a share must be from 0 to 1, not 2"):
            shard(build(recipe), 2, 2)


def test_random_numbers_without_an_end_are_not_divided_but_made_by_each_worker():
    class Endless(Noise):
        __len__ = None

        def __iter__(self):
            rng = self.epoch_rng()
            while True:
                yield [float(rng.random())]

    flow = BatchData(Endless(None), 2, use_list=True)
    first, second = (next(iter(shard(flow, index, 2))) for index in range(2))
    assert set(first[0]).isdisjoint(second[0])
