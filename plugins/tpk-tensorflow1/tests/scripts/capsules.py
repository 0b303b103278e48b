"""Capsules with dynamic routing, a reconstruction, and a margin loss."""

import numpy as np
import tensorflow as tf

batch_size, epsilon, iter_routing = 4, 1e-9, 3


def squash(vector):
    vec_squared_norm = tf.reduce_sum(tf.square(vector), -2, keep_dims=True)
    scalar_factor = vec_squared_norm / (1 + vec_squared_norm) / tf.sqrt(vec_squared_norm + epsilon)
    return scalar_factor * vector


def routing(input, b_IJ, num_outputs=3, num_dims=4):
    shape = input.get_shape().as_list()
    W = tf.get_variable(
        "Weight",
        shape=[1, shape[1], num_dims * num_outputs] + shape[-2:],
        dtype=tf.float32,
        initializer=tf.random_normal_initializer(stddev=0.1),
    )
    biases = tf.get_variable("bias", shape=(1, 1, num_outputs, num_dims, 1))
    input = tf.tile(input, [1, 1, num_dims * num_outputs, 1, 1])
    u_hat = tf.reduce_sum(W * input, axis=3, keep_dims=True)
    u_hat = tf.reshape(u_hat, shape=[-1, shape[1], num_outputs, num_dims, 1])
    u_hat_stopped = tf.stop_gradient(u_hat, name="stop_gradient")
    for r_iter in range(iter_routing):
        with tf.variable_scope("iter_" + str(r_iter)):
            c_IJ = tf.nn.softmax(b_IJ, dim=2)
            last = r_iter == iter_routing - 1
            s_J = tf.multiply(c_IJ, u_hat if last else u_hat_stopped)
            s_J = tf.reduce_sum(s_J, axis=1, keep_dims=True) + biases
            v_J = squash(s_J)
            if not last:
                v_J_tiled = tf.tile(v_J, [1, shape[1], 1, 1, 1])
                b_IJ += tf.reduce_sum(u_hat_stopped * v_J_tiled, axis=3, keep_dims=True)
    return v_J


X = tf.placeholder(tf.float32, shape=(batch_size, 8, 8, 1))
labels = tf.placeholder(tf.int32, shape=(batch_size,))
Y = tf.one_hot(labels, depth=3, axis=1, dtype=tf.float32)
with tf.variable_scope("Conv1_layer"):
    conv1 = tf.contrib.layers.conv2d(X, num_outputs=6, kernel_size=3, stride=1, padding="VALID")
with tf.variable_scope("PrimaryCaps_layer"):
    capsules = tf.contrib.layers.conv2d(conv1, 8, 3, 2, padding="VALID", activation_fn=tf.nn.relu)
    capsules = squash(tf.reshape(capsules, (batch_size, -1, 4, 1)))
with tf.variable_scope("DigitCaps_layer"):
    primary = tf.reshape(capsules, shape=(batch_size, -1, 1, capsules.shape[-2].value, 1))
    b_IJ = tf.constant(np.zeros([batch_size, capsules.shape[1].value, 3, 1, 1], dtype=np.float32))
    digits = tf.squeeze(routing(primary, b_IJ), axis=1)
with tf.variable_scope("Masking"):
    v_length = tf.sqrt(tf.reduce_sum(tf.square(digits), axis=2, keep_dims=True) + epsilon)
    argmax_idx = tf.reshape(tf.to_int32(tf.argmax(tf.nn.softmax(v_length, dim=1), axis=1)), shape=(batch_size,))
    masked_v = tf.multiply(tf.squeeze(digits), tf.reshape(Y, (-1, 3, 1)))
with tf.variable_scope("Decoder"):
    fc1 = tf.contrib.layers.fully_connected(tf.reshape(masked_v, (batch_size, -1)), num_outputs=10)
    decoded = tf.contrib.layers.fully_connected(fc1, num_outputs=64, activation_fn=tf.sigmoid)
max_l = tf.square(tf.maximum(0.0, 0.9 - v_length))
max_r = tf.square(tf.maximum(0.0, v_length - 0.1))
max_l, max_r = (tf.reshape(each, shape=(batch_size, -1)) for each in (max_l, max_r))
margin_loss = tf.reduce_mean(tf.reduce_sum(Y * max_l + 0.5 * (1 - Y) * max_r, axis=1))
reconstruction_err = tf.reduce_mean(tf.square(decoded - tf.reshape(X, shape=(batch_size, -1))))
total_loss = margin_loss + 0.392 * reconstruction_err
global_step = tf.Variable(0, name="global_step", trainable=False)
train_op = tf.train.AdamOptimizer(0.01).minimize(total_loss, global_step=global_step)
correct = tf.reduce_sum(tf.cast(tf.equal(labels, argmax_idx), tf.float32))

images = np.random.rand(batch_size, 8, 8, 1)
sv = tf.train.Supervisor(logdir="logdir", save_model_secs=0)
costs = []
with sv.managed_session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
    while not sv.should_stop() and len(costs) < 6:
        _, loss = sess.run([train_op, total_loss], {X: images, labels: [0, 1, 2, 0]})
        costs.append(loss)
    found, lengths = sess.run([correct, v_length], {X: images, labels: [0, 1, 2, 0]})
    sv.saver.save(sess, "logdir/model_step_%d" % sess.run(global_step))
np.savez(
    "results.npz", costs=costs, correct=found, lengths=lengths, variables=[v.name for v in tf.trainable_variables()]
)
