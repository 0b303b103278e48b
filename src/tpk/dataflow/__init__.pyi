from .base import (
    DataFlow as DataFlow,
    ProxyDataFlow as ProxyDataFlow,
    RNGDataFlow as RNGDataFlow,
    StatefulDataFlow as StatefulDataFlow,
    StatefulProxyDataFlow as StatefulProxyDataFlow,
    seed_dataflow as seed_dataflow,
)
from .batch import (
    BatchData as BatchData,
    BatchDataByShape as BatchDataByShape,
)
from .cache import CacheData as CacheData
from .combine import (
    ConcatData as ConcatData,
    JoinData as JoinData,
)
from .describe import PrintData as PrintData
from .fake import FakeData as FakeData
from .fixed_size import FixedSizeData as FixedSizeData
from .from_queue import DataFromQueue as DataFromQueue
from .map import (
    MapData as MapData,
    MapDataComponent as MapDataComponent,
    SelectComponent as SelectComponent,
)
from .memory import aligned_empty as aligned_empty
from .mix import (
    RandomChooseData as RandomChooseData,
    RandomMixData as RandomMixData,
)
from .parallel.process_map import MultiProcessMapData as MultiProcessMapData
from .parallel.process_runner import MultiProcessRunner as MultiProcessRunner
from .parallel.thread_map import MultiThreadMapData as MultiThreadMapData
from .parallel.thread_runner import MultiThreadRunner as MultiThreadRunner
from .position import Position as Position
from .repeat import (
    RepeatedData as RepeatedData,
    RepeatedDataPoint as RepeatedDataPoint,
)
from .serialize.hdf5 import HDF5Serializer as HDF5Serializer
from .serialize.lmdb import LMDBSerializer as LMDBSerializer
from .serialize.npz import NumpySerializer as NumpySerializer
from .serialize.tfrecord import TFRecordSerializer as TFRecordSerializer
from .shuffle import LocallyShuffleData as LocallyShuffleData
from .sources import (
    DataFromGenerator as DataFromGenerator,
    DataFromIterable as DataFromIterable,
    DataFromList as DataFromList,
)
from .speed import (
    SpeedReport as SpeedReport,
    StageSpeed as StageSpeed,
    TestDataSpeed as TestDataSpeed,
    measure_speed as measure_speed,
)
from .zmq.receiver import RemoteDataZMQ as RemoteDataZMQ
from .zmq.sender import send_dataflow_zmq as send_dataflow_zmq
