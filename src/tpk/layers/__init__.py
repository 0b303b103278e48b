"""Graph-mode layers: what `tf.compat.v1.layers` was, on every TensorFlow that tpk supports, without Keras.

A layer is a function that adds ops and variables to the default graph. Signatures, variable names,
initial values and collections are those of `tf.compat.v1.layers`, so code and checkpoints move over as
they are:

    from tpk import layers

    def build_graph(self, image, label):
        x = layers.conv2d(image, 32, 3, padding="same", activation=tf.nn.relu)  # conv2d/kernel, conv2d/bias
        x = layers.max_pooling2d(x, 2, 2)
        x = layers.batch_normalization(x, training=is_training)  # adds to UPDATE_OPS
        logits = layers.dense(layers.flatten(x), 10, name="logits")  # logits/kernel, logits/bias

What that means, precisely:

- **Names.** Variables are in a variable scope named `name`, or after the layer: ``conv2d``, ``conv2d_1``, ...
  `reuse` works, and so does all that an enclosing variable scope can set: reuse, initializer, regularizer,
  partitioner, custom getter, kind of variable.
- **Initial values.** Kernels without an initializer start Glorot-uniform, by the seeds of graph and op. An op
  without a seed takes one from the number of ops before it, so the layers create the same ops in the same
  order as `tf.compat.v1.layers` does: in TF1 behaviour the values are the same. In TF2 behaviour Keras draws
  default initial values by seeds of its own, which no graph seed reaches; initializers that are passed give
  the same values there, too. There are three places where the ops differ: `conv2d_transpose` with channels
  first, which Keras transposes on machines without a GPU; pooling of sequences with channels first, which it
  does not transpose on machines with one; and a tensor as `training` with control flow v2, where Keras makes
  `tf.cond` return all intermediate values. Layers after these start from other values, unless they have a seed.
- **Collections.** Trainable variables are in ``TRAINABLE_VARIABLES``, losses of regularizers in
  ``REGULARIZATION_LOSSES``, and updates of moving averages in ``UPDATE_OPS``, which the training has to run;
  tpk's `RunUpdateOps` callback does.
- **Left out.** Batch renormalization, virtual batches, adjustment functions, regularizers and constraints
  given as strings, more than one batch axis before images, sparse inputs, Keras' learning phase: errors.
- **Added.** `batch_normalization` takes `sync`, for statistics over the batches of all towers, of all processes. Layers
  of one's own get
  such sums by `sum_across_towers` of `tpk.layers.cross_tower`.

All 17 layers of `tf.compat.v1.layers` are here, and in the same style what it never had: `conv1d_transpose`,
`depthwise_conv2d`, `layer_normalization`, `group_normalization` and `prelu`, with arguments and results as Keras has
them; `instance_normalization`, `global_max_pooling` and `global_average_pooling`; `layer_norm` and `maxout`, which
stand in for those of `tf.contrib.layers`. `tpk.layers.rnn_cell` has the cells of recurrent networks.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
