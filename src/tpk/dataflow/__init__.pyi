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
from .inspect import (
    PrintData as PrintData,
    SpeedReport as SpeedReport,
    StageSpeed as StageSpeed,
    TestDataSpeed as TestDataSpeed,
    describe as describe,
    measure_speed as measure_speed,
)
from .memory import (
    FEW_BYTES as FEW_BYTES,
    aligned_empty as aligned_empty,
    copy_arrays as copy_arrays,
)
from .parallel.maps import MultiProcessMapData as MultiProcessMapData, MultiThreadMapData as MultiThreadMapData
from .parallel.runners import MultiProcessRunner as MultiProcessRunner
from .parallel.thread_flows import MultiThreadRunner as MultiThreadRunner
from .position import Position as Position
from .sources import (
    DataFromGenerator as DataFromGenerator,
    DataFromIterable as DataFromIterable,
    DataFromList as DataFromList,
    DataFromQueue as DataFromQueue,
    FakeData as FakeData,
)
from .transforms.batch import (
    BatchData as BatchData,
    BatchDataByShape as BatchDataByShape,
    Joiner as Joiner,
)
from .transforms.map import (
    MapData as MapData,
    MapDataComponent as MapDataComponent,
    SelectComponent as SelectComponent,
)
from .transforms.repeat import (
    FixedSizeData as FixedSizeData,
    RepeatedData as RepeatedData,
    RepeatedDataPoint as RepeatedDataPoint,
)
from .transforms.shuffle import CacheData as CacheData, LocallyShuffleData as LocallyShuffleData
