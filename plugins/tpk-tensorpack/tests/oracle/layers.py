"""Layers, each in a separate graph: outputs, gradients, variables before and after updates, names.

A tensorpack script: `python layers.py OUT.npz` with tensorpack, `python -m tpk_tensorpack layers.py OUT.npz` with what
this package.
"""

import sys

import numpy as np
import tensorflow as tf
from tensorpack.models import *  # noqa: F403
from tensorpack.tfutils.argscope import argscope
from tensorpack.tfutils.tower import TowerContext

# ruff: noqa: F405

rng = np.random.RandomState(0)
IMAGES = rng.randn(4, 6, 6, 4).astype("float32")
CHANNELS_FIRST = IMAGES.transpose(0, 3, 1, 2).copy()
VECTORS = rng.randn(4, 6).astype("float32")
MATRIX = np.arange(4).reshape(2, 2).astype("float32")


def scoped(x):
    with argscope([Conv2D, FullyConnected], activation=tf.nn.relu), argscope(Conv2D, kernel_size=3, filters=6):
        with argscope([Conv2D], kernel_size=5):
            x = Conv2D("c1", x)
        x = Conv2D("c2", x, kernel_size=1)
        return FullyConnected("f", x, 3)


def chained(x):
    chain = LinearWrap(x).Conv2D("c0", 8, 3).MaxPooling("p0", 2).tf.nn.relu().apply(tf.multiply, 2.0)
    return chain.apply2(FullyConnected, "fa", 6).FullyConnected("fb", 3)()


def old_conv(x):
    init = tf.compat.v1.constant_initializer(0.1)
    return Conv2D("c", x, out_channel=8, kernel_shape=3, stride=2, nl=tf.nn.tanh, W_init=init, padding="VALID")


CASES = {
    "Conv2D": (IMAGES, lambda x: Conv2D("c", x, 8, 3, activation=tf.nn.relu)),
    "Conv2D, old names": (IMAGES, old_conv),
    "Conv2DTranspose": (IMAGES, lambda x: Conv2DTranspose("d", x, 5, 3, 2)),
    "Deconv2D": (IMAGES, lambda x: Deconv2D("d", x, 5, 3, strides=1, use_bias=False)),
    "FullyConnected": (IMAGES, lambda x: FullyConnected("f", x, 7, activation=tf.nn.relu)),
    "FullyConnected, old names": (VECTORS, lambda x: FullyConnected("f", x, out_dim=7, nl=tf.identity)),
    "MaxPooling": (IMAGES, lambda x: MaxPooling("p", x, 2)),
    "MaxPooling, old names": (IMAGES, lambda x: MaxPooling("p", x, shape=3, stride=2, padding="SAME")),
    "AvgPooling": (IMAGES, lambda x: AvgPooling("p", x, 3, 2)),
    "GlobalAvgPooling": (IMAGES, lambda x: GlobalAvgPooling("p", x)),
    "GlobalAvgPooling, NCHW": (CHANNELS_FIRST, lambda x: GlobalAvgPooling("p", x, data_format="NCHW")),
    "FixedUnPooling": (IMAGES, lambda x: FixedUnPooling("p", x, 2)),
    "FixedUnPooling, NCHW": (CHANNELS_FIRST, lambda x: FixedUnPooling("p", x, 2, MATRIX, "channels_first")),
    "BatchNorm": (IMAGES, lambda x: BatchNorm("b", x)),
    "BatchNorm, old names": (IMAGES, lambda x: BatchNorm("b", x, use_scale=False, decay=0.8, epsilon=1e-3)),
    "BatchNorm of vectors": (VECTORS, lambda x: BatchNorm("b", x)),
    "BatchNorm, frozen": (IMAGES, lambda x: BatchNorm("b", x, training=False)),
    "BatchNorm, skip": (IMAGES, lambda x: BatchNorm("b", x, ema_update="skip")),
    "BatchNorm, internal": (IMAGES, lambda x: BatchNorm("b", x, ema_update="internal")),
    "BatchNorm, collection": (IMAGES, lambda x: BatchNorm("b", x, ema_update="collection")),
    "BatchNorm, ghosts": (IMAGES, lambda x: BatchNorm("b", x, virtual_batch_size=2)),
    "BatchNorm, ghosts of vectors": (VECTORS, lambda x: BatchNorm("b", x, virtual_batch_size=2)),
    "BatchNorm, NCHW": (CHANNELS_FIRST, lambda x: BatchNorm("b", x, data_format="NCHW", center=False)),
    "BatchRenorm": (IMAGES, lambda x: BatchRenorm("b", x, rmax=2.0, dmax=1.0)),
    "BatchRenorm, old names": (IMAGES, lambda x: BatchRenorm("b", x, rmax=1.5, dmax=0.5, use_scale=False, decay=0.8)),
    "BNReLU": (IMAGES, lambda x: BNReLU(x)),
    "BNReLU, named": (IMAGES, lambda x: BNReLU("n", x)),
    "LayerNorm": (IMAGES, lambda x: LayerNorm("l", x)),
    "LayerNorm of vectors": (VECTORS, lambda x: LayerNorm("l", x, center=False)),
    "LayerNorm, NCHW": (CHANNELS_FIRST, lambda x: LayerNorm("l", x, data_format="channels_first")),
    "InstanceNorm": (IMAGES, lambda x: InstanceNorm("l", x)),
    "InstanceNorm, NCHW": (CHANNELS_FIRST, lambda x: InstanceNorm("l", x, data_format="NCHW", scale=False)),
    "PReLU": (IMAGES, lambda x: PReLU("pr", x)),
    "PReLU, named": (IMAGES, lambda x: PReLU("pr", x, init=0.2, name="out")),
    "ConcatWith": (IMAGES, lambda x: ConcatWith(x, [x * 2, x], 3)),
    "argscope": (IMAGES, scoped),
    "LinearWrap": (IMAGES, chained),
}
v1 = tf.compat.v1
results = {}
for name, (data, layer) in CASES.items():
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, *data.shape[1:]], "x")
        with TowerContext("", is_training=True):
            y = layer(x)
        variables, trainable = v1.global_variables(), v1.trainable_variables()
        order = tf.cast(tf.reshape(tf.range(tf.size(y)), tf.shape(y)), tf.float32)
        gradients = tf.gradients(tf.reduce_sum(y * order) * 1e-2, [x, *trainable])
        gradients = [each for each in gradients if each is not None]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            values = np.random.RandomState(1)
            for variable in sorted(variables, key=lambda each: each.name):
                variable.load(values.uniform(0.2, 1, variable.shape.as_list()).astype("float32"), session)
            updates = v1.get_collection("update_ops")
            outputs, of_gradients, _ = session.run([y, gradients, updates], {x: data})
            results[name + "|outputs"] = outputs
            for number, each in enumerate(of_gradients):
                results[f"{name}|gradient {number}"] = each
            for variable in variables:
                results[f"{name}|{variable.name}"] = session.run(variable)
        results[name + "|shape"] = str(y.shape)
        results[name + "|variables"] = [
            f"{each.name} {each.shape} {any(each is other for other in trainable)}" for each in variables
        ]
        attributes = vars(y.variables) if hasattr(y, "variables") else {}
        results[name + "|attributes"] = sorted(attributes.get("_vars", attributes))
np.savez(sys.argv[1], **results)
