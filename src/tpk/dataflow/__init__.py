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
- ``close()`` on its iterators (generators have it): let go of files and workers at once.
"""

from tpk.dataflow.base import DataFlow, ProxyDataFlow, RNGDataFlow, check_iterable, reset_state
from tpk.dataflow.batch import BatchData
from tpk.dataflow.map import MapData, MapDataComponent
from tpk.dataflow.memory import aligned_empty
from tpk.dataflow.repeat import RepeatedData
from tpk.dataflow.shuffle import LocallyShuffleData
from tpk.dataflow.sources import DataFromGenerator, DataFromIterable, DataFromList

__all__ = [
    "BatchData",
    "DataFlow",
    "DataFromGenerator",
    "DataFromIterable",
    "DataFromList",
    "LocallyShuffleData",
    "MapData",
    "MapDataComponent",
    "ProxyDataFlow",
    "RNGDataFlow",
    "RepeatedData",
    "aligned_empty",
    "check_iterable",
    "reset_state",
]
