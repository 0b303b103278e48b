"""Style transfer: Gram matrices of a network with fixed weights, total variation, and an image that is trained."""

import functools

import numpy as np
import tensorflow as tf

LAYERS = ("conv1_1", "relu1_1", "pool1", "conv2_1", "relu2_1")
random = np.random.RandomState(4)
WEIGHTS = {
    "conv1_1": (random.randn(3, 3, 3, 4) * 0.3, random.rand(4)),
    "conv2_1": (random.randn(3, 3, 4, 4), random.rand(4)),
}


def vgg(image):
    net, current = {}, image
    for name in LAYERS:
        kind = name[:4]
        if kind == "conv":
            kernels, bias = WEIGHTS[name]
            conv = tf.nn.conv2d(current, tf.constant(kernels, tf.float32), strides=(1, 1, 1, 1), padding="SAME")
            current = tf.nn.bias_add(conv, np.float32(bias))
        elif kind == "relu":
            current = tf.nn.relu(current)
        else:
            current = tf.nn.avg_pool(current, ksize=(1, 2, 2, 1), strides=(1, 2, 2, 1), padding="SAME")
        net[name] = current
    assert len(net) == len(LAYERS)
    return net


def _tensor_size(tensor):
    from operator import mul

    return functools.reduce(mul, (d.value for d in tensor.get_shape()[1:]), 1)


content, style = random.rand(1, 8, 8, 3), random.rand(1, 8, 8, 3)
style_features = {}
with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as sess:
    image = tf.placeholder("float", shape=content.shape)
    net = vgg(image)
    content_features = net["relu2_1"].eval(feed_dict={image: content})
    for layer in ("relu1_1", "relu2_1"):
        features = net[layer].eval(feed_dict={image: style})
        features = np.reshape(features, (-1, features.shape[3]))
        style_features[layer] = np.matmul(features.T, features) / features.size

with tf.Graph().as_default():
    image = tf.Variable(tf.random_normal(content.shape) * 0.256)
    net = vgg(image)
    content_loss = 2 * tf.nn.l2_loss(net["relu2_1"] - content_features) / content_features.size
    style_losses = []
    for layer in sorted(style_features):
        _, height, width, number = (i.value for i in net[layer].get_shape())
        feats = tf.reshape(net[layer], (-1, number))
        gram = tf.matmul(tf.transpose(feats), feats) / (height * width * number)
        style_losses.append(2 * tf.nn.l2_loss(gram - style_features[layer]) / style_features[layer].size)
    tv_y_size = _tensor_size(image[:, 1:, :, :])
    tv_x_size = _tensor_size(image[:, :, 1:, :])
    tv_loss = 2 * (
        tf.nn.l2_loss(image[:, 1:, :, :] - image[:, :7, :, :]) / tv_y_size
        + tf.nn.l2_loss(image[:, :, 1:, :] - image[:, :, :7, :]) / tv_x_size
    )
    loss = (
        content_loss
        + 2 * functools.reduce(tf.add, style_losses)
        + 0.1 * tv_loss
        + 0 * tf.image.total_variation(image)[0]
    )
    train_step = tf.train.AdamOptimizer(0.1, 0.9, 0.999, 1e-8).minimize(loss)
    costs, best_loss, best = [], float("inf"), None
    with tf.Session() as sess:
        sess.run(tf.initialize_all_variables())
        for _ in range(10):
            train_step.run()
            this_loss = loss.eval()
            costs.append(this_loss)
            if this_loss < best_loss:
                best_loss, best = this_loss, image.eval()
np.savez("results.npz", costs=costs, best=best, sizes=[tv_y_size, tv_x_size])
