"""Linear and logistic regression, and nearest neighbours, as the first pages of tutorials show them."""

from __future__ import print_function

import numpy as np
import tensorflow as tf

rng = np.random
train_X = np.asarray([3.3, 4.4, 5.5, 6.71, 6.93, 4.168, 9.779, 6.182, 7.59, 2.167, 7.042])
train_Y = np.asarray([1.7, 2.76, 2.09, 3.19, 1.694, 1.573, 3.366, 2.596, 2.53, 1.221, 2.827])
n_samples = train_X.shape[0]

X = tf.placeholder("float")
Y = tf.placeholder("float")
W = tf.Variable(rng.randn(), name="weight")
b = tf.Variable(rng.randn(), name="bias")
pred = tf.add(tf.multiply(X, W), b)
cost = tf.reduce_sum(tf.pow(pred - Y, 2)) / (2 * n_samples)
optimizer = tf.train.GradientDescentOptimizer(0.01).minimize(cost)

linear_costs = []
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for epoch in range(8):
        for x, y in zip(train_X, train_Y):
            sess.run(optimizer, feed_dict={X: x, Y: y})
        c = sess.run(cost, feed_dict={X: train_X, Y: train_Y})
        print("Epoch:", "%04d" % (epoch + 1), "cost=", "{:.9f}".format(c), "W=", sess.run(W), "b=", sess.run(b))
        linear_costs.append(c)
    weight = sess.run(W)

train_pos, train_neg = rng.normal(1, 1, (20, 3)), rng.normal(-1, 1, (20, 3))
data = np.concatenate([train_pos, train_neg]).astype("float32")
target = np.concatenate([np.tile([1, 0], (20, 1)), np.tile([0, 1], (20, 1))])
x = tf.placeholder(tf.float32, [None, 3], name="x")
y = tf.placeholder(tf.float32, [None, 2], name="y")
with tf.name_scope("Model"):
    scores = tf.matmul(x, tf.Variable(tf.zeros([3, 2]))) + tf.Variable(tf.zeros([2]))
    probabilities = tf.nn.softmax(scores)
cross_entropy = tf.reduce_mean(-tf.reduce_sum(y * tf.log(probabilities), reduction_indices=1))
train_step = tf.train.AdagradOptimizer(0.5).minimize(cross_entropy)
accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(probabilities, 1), tf.argmax(y, 1)), "float"))
logistic_costs = []
with tf.Session() as sess:
    tf.global_variables_initializer().run()
    for i in range(8):
        _, c = sess.run([train_step, cross_entropy], {x: data[i::2], y: target[i::2]})
        logistic_costs.append(c)
    found = accuracy.eval({x: data, y: target})

xtr = tf.placeholder("float", [None, 3])
xte = tf.placeholder("float", [3])
distance = tf.reduce_sum(tf.abs(tf.add(xtr, tf.negative(xte))), reduction_indices=1)
nearest = tf.arg_min(distance, 0)
with tf.Session() as sess:
    indices = [sess.run(nearest, feed_dict={xtr: data[1:], xte: point}) for point in data[:3]]

np.savez(
    "results.npz",
    linear_costs=linear_costs,
    weight=weight,
    logistic_costs=logistic_costs,
    accuracy=found,
    indices=indices,
    variables=[v.name for v in tf.trainable_variables()],
)
