"""Input sources: how data enters the graph.

- `FeedInput`: a dataflow, fed to placeholders; each step waits for its data.
- `QueueInput`: a dataflow, put into a TensorFlow queue by a thread, ahead of
  the steps.
- `BatchQueueInput`: the same of single datapoints, of which the graph makes
  batches.
- `TFDatasetInput`: a `tf.data.Dataset`, or a dataflow through one
  (`dataflow_to_dataset` makes a dataset of a dataflow).
- `StagingInput`: another source, whose datapoints are brought to the devices ahead
  of the steps.
- `TensorInput`: tensors that a function makes in the graph.
- `DummyConstantInput`: constants, to time everything else.

`remap_input_source` lets a source provide some of a model's inputs
only; `InputSource` is the base, for sources of one's own.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
