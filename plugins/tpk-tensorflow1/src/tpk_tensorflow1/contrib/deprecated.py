"""`tf.contrib.deprecated`: the summaries of TensorFlow before 1.0, whose tags have no name scope."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk_tensorflow1.missing import finder_in, own_names

v1 = tf.compat.v1

merge_all_summaries = v1.summary.merge_all
merge_summary = v1.summary.merge


def scalar_summary(tags: Any, values: Any, collections: Any = None, name: str | None = None) -> Any:
    """Return a summary of scalars."""
    return _collected(tf.raw_ops.ScalarSummary(tags=tags, values=values, name=name), collections)


def histogram_summary(tag: Any, values: Any, collections: Any = None, name: str | None = None) -> Any:
    """Return a summary with the histogram of values."""
    return _collected(tf.raw_ops.HistogramSummary(tag=tag, values=values, name=name), collections)


def image_summary(tag: Any, tensor: Any, max_images: int = 3, collections: Any = None, name: str | None = None) -> Any:
    """Return a summary of images."""
    return _collected(tf.raw_ops.ImageSummary(tag=tag, tensor=tensor, max_images=max_images, name=name), collections)


def _collected(summary: Any, collections: Any) -> Any:
    v1.add_to_collections([v1.GraphKeys.SUMMARIES] if collections is None else collections, summary)
    return summary


__all__ = own_names(__name__)

__getattr__ = finder_in("tf.contrib.deprecated", __all__)
