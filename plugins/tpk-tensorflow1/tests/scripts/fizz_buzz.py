"""Fizz buzz by a multi-layer perceptron, with early stopping, printed tensors, checks and functions in Python."""

from __future__ import print_function

import numpy as np
import tensorflow as tf

NUM_DIGITS, NUM_HIDDEN, BATCH_SIZE = 7, 24, 16


def binary_encode(i, num_digits):
    return np.array([i >> d & 1 for d in range(num_digits)])


def fizz_buzz_encode(i):
    if i % 15 == 0:
        return np.array([0, 0, 0, 1])
    if i % 5 == 0:
        return np.array([0, 0, 1, 0])
    if i % 3 == 0:
        return np.array([0, 1, 0, 0])
    return np.array([1, 0, 0, 0])


def fizz_buzz(i, prediction):
    return [str(i), "fizz", "buzz", "fizzbuzz"][prediction]


def init_weights(shape):
    return tf.Variable(tf.random_normal(shape, stddev=0.1))


def model(X, w_h, w_o):
    return tf.matmul(tf.nn.relu(tf.matmul(X, w_h)), w_o)


def checked(values):
    assert np.isfinite(values).all()
    return values.mean().astype(np.float32)


trX = np.array([binary_encode(i, NUM_DIGITS) for i in range(21, 2**NUM_DIGITS)])
trY = np.array([fizz_buzz_encode(i) for i in range(21, 2**NUM_DIGITS)])
X = tf.placeholder("float", [None, NUM_DIGITS])
Y = tf.placeholder("float", [None, 4])
w_h = init_weights([NUM_DIGITS, NUM_HIDDEN])
w_o = init_weights([NUM_HIDDEN, 4])
py_x = model(X, w_h, w_o)
py_x = tf.Print(py_x, [tf.reduce_mean(py_x)], message="mean: ", first_n=1)
cost = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(logits=py_x, labels=Y))
rate = tf.train.inverse_time_decay(0.5, tf.train.create_global_step(), 20, 0.1)
train_op = tf.train.AdadeltaOptimizer(rate, rho=0.9, epsilon=1e-4).minimize(cost, tf.train.get_global_step())
predict_op = tf.argmax(py_x, 1)
mean = tf.py_func(checked, [py_x], tf.float32, stateful=False)
ok = tf.add_check_numerics_ops()
gate = tf.cond(cost > 100.0, lambda: tf.constant("high"), lambda: tf.constant("low"))
number = tf.case(
    [(tf.less(cost, 0.1), lambda: 0), (tf.greater(cost, 5.0), lambda: 1)], default=lambda: 2, exclusive=True
)
best, patience, costs = np.inf, 3, []
with tf.Session() as sess:
    tf.initialize_all_variables().run()
    for epoch in range(12):
        p = np.random.permutation(range(len(trX)))
        trX, trY = trX[p], trY[p]
        for start in range(0, len(trX), BATCH_SIZE):
            end = start + BATCH_SIZE
            sess.run(train_op, feed_dict={X: trX[start:end], Y: trY[start:end]})
        current = sess.run(cost, feed_dict={X: trX, Y: trY})
        costs.append(current)
        print(epoch, np.mean(np.argmax(trY, axis=1) == sess.run(predict_op, feed_dict={X: trX, Y: trY})))
        if current > best - 1e-6:
            patience -= 1
            if not patience:
                break
        best = min(best, current)
    numbers = np.arange(1, 21)
    teX = np.transpose(binary_encode(numbers, NUM_DIGITS))
    teY = sess.run(predict_op, feed_dict={X: teX})
    output = np.vectorize(fizz_buzz)(numbers, teY)
    average, _, word, index = sess.run([mean, ok, gate, number], {X: trX, Y: trY})
np.savez("results.npz", costs=costs, output=output, average=average, word=word.decode(), index=index)
