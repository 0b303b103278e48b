from .base import (
    DataFlow as DataFlow,
    ProxyDataFlow as ProxyDataFlow,
    RNGDataFlow as RNGDataFlow,
    StatefulDataFlow as StatefulDataFlow,
    StatefulProxyDataFlow as StatefulProxyDataFlow,
    seed_dataflow as seed_dataflow,
)
from .combine import (
    ConcatData as ConcatData,
    JoinData as JoinData,
    RandomChooseData as RandomChooseData,
    RandomMixData as RandomMixData,
)
from .describe import PrintData as PrintData
from .memory import aligned_empty as aligned_empty
from .parallel.process_map import MultiProcessMapData as MultiProcessMapData
from .parallel.process_runner import MultiProcessRunner as MultiProcessRunner
from .parallel.thread_map import MultiThreadMapData as MultiThreadMapData
from .parallel.thread_runner import MultiThreadRunner as MultiThreadRunner
from .position import Position as Position
from .serialize.hdf5 import HDF5Serializer as HDF5Serializer
from .serialize.lmdb import LMDBSerializer as LMDBSerializer
from .serialize.npz import NumpySerializer as NumpySerializer
from .serialize.tfrecord import TFRecordSerializer as TFRecordSerializer
from .sources.fake import FakeData as FakeData
from .sources.from_queue import DataFromQueue as DataFromQueue
from .sources.iterables import (
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
from .transforms.batch import (
    BatchData as BatchData,
    BatchDataByShape as BatchDataByShape,
)
from .transforms.cache import CacheData as CacheData
from .transforms.fixed_size import FixedSizeData as FixedSizeData
from .transforms.map import (
    MapData as MapData,
    MapDataComponent as MapDataComponent,
    SelectComponent as SelectComponent,
)
from .transforms.repeat import (
    RepeatedData as RepeatedData,
    RepeatedDataPoint as RepeatedDataPoint,
)
from .transforms.shuffle import LocallyShuffleData as LocallyShuffleData
from .zmq.receiver import RemoteDataZMQ as RemoteDataZMQ
from .zmq.sender import send_dataflow_zmq as send_dataflow_zmq
