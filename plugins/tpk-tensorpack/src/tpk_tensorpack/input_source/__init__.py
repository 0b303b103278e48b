"""tensorpack's `input_source`: feed data into the graph."""

from __future__ import annotations

from tpk_tensorpack.input_source.input_source import (
    BatchQueueInput,
    DummyConstantInput,
    FeedfreeInput,
    FeedInput,
    PlaceholderInput,
    QueueInput,
    StagingInput,
    TensorInput,
    TFDatasetInput,
    ZMQInput,
)
from tpk_tensorpack.input_source.input_source_base import InputSource, remap_input_source

__all__ = [
    "BatchQueueInput",
    "DummyConstantInput",
    "FeedInput",
    "FeedfreeInput",
    "InputSource",
    "PlaceholderInput",
    "QueueInput",
    "StagingInput",
    "TFDatasetInput",
    "TensorInput",
    "ZMQInput",
    "remap_input_source",
]
