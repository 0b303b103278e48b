"""Input sources: how data enters the graph.

- `FeedInput`: a dataflow, fed to placeholders; each step waits for its data.
- `QueueInput`: a dataflow; a thread puts it into a TensorFlow queue ahead of the steps.
- `BatchQueueInput`: the same for single datapoints, which the graph batches.
- `TFDatasetInput`: a `tf.data.Dataset`, or a dataflow through one (`dataflow_to_dataset` turns a dataflow into a
  dataset).
- `StagingInput`: another source, whose datapoints are copied to the devices ahead of the steps.
- `TensorInput`: tensors that a function makes in the graph.
- `DummyConstantInput`: constants, to time everything else.

`remap_input_source` makes a source provide only some of a model's inputs. `InputSource` is the base class of your own
sources.

A datapoint goes from a dataflow (`stream`) through checks (`datapoint`) and a thread (`threads`, `queue`) into the
graph, whose towers take it; `docs/design/walks.md` follows it from a worker process to a tower.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
