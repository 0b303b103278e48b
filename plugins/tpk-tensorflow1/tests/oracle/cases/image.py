"""Rotations, translations and other projective transforms of images, and stateless random numbers."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import image, stateless

STRETCHED = [1.1, 0.1, -1.0, 0.05, 0.9, 0.5, 0.01, -0.02]


def _images(*shape, dtype="float32"):
    return tf.constant((np.random.RandomState(1).rand(*shape) * 200).astype(dtype))


def rotations():
    images = _images(3, 6, 8, 2)
    return {
        "each": image.rotate(images, [0.3, -2.0, np.pi / 2]),
        "all, smoothly": image.rotate(images, 0.4, interpolation="BILINEAR"),
        "one image": image.rotate(images[0], 0.4, "BILINEAR"),
        "without channels": image.rotate(images[0, :, :, 1], -0.4),
        "of bytes": image.rotate(_images(2, 5, 5, 3, dtype="uint8"), 1.0),
        "of batches of any size": image.rotate(tf.placeholder_with_default(images, [None, 6, 8, 2]), 0.2),
        "transforms": image.angles_to_projective_transforms([0.3, -2.0], 6, 8),
    }


def gradient_of_a_rotation():
    images = tf.get_variable("images", initializer=_images(2, 6, 8, 1))
    cost = tf.reduce_sum(tf.square(image.rotate(images, [0.5, -0.1], "BILINEAR")))
    return {"gradient": tf.gradients(cost, images), "step": tf.train.AdamOptimizer(0.1).minimize(cost)}


def translations():
    images = _images(2, 5, 7, 1)
    return {
        "each": image.translate(images, [[1.0, 2.0], [-3.0, 0.5]]),
        "all, smoothly": image.translate(images, [0.25, -1.5], "BILINEAR"),
        "transforms": image.translations_to_projective_transforms([[1.0, 2.0], [-3.0, 0.5]]),
    }


def transforms():
    images = _images(2, 5, 7, 1)
    turned = image.angles_to_projective_transforms(0.3, 5, 7)
    return {
        "all": image.transform(images, STRETCHED, "BILINEAR"),
        "each": image.transform(images, [STRETCHED, [1, 0, 0, 0, 1, 0, 0, 0]]),
        "of another size": image.transform(images, STRETCHED, output_shape=[3, 9]),
        "composed": image.compose_transforms(turned, tf.constant([STRETCHED]), turned),
    }


def stateless_numbers():
    return {
        "uniform": stateless.stateless_random_uniform([4], seed=[1, 2]),
        "normal": stateless.stateless_random_normal([2, 3], seed=[3, 4], mean=1.0, stddev=2.0),
        "truncated": stateless.stateless_truncated_normal([5], seed=[5, 6]),
        "multinomial": stateless.stateless_multinomial(tf.constant([[1.0, 2.0, 3.0]]), 8, seed=[7, 8]),
    }
