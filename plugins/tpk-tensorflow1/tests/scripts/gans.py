"""A GAN, a conditional GAN and a Wasserstein GAN on vectors, with lists of variables instead of scopes."""

import numpy as np
import tensorflow as tf

X_DIM, Z_DIM, Y_DIM, H_DIM, MB = 6, 3, 2, 8, 16


def xavier_init(size):
    in_dim = size[0]
    xavier_stddev = 1.0 / tf.sqrt(in_dim / 2.0)
    return tf.random_normal(shape=size, stddev=xavier_stddev)


def sample_Z(m, n):
    return np.random.uniform(-1.0, 1.0, size=[m, n])


def parameters(inputs, outputs):
    sizes = [(inputs, H_DIM), (H_DIM, outputs)]
    return [each for size in sizes for each in (tf.Variable(xavier_init(size)), tf.Variable(tf.zeros(shape=[size[1]])))]


def network(x, theta):
    h = tf.nn.relu(tf.matmul(x, theta[0]) + theta[1])
    return tf.matmul(h, theta[2]) + theta[3]


def data(labels):
    return np.random.rand(MB, X_DIM) * 0.2 + labels.argmax(1)[:, None] * 0.5


def train(kind):
    X = tf.placeholder(tf.float32, shape=[None, X_DIM])
    Z = tf.placeholder(tf.float32, shape=[None, Z_DIM])
    y = tf.placeholder(tf.float32, shape=[None, Y_DIM])
    condition = [y] if kind == "conditional" else []
    extra = Y_DIM * len(condition)
    theta_D, theta_G = parameters(X_DIM + extra, 1), parameters(Z_DIM + extra, X_DIM)
    G_sample = tf.nn.sigmoid(network(tf.concat(axis=1, values=[Z] + condition), theta_G))
    D_real = network(tf.concat(axis=1, values=[X] + condition), theta_D)
    D_fake = network(tf.concat(axis=1, values=[G_sample] + condition), theta_D)
    if kind == "wasserstein":
        eps = tf.random_uniform([MB, 1], minval=0.0, maxval=1.0)
        X_inter = eps * X + (1.0 - eps) * G_sample
        grad = tf.gradients(network(X_inter, theta_D), [X_inter])[0]
        grad_norm = tf.sqrt(tf.reduce_sum((grad) ** 2, axis=1))
        D_loss = tf.reduce_mean(D_fake) - tf.reduce_mean(D_real) + 10 * tf.reduce_mean((grad_norm - 1) ** 2)
        G_loss = -tf.reduce_mean(D_fake)
    else:
        entropy = tf.nn.sigmoid_cross_entropy_with_logits
        D_loss = tf.reduce_mean(entropy(logits=D_real, labels=tf.ones_like(D_real))) + tf.reduce_mean(
            entropy(logits=D_fake, labels=tf.zeros_like(D_fake))
        )
        G_loss = tf.reduce_mean(entropy(logits=D_fake, labels=tf.ones_like(D_fake)))
    D_solver = tf.train.AdamOptimizer(1e-2, beta1=0.5).minimize(D_loss, var_list=theta_D)
    G_solver = tf.train.AdamOptimizer(1e-3, beta1=0.5).minimize(G_loss, var_list=theta_G)
    clip_D = [p.assign(tf.clip_by_value(p, -0.5, 0.5)) for p in theta_D]
    labels = np.eye(Y_DIM)[np.arange(MB) % Y_DIM]
    costs = []
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    for _ in range(12):
        feeds = {X: data(labels), Z: sample_Z(MB, Z_DIM), y: labels}
        _, D_loss_curr = sess.run([D_solver, D_loss], feed_dict=feeds)
        _, G_loss_curr = sess.run([G_solver, G_loss], feed_dict=feeds)
        costs.append(D_loss_curr)
    if kind == "wasserstein":
        sess.run(clip_D)
    samples = sess.run(G_sample, feed_dict={Z: sample_Z(4, Z_DIM), y: labels[:4]})
    sess.close()
    return {kind + " costs": costs, kind + " samples": samples, kind + " last": G_loss_curr}


results = {}
for kind in ("vanilla", "conditional", "wasserstein"):
    with tf.Graph().as_default():
        results.update(train(kind))
np.savez("results.npz", **results)
