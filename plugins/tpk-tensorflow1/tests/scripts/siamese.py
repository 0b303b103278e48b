"""A siamese network with a contrastive loss, and one with triplets that are found in the batch."""

import numpy as np
import tensorflow as tf
import tensorflow.contrib.slim as slim


class Siamese:
    def __init__(self):
        self.x1 = tf.placeholder(tf.float32, [None, 6])
        self.x2 = tf.placeholder(tf.float32, [None, 6])
        with tf.variable_scope("siamese") as scope:
            self.o1 = self.network(self.x1)
            scope.reuse_variables()
            self.o2 = self.network(self.x2)
        self.y_ = tf.placeholder(tf.float32, [None])
        self.loss = self.loss_with_spring()

    def network(self, x):
        ac1 = tf.nn.relu(self.fc_layer(x, 8, "fc1"))
        return self.fc_layer(ac1, 2, "fc2")

    def fc_layer(self, bottom, n_weight, name):
        assert len(bottom.get_shape()) == 2
        n_prev_weight = bottom.get_shape()[1]
        initer = tf.truncated_normal_initializer(stddev=0.3)
        W = tf.get_variable(name + "W", dtype=tf.float32, shape=[n_prev_weight, n_weight], initializer=initer)
        b = tf.get_variable(
            name + "b", dtype=tf.float32, initializer=tf.constant(0.01, shape=[n_weight], dtype=tf.float32)
        )
        return tf.nn.bias_add(tf.matmul(bottom, W), b)

    def loss_with_spring(self):
        margin = 2.0
        labels_t = self.y_
        labels_f = tf.subtract(1.0, self.y_, name="1-yi")
        eucd2 = tf.reduce_sum(tf.pow(tf.subtract(self.o1, self.o2), 2), 1)
        eucd = tf.sqrt(eucd2 + 1e-6, name="eucd")
        C = tf.constant(margin, name="C")
        pos = tf.multiply(labels_t, eucd2, name="yi_x_eucd2")
        neg = tf.multiply(labels_f, tf.pow(tf.maximum(tf.subtract(C, eucd), 0), 2), name="Nyi_x_C-eucd_xx_2")
        return tf.reduce_mean(tf.add(pos, neg, name="losses"), name="loss")


def embedding(x, reuse=False):
    with tf.name_scope("model"):
        with tf.variable_scope("conv1", reuse=reuse):
            net = tf.contrib.layers.conv2d(
                x,
                4,
                [3, 3],
                activation_fn=tf.nn.relu,
                padding="SAME",
                weights_initializer=slim.xavier_initializer_conv2d(),
            )
            net = tf.contrib.layers.max_pool2d(net, [2, 2], padding="SAME")
        net = tf.contrib.layers.flatten(net)
        with tf.variable_scope("fc", reuse=tf.AUTO_REUSE):
            return tf.nn.l2_normalize(slim.fully_connected(net, 3, activation_fn=None, scope="out"), 1)


def batch_hard(labels, embeddings, margin=0.5):
    dot_product = tf.matmul(embeddings, tf.transpose(embeddings))
    square_norm = tf.diag_part(dot_product)
    distances = tf.expand_dims(square_norm, 1) - 2.0 * dot_product + tf.expand_dims(square_norm, 0)
    distances = tf.maximum(distances, 0.0)
    same = tf.equal(tf.expand_dims(labels, 0), tf.expand_dims(labels, 1))
    not_self = tf.logical_not(tf.cast(tf.eye(tf.shape(labels)[0]), tf.bool))
    positives = tf.to_float(tf.logical_and(not_self, same))
    hardest_positive = tf.reduce_max(tf.multiply(positives, distances), axis=1, keepdims=True)
    furthest = tf.reduce_max(distances, axis=1, keepdims=True)
    hardest_negative = tf.reduce_min(distances + furthest * tf.to_float(same), axis=1, keepdims=True)
    return tf.reduce_mean(tf.maximum(hardest_positive - hardest_negative + margin, 0.0))


data = np.random.rand(12, 6) + (np.arange(12) % 2)[:, None]
siamese = Siamese()
images = tf.reshape(tf.tile(siamese.x1, [1, 6]), [-1, 6, 6, 1])
triplet_loss = batch_hard(tf.to_int32(siamese.y_), embedding(images))
again = embedding(images, reuse=True)
learning_rate = tf.train.piecewise_constant(tf.train.get_or_create_global_step(), [3, 6], [0.1, 0.05, 0.01])
train_step = tf.train.GradientDescentOptimizer(learning_rate).minimize(siamese.loss, tf.train.get_global_step())
optimizer = tf.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True)
train_triplets = slim.learning.create_train_op(triplet_loss, optimizer, global_step=None)
sess = tf.InteractiveSession()
tf.global_variables_initializer().run()
contrastive, triplets = [], []
for _ in range(9):
    a, b = np.arange(12), np.arange(12)[::-1] // 2
    feeds = {siamese.x1: data[a], siamese.x2: data[b], siamese.y_: (a % 2 == b % 2).astype("float")}
    contrastive.append(sess.run([train_step, siamese.loss], feed_dict=feeds)[1])
    triplets.append(sess.run(train_triplets, {siamese.x1: data, siamese.y_: a % 2}))
np.savez(
    "results.npz",
    contrastive_costs=contrastive,
    triplet_costs=triplets,
    embeddings=siamese.o1.eval({siamese.x1: data}),
    others=again.eval({siamese.x1: data}),
    rate=learning_rate.eval(),
    variables=[v.name for v in tf.global_variables()],
)
sess.close()
