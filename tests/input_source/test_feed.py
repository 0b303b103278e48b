from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import ConfigError, InputError
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
    assert list(request.feed_dict.values()) == [array] or next(iter(request.feed_dict.values())) is array
    assert request.fetches is None


def test_what_cannot_be_iterated_is_refused():
    with pytest.raises(ConfigError, match="FeedInput takes an iterable"):
        FeedInput(3)


class Stateful:
    position = 0

    def __iter__(self):
        for position in range(self.position, 5):
            self.position = position + 1
            yield [position]
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def test_the_position_is_that_of_the_flow(drive, specs):
    with drive(FeedInput(Stateful()), specs("number")) as training:
        training.first_components(3)
        state = training.source.state_dict()
    resumed = FeedInput(Stateful())
    resumed.load_state_dict(state)
    with drive(resumed, specs("number")) as training:
        assert training.first_components(4) == [3, 4, 0, 1]


def test_a_flow_without_a_position_takes_none_back():
    source = FeedInput([[1]])
    assert source.state_dict() == {}
    source.load_state_dict({})
    with pytest.raises(InputError, match="keeps no position"):
        source.load_state_dict({"flow": 3})
