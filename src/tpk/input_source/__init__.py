"""How data enters the graph.

- [`FeedInput`][tpk.input_source.FeedInput]: a dataflow, fed to placeholders; each step waits for its data.
- [`QueueInput`][tpk.input_source.QueueInput]: a dataflow, put into a TensorFlow queue by a thread, ahead of
  the steps.
- [`TFDatasetInput`][tpk.input_source.TFDatasetInput]: a `tf.data.Dataset`, or a dataflow through one.
- [`TensorInput`][tpk.input_source.TensorInput]: tensors that a function makes in the graph.
- [`DummyConstantInput`][tpk.input_source.DummyConstantInput]: constants, to time everything else.

[`remap_input_source`][tpk.input_source.remap_input_source] lets a source provide some of a model's inputs
only; [`InputSource`][tpk.input_source.InputSource] is the base, for sources of one's own.
"""

from tpk.input_source.base import InputSource
from tpk.input_source.dataset import TFDatasetInput
from tpk.input_source.feed import FeedInput
from tpk.input_source.queue import QueueInput
from tpk.input_source.remap import RemapInput, remap_input_source
from tpk.input_source.tensor import DummyConstantInput, TensorInput

__all__ = [
    "DummyConstantInput",
    "FeedInput",
    "InputSource",
    "QueueInput",
    "RemapInput",
    "TFDatasetInput",
    "TensorInput",
    "remap_input_source",
]
