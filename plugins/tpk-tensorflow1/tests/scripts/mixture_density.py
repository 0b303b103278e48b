"""A mixture density network, and logistic regression with TensorFlow's own distributions."""

import math

import numpy as np
import tensorflow as tf

NHIDDEN, STDEV, KMIX = 8, 0.5, 3
NOUT = KMIX * 3
y_data = np.float32(np.random.uniform(-2, 2, (1, 60))).T
x_data = np.float32(np.sin(0.75 * y_data) * 2.0 + y_data * 0.5 + np.random.normal(size=(60, 1)) * 0.1)

x = tf.placeholder(dtype=tf.float32, shape=[None, 1], name="x")
y = tf.placeholder(dtype=tf.float32, shape=[None, 1], name="y")
Wh = tf.Variable(tf.random_normal([1, NHIDDEN], stddev=STDEV, dtype=tf.float32))
bh = tf.Variable(tf.random_normal([1, NHIDDEN], stddev=STDEV, dtype=tf.float32))
Wo = tf.Variable(tf.random_normal([NHIDDEN, NOUT], stddev=STDEV, dtype=tf.float32))
bo = tf.Variable(tf.random_normal([1, NOUT], stddev=STDEV, dtype=tf.float32))
output = tf.matmul(tf.nn.tanh(tf.matmul(x, Wh) + bh), Wo) + bo


def get_mixture_coef(output):
    out_pi, out_sigma, out_mu = tf.split(output, 3, 1)
    max_pi = tf.reduce_max(out_pi, 1, keep_dims=True)
    out_pi = tf.exp(tf.subtract(out_pi, max_pi))
    normalize_pi = tf.reciprocal(tf.reduce_sum(out_pi, 1, keep_dims=True))
    return tf.multiply(normalize_pi, out_pi), tf.exp(out_sigma), out_mu


def tf_normal(y, mu, sigma):
    result = tf.subtract(y, mu)
    result = tf.multiply(result, tf.reciprocal(sigma))
    result = -tf.square(result) / 2
    return tf.multiply(tf.exp(result), tf.reciprocal(sigma)) * (1 / math.sqrt(2 * math.pi))


out_pi, out_sigma, out_mu = get_mixture_coef(output)
result = tf.reduce_sum(tf.multiply(tf_normal(y, out_mu, out_sigma), out_pi), 1, keep_dims=True)
lossfunc = tf.reduce_mean(-tf.log(result))
train_op = tf.train.AdamOptimizer(learning_rate=0.02).minimize(lossfunc)

ds = tf.contrib.distributions
logits, mu = out_pi, out_mu
components = ds.Normal(loc=out_mu, scale=out_sigma)
log_prob = tf.reduce_logsumexp(tf.log(out_pi) + components.log_prob(y), axis=1)
chosen = ds.Categorical(probs=out_pi)
coin = tf.distributions.Bernoulli(logits=out_mu[:, 0])
divergence = tf.distributions.kl_divergence(components, ds.Normal(tf.zeros_like(out_mu), tf.ones_like(out_mu)))
others = {
    "entropy": chosen.entropy(),
    "mode": coin.mode(),
    "uniform": ds.Uniform(low=-3.0, high=3.0).cdf(y),
    "gamma": ds.Gamma(concentration=2.0, rate=1.5).log_prob(out_sigma),
    "laplace": ds.Laplace(0.5, 2.0).prob(y),
    "exponential": ds.Exponential(rate=out_sigma).mean(),
    "dirichlet": ds.Dirichlet([1.0, 2.0, 3.0]).log_prob(out_pi),
    "student": ds.StudentT(df=3.0, loc=0.0, scale=1.0).log_prob(y),
    "beta": ds.Beta(2.0, 2.5).variance(),
    "multinomial": ds.Multinomial(total_count=4.0, probs=out_pi).mean(),
    "divergence": tf.reduce_sum(divergence, 1),
    "drawn": tf.shape(chosen.sample(5)),
}
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    loss = np.zeros(12, np.float32)
    for i in range(12):
        sess.run(train_op, feed_dict={x: x_data, y: y_data})
        loss[i] = sess.run(lossfunc, feed_dict={x: x_data, y: y_data})
    probabilities, same = sess.run([result[:, 0], tf.exp(log_prob)], {x: x_data[:5], y: y_data[:5]})
    found = sess.run(others, {x: x_data[:5], y: y_data[:5]})
np.savez("results.npz", costs=loss, probabilities=probabilities, same=same, **found)
