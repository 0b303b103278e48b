"""A graph convolutional network, which multiplies sparse placeholders."""

from __future__ import division, print_function

import numpy as np
import tensorflow as tf

flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_float("learning_rate", 0.05, "learning rate")
flags.DEFINE_integer("hidden1", 6, "units of the hidden layer")
flags.DEFINE_float("weight_decay", 5e-4, "weight of the L2 loss")

_LAYER_UIDS = {}


def get_layer_uid(layer_name):
    _LAYER_UIDS[layer_name] = _LAYER_UIDS.get(layer_name, 0) + 1
    return _LAYER_UIDS[layer_name]


def glorot(shape, name):
    limit = np.sqrt(6.0 / (shape[0] + shape[1]))
    return tf.Variable(tf.random_uniform(shape, minval=-limit, maxval=limit, dtype=tf.float32, seed=3), name=name)


def sparse_dropout(x, keep_prob, noise_shape):
    keep = tf.cast(tf.floor(keep_prob + tf.random_uniform(noise_shape)), dtype=tf.bool)
    return tf.sparse_retain(x, keep) * (1.0 / keep_prob)


def dot(x, y, sparse=False):
    return tf.sparse_tensor_dense_matmul(x, y) if sparse else tf.matmul(x, y)


class GraphConvolution(object):
    def __init__(self, input_dim, output_dim, placeholders, act=tf.nn.relu, sparse_inputs=False):
        self.name = "graphconvolution_" + str(get_layer_uid("graphconvolution"))
        self.act, self.placeholders, self.sparse_inputs = act, placeholders, sparse_inputs
        with tf.variable_scope(self.name + "_vars"):
            self.weights = glorot([input_dim, output_dim], name="weights")

    def __call__(self, inputs):
        with tf.name_scope(self.name):
            if self.sparse_inputs:
                x = sparse_dropout(inputs, 1 - self.placeholders["dropout"], self.placeholders["num_features_nonzero"])
            else:
                x = tf.nn.dropout(inputs, 1 - self.placeholders["dropout"])
            return self.act(dot(self.placeholders["support"], dot(x, self.weights, self.sparse_inputs), sparse=True))


def sparse_to_tuple(matrix):
    rows, columns = np.nonzero(matrix)
    return np.vstack((rows, columns)).transpose(), matrix[rows, columns], matrix.shape


random = np.random.RandomState(0)
nodes, classes = 12, 2
labels = np.eye(classes)[np.arange(nodes) % classes]
adjacency = (labels @ labels.T) * (random.rand(nodes, nodes) > 0.5) + np.eye(nodes)
adjacency = np.maximum(adjacency, adjacency.T)
scale = np.diag(adjacency.sum(1) ** -0.5)
support = sparse_to_tuple((scale @ adjacency @ scale).astype(np.float32))
features = sparse_to_tuple((random.rand(nodes, 5) * (random.rand(nodes, 5) > 0.5)).astype(np.float32))

placeholders = {
    "support": tf.sparse_placeholder(tf.float32),
    "features": tf.sparse_placeholder(tf.float32, shape=tf.constant(features[2], dtype=tf.int64)),
    "labels": tf.placeholder(tf.float32, shape=(None, classes)),
    "labels_mask": tf.placeholder(tf.int32),
    "dropout": tf.placeholder_with_default(0.0, shape=()),
    "num_features_nonzero": tf.placeholder(tf.int32),
}
first = GraphConvolution(5, FLAGS.hidden1, placeholders, sparse_inputs=True)
second = GraphConvolution(FLAGS.hidden1, classes, placeholders, act=lambda x: x)
outputs = second(first(placeholders["features"]))
loss = FLAGS.weight_decay * tf.nn.l2_loss(first.weights)
entropy = tf.nn.softmax_cross_entropy_with_logits(logits=outputs, labels=placeholders["labels"])
mask = tf.cast(placeholders["labels_mask"], dtype=tf.float32)
mask /= tf.reduce_mean(mask)
loss += tf.reduce_mean(entropy * mask)
opt_op = tf.train.AdamOptimizer(learning_rate=FLAGS.learning_rate).minimize(loss)

sess = tf.Session()
sess.run(tf.global_variables_initializer())
feed_dict = {placeholders["support"]: support, placeholders["features"]: features}
feed_dict.update({placeholders["labels"]: labels, placeholders["labels_mask"]: np.arange(nodes) < 8})
feed_dict.update({placeholders["num_features_nonzero"]: features[1].shape})
costs = [sess.run([opt_op, loss], feed_dict=feed_dict)[1] for _ in range(20)]
names = [v.op.name for v in tf.global_variables()]
np.savez("results.npz", costs=costs, outputs=sess.run(outputs, feed_dict), variables=names)
