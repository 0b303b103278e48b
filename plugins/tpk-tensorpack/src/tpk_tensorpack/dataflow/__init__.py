"""tensorpack's `dataflow`: data in plain Python and NumPy."""

from __future__ import annotations

from tpk_tensorpack.dataflow import dataset
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
from tpk_tensorpack.dataflow.raw import (
    DataFromGenerator,
    DataFromIterable,
    DataFromList,
    DataFromQueue,
    FakeData,
)

__all__ = [
    "BatchData",
    "BatchDataByShape",
    "CacheData",
    "ConcatData",
    "DataFlow",
    "DataFlowTerminated",
    "DataFromGenerator",
    "DataFromIterable",
    "DataFromList",
    "DataFromQueue",
    "FakeData",
    "FixedSizeData",
    "JoinData",
    "LocallyShuffleData",
    "MapData",
    "MapDataComponent",
    "PrintData",
    "ProxyDataFlow",
    "RNGDataFlow",
    "RandomChooseData",
    "RandomMixData",
    "RepeatedData",
    "RepeatedDataPoint",
    "SelectComponent",
    "TestDataSpeed",
    "dataset",
]
