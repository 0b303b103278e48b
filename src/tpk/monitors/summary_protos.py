"""TensorBoard's protocol buffers: made from reported values, and read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from tpk.graph.reports.png import encode_png
from tpk.graph.reports.summary_ops import reported_name
from tpk.monitors.values import ReportedValueError

Summary = tf.compat.v1.Summary

_BUCKETS = 30
"""TensorBoard's own number of buckets in a histogram."""


def scalar_summary(name: str, value: int | float) -> Any:
    """Return a summary of one number."""
    return Summary(value=[Summary.Value(tag=name, simple_value=value)])


def image_summary(name: str, images: np.ndarray) -> Any:
    """Return a summary of images: ``uint8``, of shape ``(number, height, width, channels)``."""
    summary = Summary()
    for index, image in enumerate(images):
        height, width, channels = image.shape
        png = Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=encode_png(image))
        summary.value.add(tag=name if len(images) == 1 else f"{name}/{index}", image=png)
    return summary


def histogram_summary(name: str, values: np.ndarray) -> Any:
    """Return a summary of the distribution of finite `values`, of shape ``(number,)``."""
    lowest, highest = float(values.min()), float(values.max())
    if lowest == highest:
        counts, limits = np.array([len(values)]), np.array([lowest, highest])
    else:
        counts, limits = np.histogram(values, bins=_BUCKETS)
    with np.errstate(over="ignore"):
        total, total_squares = float(values.sum()), float(np.square(values).sum())
    histogram = tf.compat.v1.HistogramProto(
        min=lowest,
        max=highest,
        num=len(values),
        sum=total,
        sum_squares=total_squares,
        bucket_limit=limits[1:].tolist(),
        bucket=counts.tolist(),
    )
    return Summary(value=[Summary.Value(tag=name, histo=histogram)])


def read_summary(summary: Any) -> Any:
    """Return a copy of a summary, with shorter tags.

    The name of the main tower (``tower0/``) is removed, and the suffix ``-summary``, by which the name of a summary op
    differs from the name of its tensor.

    Args:
        summary: a `tf.compat.v1.Summary`, or its serialized bytes.

    Raises:
        ReportedValueError: if it is neither.
    """
    if isinstance(summary, np.generic | np.ndarray) and summary.ndim == 0:
        summary = summary.item()
    named = Summary()
    if isinstance(summary, bytes):
        try:
            named.ParseFromString(summary)
        except DecodeError as error:
            raise ReportedValueError(f"put_summary got {len(summary)} bytes that are not a tf.Summary.") from error
    elif isinstance(summary, Summary):
        named.CopyFrom(summary)
    else:
        raise ReportedValueError(
            f"put_summary takes a tf.compat.v1.Summary or its bytes, got {summary!r}. Report a number by put_scalar."
        )
    for value in named.value:
        value.tag = reported_name(value.tag)
    return named


def scalars_in(summary: Any) -> Iterator[tuple[str, float]]:
    """Yield the scalars in `summary`, in the format of TensorFlow 1 or 2."""
    for value in summary.value:
        if value.HasField("simple_value"):
            yield value.tag, value.simple_value
        elif value.HasField("tensor") and value.metadata.plugin_data.plugin_name == "scalars":
            yield value.tag, float(tf.make_ndarray(value.tensor))
