"""Data in plain Python and NumPy: where datapoints come from, and what is done to them on the way.

A *dataflow* is any iterable of *datapoints*; a datapoint is a list, a tuple or a dict of *components*
(arrays, numbers, strings). A torch ``DataLoader``, a list of tuples and a generator are dataflows as they
are; what is here composes with all of them:

```python
flow = DataFromList(list(zip(images, labels)), shuffle=True, seed=0)
flow = MapDataComponent(flow, normalize, 0)
flow = BatchData(flow, 32)
```

What a dataflow may offer besides ``__iter__``, and what is used where it is there:

- ``__len__``: how many datapoints one iteration delivers.
- ``reset_state()``: make ready; called once, in the process that iterates, before the first iteration.
- ``state_dict()`` and ``load_state_dict(state)``: where the iteration under way stands, so that a resumed run goes on
  there; without them it gets there by replaying. The flows here have them.
- ``refills_arrays = False``: each datapoint has arrays of its own, so that nobody needs to copy them; the flows here
  know whether theirs do.
- ``close()`` on its iterators (generators have it): let go of files and workers at once.
"""

from tpk.dataflow.base import (
    DataFlow,
    ProxyDataFlow,
    RNGDataFlow,
    StatefulDataFlow,
    StatefulProxyDataFlow,
    check_iterable,
    close_dataflow,
    error_of_data,
    may_refill,
    reset_state,
    seed_dataflow,
    shard,
)
from tpk.dataflow.batch import BatchData
from tpk.dataflow.batch_by_shape import BatchDataByShape
from tpk.dataflow.cache import CacheData
from tpk.dataflow.combine import CombinedDataFlow, ConcatData, JoinData
from tpk.dataflow.describe import PrintData, describe
from tpk.dataflow.fake import FakeData
from tpk.dataflow.fixed_size import FixedSizeData
from tpk.dataflow.from_queue import DataFromQueue
from tpk.dataflow.holding import HoldingProxyDataFlow
from tpk.dataflow.map import MapData, MapDataComponent, SelectComponent
from tpk.dataflow.memory import aligned_empty, copy_array
from tpk.dataflow.mix import RandomChooseData, RandomMixData
from tpk.dataflow.parallel import MultiProcessMapData, MultiProcessRunner, MultiThreadMapData, MultiThreadRunner
from tpk.dataflow.position import Position, PositionTrail
from tpk.dataflow.repeat import RepeatedData, RepeatedDataPoint
from tpk.dataflow.serialize import HDF5Serializer, LMDBSerializer, NumpySerializer, TFRecordSerializer
from tpk.dataflow.shares import length_of_share
from tpk.dataflow.shuffle import LocallyShuffleData
from tpk.dataflow.sources import DataFromGenerator, DataFromIterable, DataFromList
from tpk.dataflow.speed import SpeedReport, StageSpeed, TestDataSpeed, measure_speed
from tpk.dataflow.zmq_receiver import RemoteDataZMQ
from tpk.dataflow.zmq_sender import send_dataflow_zmq

__all__ = [
    "BatchData",
    "BatchDataByShape",
    "CacheData",
    "CombinedDataFlow",
    "ConcatData",
    "DataFlow",
    "DataFromGenerator",
    "DataFromIterable",
    "DataFromList",
    "DataFromQueue",
    "FakeData",
    "FixedSizeData",
    "HDF5Serializer",
    "HoldingProxyDataFlow",
    "JoinData",
    "LMDBSerializer",
    "LocallyShuffleData",
    "MapData",
    "MapDataComponent",
    "MultiProcessMapData",
    "MultiProcessRunner",
    "MultiThreadMapData",
    "MultiThreadRunner",
    "NumpySerializer",
    "Position",
    "PositionTrail",
    "PrintData",
    "ProxyDataFlow",
    "RNGDataFlow",
    "RandomChooseData",
    "RandomMixData",
    "RemoteDataZMQ",
    "RepeatedData",
    "RepeatedDataPoint",
    "SelectComponent",
    "SpeedReport",
    "StageSpeed",
    "StatefulDataFlow",
    "StatefulProxyDataFlow",
    "TFRecordSerializer",
    "TestDataSpeed",
    "aligned_empty",
    "check_iterable",
    "close_dataflow",
    "copy_array",
    "describe",
    "error_of_data",
    "length_of_share",
    "may_refill",
    "measure_speed",
    "reset_state",
    "seed_dataflow",
    "send_dataflow_zmq",
    "shard",
]
