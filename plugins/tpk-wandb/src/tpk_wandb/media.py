"""Convert TensorBoard images and histograms to W&B's."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import PIL.Image
import wandb


def as_image(png: bytes) -> wandb.Image:
    """Return an encoded image as a `wandb.Image`."""
    with PIL.Image.open(io.BytesIO(png)) as image:
        image.load()
        return wandb.Image(image)


def as_histogram(histogram: Any) -> wandb.Histogram:
    """Return a `tf.compat.v1.HistogramProto` as a `wandb.Histogram`, which has at most 512 bins.

    If there are more, adjacent bins are merged. The outer edges, which may be infinite in TensorFlow, become the
    smallest and largest values.
    """
    counts = np.asarray(histogram.bucket, np.float64)
    edges = np.concatenate([[histogram.min], np.asarray(histogram.bucket_limit, np.float64)])
    edges = np.clip(edges, histogram.min, histogram.max)
    joined = -(-len(counts) // wandb.Histogram.MAX_LENGTH)
    starts = np.arange(0, len(counts), joined)
    return wandb.Histogram(np_histogram=(np.add.reduceat(counts, starts), np.append(edges[starts], edges[-1])))
