"""tensorpack's `dataflow`: data in plain Python and NumPy."""

from __future__ import annotations

from tpk_tensorpack.dataflow import dataset, imgaug
from tpk_tensorpack.dataflow.base import (
    DataFlow,
    DataFlowTerminated,
    ProxyDataFlow,
    RNGDataFlow,
)
from tpk_tensorpack.dataflow.common import (
    BatchData,
    BatchDataByShape,
    CacheData,
    ConcatData,
    FixedSizeData,
    JoinData,
    LocallyShuffleData,
    MapData,
    MapDataComponent,
    PrintData,
    RandomChooseData,
    RandomMixData,
    RepeatedData,
    RepeatedDataPoint,
    SelectComponent,
    TestDataSpeed,
)
from tpk_tensorpack.dataflow.format import (
    CaffeLMDB,
    HDF5Data,
    LMDBData,
    LMDBDataDecoder,
    SVMLightData,
)
from tpk_tensorpack.dataflow.image import (
    AugmentImageComponent,
    AugmentImageComponents,
    AugmentImageCoordinates,
    ImageFromFile,
)
from tpk_tensorpack.dataflow.parallel import (
    MultiProcessPrefetchData,
    MultiProcessRunner,
    MultiProcessRunnerZMQ,
    MultiThreadPrefetchData,
    MultiThreadRunner,
    PrefetchData,
    PrefetchDataZMQ,
)
from tpk_tensorpack.dataflow.parallel_map import (
    MultiProcessMapAndBatchData,
    MultiProcessMapAndBatchDataZMQ,
    MultiProcessMapData,
    MultiProcessMapDataZMQ,
    MultiThreadMapData,
)
from tpk_tensorpack.dataflow.raw import (
    DataFromGenerator,
    DataFromIterable,
    DataFromList,
    DataFromQueue,
    FakeData,
)
from tpk_tensorpack.dataflow.remote import (
    RemoteDataZMQ,
    send_dataflow_zmq,
)
from tpk_tensorpack.dataflow.serialize import (
    HDF5Serializer,
    LMDBSerializer,
    NumpySerializer,
    TFRecordSerializer,
)

__all__ = [
    "AugmentImageComponent",
    "AugmentImageComponents",
    "AugmentImageCoordinates",
    "BatchData",
    "BatchDataByShape",
    "CacheData",
    "CaffeLMDB",
    "ConcatData",
    "DataFlow",
    "DataFlowTerminated",
    "DataFromGenerator",
    "DataFromIterable",
    "DataFromList",
    "DataFromQueue",
    "FakeData",
    "FixedSizeData",
    "HDF5Data",
    "HDF5Serializer",
    "ImageFromFile",
    "JoinData",
    "LMDBData",
    "LMDBDataDecoder",
    "LMDBSerializer",
    "LocallyShuffleData",
    "MapData",
    "MapDataComponent",
    "MultiProcessMapAndBatchData",
    "MultiProcessMapAndBatchDataZMQ",
    "MultiProcessMapData",
    "MultiProcessMapDataZMQ",
    "MultiProcessPrefetchData",
    "MultiProcessRunner",
    "MultiProcessRunnerZMQ",
    "MultiThreadMapData",
    "MultiThreadPrefetchData",
    "MultiThreadRunner",
    "NumpySerializer",
    "PrefetchData",
    "PrefetchDataZMQ",
    "PrintData",
    "ProxyDataFlow",
    "RNGDataFlow",
    "RandomChooseData",
    "RandomMixData",
    "RemoteDataZMQ",
    "RepeatedData",
    "RepeatedDataPoint",
    "SVMLightData",
    "SelectComponent",
    "TFRecordSerializer",
    "TestDataSpeed",
    "dataset",
    "imgaug",
    "send_dataflow_zmq",
]
