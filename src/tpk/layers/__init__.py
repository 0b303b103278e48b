"""Graph-mode layers: what `tf.compat.v1.layers` was, for every TensorFlow that tpk supports, and without Keras.

A layer is a function that adds ops and variables to the default graph. Signatures, variable names, initial values
and collections are those of `tf.compat.v1.layers`, so model code and checkpoints move over unchanged:

    from tpk import layers

    def build_graph(self, image, label):
        x = layers.conv2d(image, 32, 3, padding="same", activation=tf.nn.relu)   # conv2d/kernel, conv2d/bias
        x = layers.max_pooling2d(x, 2, 2)
        x = layers.batch_normalization(x, training=self.training)                # adds to UPDATE_OPS
        logits = layers.dense(layers.flatten(x), 10, name="logits")              # logits/kernel, logits/bias

What is equal, and what is not:

- Variables live in a variable scope named after the layer (``conv2d``, ``conv2d_1``, ...) or after `name`; `reuse` and
  enclosing variable scopes (reuse, regularizer, initializer, partitioner, custom getter) work as they do there.
- Without an initializer, kernels start Glorot-uniform from the graph's seed. The ops are those of
  `tf.compat.v1.layers` one by one, so op-level seeds, which count ops, give the same values too. That holds against
  `tf.compat.v1.layers` with TF2 behaviour off; with it on, Keras draws its defaults from a seed of its own that the
  graph's seed does not reach. One exception in the ops: `conv2d_transpose` with channels first, on a machine
  without a GPU, where Keras transposes the data, and here TensorFlow does it.
- Trainable variables are in ``TRAINABLE_VARIABLES``; losses of regularizers in ``REGULARIZATION_LOSSES``; the updates
  of moving averages in ``UPDATE_OPS``, which a training has to run (tpk's `RunUpdateOps` callback does).
- Batch renormalization, virtual batches and adjustment functions are errors, and so are activity, kernel or bias
  regularizers given as strings.
"""

from __future__ import annotations

from tpk.layers.convolution import conv2d, conv2d_transpose, separable_conv2d
from tpk.layers.core import dense, dropout, flatten
from tpk.layers.normalization import batch_normalization, layer_norm
from tpk.layers.pooling import average_pooling2d, max_pooling2d

__all__ = [
    "average_pooling2d",
    "batch_normalization",
    "conv2d",
    "conv2d_transpose",
    "dense",
    "dropout",
    "flatten",
    "layer_norm",
    "max_pooling2d",
    "separable_conv2d",
]
