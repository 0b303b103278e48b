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

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
