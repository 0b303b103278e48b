"""Data in plain Python and NumPy: sources of datapoints, and flows that transform them.

A *dataflow* is any iterable of *datapoints*; a datapoint is a list, a tuple or a dict of *components*
(arrays, numbers, strings). A torch ``DataLoader``, a list of tuples and a generator are dataflows, and the flows here
compose with all of them:

```python
flow = DataFromList(list(zip(images, labels)), shuffle=True, seed=0)
flow = MapDataComponent(flow, normalize, 0)
flow = BatchData(flow, 32)
```

Optional methods and attributes of a dataflow:

- ``__len__``: the number of datapoints in a pass.
- ``reset_state()``: prepares for iteration; called once, in the process that iterates, before the first iteration.
- ``state_dict()`` and ``load_state_dict(state)``: the position in the current pass, from which a resumed run continues.
  Without them, it replays the datapoints before. The flows here have them.
- ``refills_arrays = False``: each datapoint has new arrays, so consumers need not copy them. The flows here set it.
- ``close()`` on its iterators (generators have it): releases files and workers at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
