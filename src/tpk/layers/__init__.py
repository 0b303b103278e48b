"""Graph-mode layers: the functions of `tf.compat.v1.layers`, without Keras, on every supported TensorFlow.

A layer is a function that adds ops and variables to the default graph. It has the same signature, variable names,
initial values and collections as in `tf.compat.v1.layers`, so code and checkpoints work unchanged:

    from tpk import layers

    def build_graph(self, image, label):
        x = layers.conv2d(image, 32, 3, padding="same", activation=tf.nn.relu)  # conv2d/kernel, conv2d/bias
        x = layers.max_pooling2d(x, 2, 2)
        x = layers.batch_normalization(x, training=is_training)  # adds to UPDATE_OPS
        logits = layers.dense(layers.flatten(x), 10, name="logits")  # logits/kernel, logits/bias

In detail:

- **Names.** Variables are in a variable scope named `name`, or after the layer: ``conv2d``, ``conv2d_1``, ... An
  enclosing variable scope works as usual: reuse, initializer, regularizer, partitioner, custom getter, resource
  variables.
- **Initial values.** Kernels without an initializer start Glorot-uniform, from the seeds of graph and op. An op without
  a seed derives one from the number of ops before it, so the layers create the same ops in the same order as
  `tf.compat.v1.layers`: in TF1 behaviour, the values are the same. In TF2 behaviour, Keras draws default initial values
  from its own seeds, which no graph seed changes; with an initializer, the values are the same there, too. The ops
  differ in three cases: `conv2d_transpose` with channels first, which Keras transposes on machines without a GPU;
  pooling of sequences with channels first, which it does not transpose on machines with a GPU; and a tensor as
  `training` with control flow v2, where Keras uses the fused kernel. Layers after these have other initial values,
  unless they have a seed.
- **Collections.** Trainable variables are in ``TRAINABLE_VARIABLES``, losses of regularizers in
  ``REGULARIZATION_LOSSES``, and updates of moving averages in ``UPDATE_OPS``, which the training must run; tpk's
  `RunUpdateOps` callback does so.
- **Not supported.** Batch renormalization, virtual batches, adjustment functions, regularizers and constraints given as
  strings, more than one batch axis before images, sparse inputs, and Keras' learning phase are errors.
- **Added.** `batch_normalization` takes `sync`, for statistics over the batches of all towers of all processes. Other
  layers get such sums from `sum_across_towers` of `tpk.layers.cross_tower`.

There are also layers that `tf.compat.v1.layers` never had: `conv1d_transpose`, `depthwise_conv2d`,
`layer_normalization`, `group_normalization` and `prelu`, with the arguments and results of Keras;
`instance_normalization`, `global_max_pooling` and `global_average_pooling`; and `maxout`, as in `tf.contrib.layers`.
`tpk.layers.rnn_cell` has the cells of recurrent networks.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
