"""Loaders of other libraries as dataflows, each the real one."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest

from tpk.dataflow import BatchData, MapData
from tpk.dataflow.base import SequenceDataFlow, shard
from tpk.dataflow.foreign import with_position
from tpk.dataflow.position import Position

# torchdata calls what newer versions of torch warn of.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

COUNT = 12


def torch_dataset():
    torch = pytest.importorskip("torch")
    images = torch.arange(COUNT, dtype=torch.float32)[:, None].repeat(1, 3)
    return torch.utils.data.TensorDataset(images, torch.arange(COUNT))


def torch_loader(**options):
    torch = pytest.importorskip("torch")
    return torch.utils.data.DataLoader(torch_dataset(), batch_size=None, **options)


def torch_stateful_loader(**options):
    module = pytest.importorskip("torchdata.stateful_dataloader")
    return module.StatefulDataLoader(torch_dataset(), batch_size=None, **options)


def torch_shuffling_loader():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch_stateful_loader(shuffle=True)


def grain_dataset():
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.range(COUNT).shuffle(seed=0)
    return dataset.map(lambda number: (np.full(3, number, np.float32), number)).to_iter_dataset()


def grain_loader():
    grain = pytest.importorskip("grain.python")
    sampler = grain.IndexSampler(COUNT, shuffle=True, seed=0, num_epochs=1)
    source = [(np.full(3, number, np.float32), number) for number in range(COUNT)]
    return grain.DataLoader(data_source=source, sampler=sampler)


def hugging_face_dataset():
    datasets = pytest.importorskip("datasets")
    columns = {"image": [[float(number)] * 3 for number in range(COUNT)], "label": list(range(COUNT))}
    return datasets.Dataset.from_dict(columns).with_format("numpy")


def hugging_face_stream():
    return hugging_face_dataset().to_iterable_dataset(num_shards=2)


def hugging_face_shuffled_stream():
    return hugging_face_stream().shuffle(seed=0, buffer_size=4)


def tf_dataset():
    tf = pytest.importorskip("tensorflow")
    numbers = tf.data.Dataset.range(COUNT)
    return numbers.map(lambda number: (tf.fill([3], tf.cast(number, tf.float32)), number)).shuffle(
        COUNT, seed=0, reshuffle_each_iteration=False
    )


def generator():
    from tpk.dataflow import DataFromGenerator

    return DataFromGenerator(lambda: ((np.full(3, number, np.float32), number) for number in range(COUNT)))


LOADERS = [
    torch_loader,
    torch_stateful_loader,
    torch_shuffling_loader,
    grain_dataset,
    grain_loader,
    hugging_face_dataset,
    hugging_face_stream,
    hugging_face_shuffled_stream,
    tf_dataset,
    generator,
]


@pytest.fixture(params=LOADERS, ids=lambda make: make.__name__)
def make(request):
    return request.param


def components(datapoint):
    return list(datapoint.values()) if isinstance(datapoint, dict) else list(datapoint)


def labels(datapoints):
    return [int(components(datapoint)[1]) for datapoint in datapoints]


def test_batches_of_it(make):
    """Tensors of torch and TensorFlow are taken as arrays."""
    batches = [components(batch) for batch in BatchData(make(), 5, remainder=True)]
    assert [len(labels) for _, labels in batches] == [5, 5, 2]
    assert sorted(int(label) for _, labels in batches for label in labels) == list(range(COUNT))
    for images, of_batch in batches:
        assert type(images) is type(of_batch) is np.ndarray
        assert images.dtype == np.float32
        np.testing.assert_array_equal(images, np.repeat(of_batch[:, None], 3, axis=1))


def test_workers_of_torch():
    loader = torch_loader(num_workers=1, multiprocessing_context="spawn")
    (batch,) = BatchData(loader, COUNT)
    np.testing.assert_array_equal(batch[1], np.arange(COUNT))


def test_mapped(make):
    flow = MapData(make(), lambda datapoint: [components(datapoint)[1] * 2])
    assert sorted(int(doubled) for (doubled,) in flow) == list(range(0, 2 * COUNT, 2))


def test_the_shares_of_workers(make):
    # Of shuffling loaders that draw anew, each worker must be given one of the same order.
    shares = [labels(shard(make(), index, 3)) for index in range(3)]
    assert [len(share) for share in shares] == [4, 4, 4]
    assert sorted(label for share in shares for label in share) == list(range(COUNT))


@pytest.mark.parametrize("passes", [0, 1])
@pytest.mark.parametrize("taken", [0, 1, 5, COUNT])
def test_a_resumed_pass_goes_on_where_it_stood(make, passes, taken):
    position = Position(make())
    for _ in range(passes):
        assert sorted(labels(position)) == list(range(COUNT))
    iterator = iter(position)
    labels(islice(iterator, taken))
    state = json.loads(json.dumps(position.state_dict()))
    rest = labels(iterator)
    resumed = Position(make())
    resumed.load_state_dict(state)
    assert labels(resumed) == rest
    # The pass after that is a whole one, the same that the run would have seen.
    assert labels(resumed) == labels(position)
    assert sorted(labels(resumed)) == list(range(COUNT))


def test_a_position_between_two_passes(make):
    position = Position(make())
    labels(position)
    state = json.loads(json.dumps(position.state_dict()))
    resumed = Position(make())
    resumed.load_state_dict(state)
    for _ in range(2):
        following = labels(resumed)
        assert following == labels(position)
        assert sorted(following) == list(range(COUNT))


def test_what_has_a_position_or_none_is_left_alone():
    for flow in ([1, 2], BatchData([[1]], 1), iter([1])):
        assert with_position(flow) is flow


@pytest.mark.parametrize("make", [torch_dataset, hugging_face_dataset])
def test_the_share_of_a_data_set_is_had_by_index(make):
    dataset = make()
    share = shard(dataset, 1, 3)
    assert isinstance(share, SequenceDataFlow)
    assert labels(share) == labels(dataset)[1::3]
