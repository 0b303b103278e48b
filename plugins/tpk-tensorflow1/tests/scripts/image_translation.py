"""Image to image: a U-net with batch normalization, instance normalization and images that are augmented."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.framework import arg_scope
from tensorflow.contrib.layers import batch_norm, conv2d, conv2d_transpose, instance_norm

SIZE, BATCH = 16, 2


def lrelu(x, leak=0.2, name="lrelu"):
    with tf.name_scope(name):
        x = tf.identity(x)
        return (0.5 * (1 + leak)) * x + (0.5 * (1 - leak)) * tf.abs(x)


def augment(image):
    image = tf.image.random_flip_left_right(image, seed=2)
    image = tf.image.resize_images(image, [20, 20], method=tf.image.ResizeMethod.AREA)
    image = tf.image.resize_image_with_crop_or_pad(image, SIZE, SIZE)
    image = tf.image.adjust_brightness(image, 0.1)
    image = tf.image.adjust_contrast(image, 1.2)
    image = tf.image.rgb_to_grayscale(tf.image.adjust_saturation(image, 0.7))
    image = tf.image.central_crop(tf.image.pad_to_bounding_box(image, 2, 2, 20, 20), 0.8)
    return tf.image.grayscale_to_rgb(image) * 2 - 1


def generator(images, reuse=False, is_training=True):
    norm = {"is_training": is_training, "scale": True, "decay": 0.9, "updates_collections": None}
    layer = {"kernel_size": 4, "stride": 2, "normalizer_fn": batch_norm, "normalizer_params": norm}
    with tf.variable_scope("generator", reuse=reuse), arg_scope([conv2d, conv2d_transpose], **layer):
        e1 = conv2d(images, 4, normalizer_fn=None, activation_fn=None, scope="e1")
        e2 = conv2d(lrelu(e1), 8, activation_fn=None, scope="e2")
        e3 = conv2d(lrelu(e2), 8, activation_fn=lrelu, scope="e3")
        d1 = tf.concat([conv2d_transpose(e3, 8, scope="d1"), e2], 3)
        d2 = tf.concat([conv2d_transpose(tf.nn.relu(d1), 4, scope="d2"), e1], 3)
        d3 = conv2d_transpose(tf.nn.relu(d2), 3, normalizer_fn=None, activation_fn=tf.nn.tanh, scope="d3")
    return d3


def discriminator(images, targets, reuse=False):
    with tf.variable_scope("discriminator") as scope:
        if reuse:
            scope.reuse_variables()
        x = tf.pad(tf.concat([images, targets], axis=3), [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
        x = lrelu(instance_norm(tf.layers.conv2d(x, 4, 4, strides=2, name="c1"), scope="n1"))
        x = tf.layers.separable_conv2d(x, 6, 3, padding="same", name="c2", activation=tf.nn.leaky_relu)
        return tf.layers.conv2d(x, 1, 3, name="c3")


pictures = tf.constant(np.random.rand(BATCH, SIZE, SIZE, 3), tf.float32)
targets = pictures[:, ::-1] * 2 - 1
inputs = tf.map_fn(augment, pictures, parallel_iterations=1)
fake = generator(inputs)
sampled = generator(inputs, reuse=True, is_training=False)
real_logits, fake_logits = discriminator(inputs, targets), discriminator(inputs, fake, reuse=True)
entropy = tf.nn.sigmoid_cross_entropy_with_logits
d_loss = tf.reduce_mean(entropy(logits=real_logits, labels=tf.ones_like(real_logits))) + tf.reduce_mean(
    entropy(logits=fake_logits, labels=tf.zeros_like(fake_logits))
)
l1_loss = tf.reduce_mean(tf.abs(targets - fake))
g_loss = tf.reduce_mean(entropy(logits=fake_logits, labels=tf.ones_like(fake_logits))) + 10 * l1_loss
tvars = tf.trainable_variables()
d_vars = [var for var in tvars if var.name.startswith("discriminator")]
g_vars = [var for var in tvars if "generator" in var.name]
with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
    d_train = tf.train.AdamOptimizer(0.002, beta1=0.5).minimize(d_loss, var_list=d_vars)
    with tf.control_dependencies([d_train]):
        g_train = tf.train.RMSPropOptimizer(0.002).minimize(g_loss, var_list=g_vars)
ema = tf.train.ExponentialMovingAverage(decay=0.9)
train = tf.group(ema.apply([l1_loss]), g_train)
psnr, ssim = tf.image.psnr(sampled, targets, 2.0), tf.image.ssim(sampled, targets, 2.0, filter_size=5)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    costs = [sess.run([l1_loss, train])[0] for _ in range(6)]
    found = sess.run(
        {"average": ema.average(l1_loss), "sampled": sampled, "psnr": psnr, "ssim": ssim, "inputs": inputs}
    )
np.savez("results.npz", costs=costs, variables=sorted(v.name for v in tf.global_variables()), **found)
