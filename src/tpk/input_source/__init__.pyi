from .base import InputSource as InputSource
from .dataset_input import (
    TFDatasetInput as TFDatasetInput,
    dataflow_to_dataset as dataflow_to_dataset,
)
from .feed import FeedInput as FeedInput
from .meter import (
    InputMeter as InputMeter,
    InputReading as InputReading,
)
from .proxy_input import (
    ProxyInput as ProxyInput,
    remap_input_source as remap_input_source,
)
from .queue import (
    BatchQueueInput as BatchQueueInput,
    QueueInput as QueueInput,
)
from .staging import StagingInput as StagingInput
from .tensor import (
    DummyConstantInput as DummyConstantInput,
    TensorInput as TensorInput,
)
