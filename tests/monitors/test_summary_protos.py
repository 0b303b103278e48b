from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.monitors.summary_protos import (
    histogram_summary,
    image_summary,
    read_summary,
    scalar_summary,
    scalars_in,
)
from tpk.monitors.values import ReportedValueError

Summary = tf.compat.v1.Summary


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_tensorflow_reads_the_png(channels):
    image = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    proto = image_summary("x", image[None]).value[0].image
    assert (proto.height, proto.width, proto.colorspace) == (5, 7, channels)
    np.testing.assert_array_equal(tf.io.decode_png(proto.encoded_image_string).numpy(), image)


def test_each_of_several_images_has_a_tag():
    summary = image_summary("x", np.zeros((2, 3, 3, 1), np.uint8))
    assert [value.tag for value in summary.value] == ["x/0", "x/1"]


def test_a_histogram_has_the_moments_and_counts_of_its_values():
    values = np.random.default_rng(0).normal(size=1000)
    proto = histogram_summary("x", values).value[0].histo
    assert proto.num == 1000
    assert (proto.min, proto.max) == (values.min(), values.max())
    assert proto.sum == pytest.approx(values.sum())
    assert proto.sum_squares == pytest.approx(np.square(values).sum())
    below = [np.sum(values <= limit) for limit in proto.bucket_limit]
    np.testing.assert_array_equal(np.cumsum(proto.bucket), below)


def test_a_histogram_of_one_value():
    proto = histogram_summary("x", np.full(5, 2.0)).value[0].histo
    assert (list(proto.bucket_limit), list(proto.bucket)) == ([2.0], [5.0])


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("cost", "cost"),
        ("cost-summary", "cost"),
        ("tower0/cost-summary", "cost"),
        ("cost-summary_1", "cost_1"),
        ("activation-summary/tower0/conv/output-rms", "activation-summary/conv/output-rms"),
        ("tower1/cost", "tower1/cost"),
        ("mytower0/cost", "mytower0/cost"),
        ("my summary, 50 %", "my summary, 50 %"),
    ],
)
def test_tags_lose_the_main_tower_and_the_suffix(tag, expected):
    given = scalar_summary(tag, 1.0)
    for summary in (given, given.SerializeToString()):
        assert read_summary(summary).value[0].tag == expected
    assert given.value[0].tag == tag, "the caller's summary is not changed"


@pytest.mark.parametrize("summary", [3, "cost", None, b"\xff\xff\xff"])
def test_an_invalid_summary_is_an_error(summary):
    with pytest.raises(ReportedValueError, match="put_summary"):
        read_summary(summary)


def test_scalars_of_tensorflow_1_and_2_are_found():
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    summary = Summary(
        value=[
            Summary.Value(tag="one", simple_value=0.5),
            Summary.Value(tag="two", tensor=tf.make_tensor_proto(0.25), metadata=metadata),
            Summary.Value(tag="text", tensor=tf.make_tensor_proto("hello")),
            *image_summary("image", np.zeros((1, 2, 2, 1), np.uint8)).value,
        ]
    )
    assert list(scalars_in(summary)) == [("one", 0.5), ("two", 0.25)]
