from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.errors import InputError
from tpk.input_source import FeedInput, remap_input_source


def test_some_inputs_come_from_the_source_and_others_are_placeholders(drive, specs):
    source = remap_input_source(FeedInput([[1, 2], [3, 4]]), ["label", "image"])
    training = drive(source, specs("image", "mask", "label"))
    ((image, mask, label),) = training.towers
    assert mask.op.type == "Placeholder"
    with training:
        feeds = training.callbacks[0].before_run(None).feed_dict
        assert training.sess.run([image, mask, label], {**dict(feeds.items()), mask: 9}) == [2, 9, 1]
        source.reset_state()
        assert training.sess.run(label, dict(feeds.items())) == 1
    assert source.size == 2


def test_a_name_that_the_signature_has_not_is_refused(drive, specs):
    with pytest.raises(InputError, match=r"no \['images'\]; it has \['image'\]"):
        drive(remap_input_source(FeedInput([[1]]), ["images"]), specs("image"))


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ([], "no inputs"),
        ([3], "element 0 of the input signature is 3"),
        ([tf.TensorSpec([], tf.int32)], "element 0 of the input signature is TensorSpec.*name=None"),
        ([tf.TensorSpec([], tf.int32, "x")] * 2, r"same name: \['x', 'x'\]"),
    ],
)
def test_a_signature_names_its_inputs(drive, signature, message):
    with pytest.raises(InputError, match=message):
        drive(FeedInput([[1]]), signature)
