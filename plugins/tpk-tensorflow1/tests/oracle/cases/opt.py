"""Minimization by SciPy. It ends in the same minimum, but not after the same steps, which depend on SciPy's version."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.opt import ScipyOptimizerInterface


def _minimized(loss, *args, **kwargs):
    """Minimize the loss now; the variables of the case get the values."""
    calls = []
    run = {name: kwargs.pop(name) for name in ("feed_dict", "fetches") if name in kwargs}
    optimizer = ScipyOptimizerInterface(loss, *args, **kwargs)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        optimizer.minimize(sess, loss_callback=lambda *values: calls.append(values), **run)
        values = sess.run(tf.global_variables())
        return {
            "values": [np.round(each, 2) for each in values],
            "loss": np.round(sess.run(loss, run.get("feed_dict")), 3),
        }, calls


def _polynomial():
    x = tf.get_variable("x", initializer=[[3.0, -2.0]])
    y = tf.get_variable("y", initializer=1.0)
    return x, y, tf.reduce_sum(tf.square(x - [[1.0, 2.0]])) + tf.square(y + 3)


def without_bounds():
    _, _, loss = _polynomial()
    found, calls = _minimized(loss, fetches=[loss])
    return dict(found, first=calls[0][0])


def with_bounds_and_feeds():
    x, y, loss = _polynomial()
    target = tf.placeholder(tf.float32)
    bounds = {x: (-np.inf, [[0.5, 9.0]]), y: (0, None)}
    return _minimized(loss + target * tf.reduce_sum(x), var_to_bounds=bounds, feed_dict={target: 2.0})[0]


def with_constraints():
    x, y, loss = _polynomial()
    options = {"method": "SLSQP", "equalities": [tf.reduce_sum(x) - 1], "inequalities": [y - 1]}
    return _minimized(loss, **options)[0]


def of_some_variables():
    x, _, loss = _polynomial()
    return _minimized(loss, [x], method="CG", options={"maxiter": 20})[0]
