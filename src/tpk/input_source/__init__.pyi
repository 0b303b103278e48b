from .base import InputSource as InputSource
from .batch_queue import BatchQueueInput as BatchQueueInput
from .dataset import TFDatasetInput as TFDatasetInput
from .feed import FeedInput as FeedInput
from .flow_dataset import dataflow_to_dataset as dataflow_to_dataset
from .meter import (
    InputMeter as InputMeter,
    InputReading as InputReading,
)
from .queue import QueueInput as QueueInput
from .remap import remap_input_source as remap_input_source
from .staging import StagingInput as StagingInput
from .tensor import (
    DummyConstantInput as DummyConstantInput,
    TensorInput as TensorInput,
)
