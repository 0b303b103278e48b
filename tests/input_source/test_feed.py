from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.dataflow import DataFromGenerator, MapData
from tpk.errors import ConfigError
from tpk.input_source import FeedInput


def test_placeholders_are_named_by_the_signature(drive, specs):
    training = drive(FeedInput([[1, 2]]), specs("image", "label"), towers=2)
    assert [[tensor.op.name for tensor in tower] for tower in training.towers] == [
        ["image", "label"],
        ["image_1", "label_1"],
    ]
    assert training.towers[0][0].shape == []


def test_an_array_of_the_right_kind_is_fed_without_a_copy(drive):
    array = np.zeros((2, 3), np.float32)
    with drive(FeedInput([[array]]), [tf.TensorSpec([None, 3], tf.float32, "x")]) as training:
        request = training.callbacks[0].before_run(None)
        (fed,) = request.feed_dict.take()
    assert fed is array
    assert request.fetches is None


def test_what_cannot_be_iterated_is_refused():
    with pytest.raises(ConfigError, match="FeedInput takes an iterable"):
        FeedInput(3)


def test_a_tensorflow_dataset_gets_the_name_of_its_own_source():
    with pytest.raises(ConfigError, match=r"a tf\.data\.Dataset cannot be iterated.*TFDatasetInput"):
        FeedInput(tf.data.Dataset.range(3))


@pytest.mark.parametrize(
    ("flow", "is_told"),
    [
        (DataFromGenerator(lambda: iter([[1], [2]])), True),
        (MapData(DataFromGenerator(lambda: iter([[1], [2]])), list), False),
        ([[1], [2]], False),
    ],
    ids=["generator", "work in a map", "list"],
)
def test_data_that_each_process_makes_as_a_whole_is_told_of(flow, is_told, caplog):
    with caplog.at_level("INFO", "tpk"):
        FeedInput(flow).shard(1, 2)
    told = "FeedInput: DataFromGenerator cannot be divided, so each of the 2 processes makes all" in caplog.text
    assert told == is_told
