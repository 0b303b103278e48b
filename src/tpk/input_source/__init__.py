"""How data enters the graph.

- [`FeedInput`][tpk.input_source.FeedInput]: a dataflow, fed to placeholders; each step waits for its data.
- [`QueueInput`][tpk.input_source.QueueInput]: a dataflow, put into a TensorFlow queue by a thread, ahead of
  the steps.
- [`BatchQueueInput`][tpk.input_source.BatchQueueInput]: the same of single datapoints, of which the graph makes
  batches.
- [`ZMQInput`][tpk.input_source.ZMQInput]: a queue of the datapoints that other processes send.
- [`TFDatasetInput`][tpk.input_source.TFDatasetInput]: a `tf.data.Dataset`, or a dataflow through one
  ([`dataflow_to_dataset`][tpk.input_source.dataflow_to_dataset] makes a dataset of a dataflow).
- [`StagingInput`][tpk.input_source.StagingInput]: another source, whose datapoints are brought to the devices ahead
  of the steps.
- [`TensorInput`][tpk.input_source.TensorInput]: tensors that a function makes in the graph.
- [`DummyConstantInput`][tpk.input_source.DummyConstantInput]: constants, to time everything else.

[`remap_input_source`][tpk.input_source.remap_input_source] lets a source provide some of a model's inputs
only; [`InputSource`][tpk.input_source.InputSource] is the base, for sources of one's own.
"""

from tpk.input_source.base import InputSource
from tpk.input_source.batch_queue import BatchQueueInput
from tpk.input_source.dataset import TFDatasetInput
from tpk.input_source.feed import FeedInput
from tpk.input_source.flow_dataset import dataflow_to_dataset
from tpk.input_source.meter import InputMeter, InputReading
from tpk.input_source.queue import QueueInput
from tpk.input_source.remap import RemapInput, remap_input_source
from tpk.input_source.staging import StagingInput
from tpk.input_source.tensor import DummyConstantInput, TensorInput
from tpk.input_source.zmq import ZMQInput

__all__ = [
    "BatchQueueInput",
    "DummyConstantInput",
    "FeedInput",
    "InputMeter",
    "InputReading",
    "InputSource",
    "QueueInput",
    "RemapInput",
    "StagingInput",
    "TFDatasetInput",
    "TensorInput",
    "ZMQInput",
    "dataflow_to_dataset",
    "remap_input_source",
]
