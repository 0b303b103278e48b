#!/usr/bin/env python
"""A custom layer that samples an image where a localization network points; `tf.layers` under an argscope."""

import numpy as np
import tensorflow as tf
from tensorpack import *  # noqa: F403
from tensorpack.callbacks import DumpTensors, ProcessTensors
from tensorpack.tfutils import optimizer
from tensorpack.tfutils.argscope import enable_argscope_for_module
from tensorpack.tfutils.gradproc import MapGradient, ScaleGradient
from tensorpack.tfutils.scope_utils import under_name_scope
from tensorpack.tfutils.summary import add_moving_summary
from tensorpack.tfutils.symbolic_functions import print_stat, psnr, rms

# ruff: noqa: F405

enable_argscope_for_module(tf.layers)
SIZE = 10


def sample(img, coords):
    """Return the pixels of `img` (b, h, w, c) at integer `coords` (b, h2, w2, 2)."""
    shape = img.get_shape().as_list()[1:]
    batch = tf.shape(img)[0]
    shape2 = coords.get_shape().as_list()[1:3]
    max_coor = tf.constant([shape[0] - 1, shape[1] - 1], dtype=tf.float32)
    coords = tf.to_int32(tf.clip_by_value(coords, 0.0, max_coor))
    batch_index = tf.reshape(tf.range(batch, dtype=tf.int32), [-1, 1, 1, 1])
    batch_index = tf.tile(batch_index, [1, shape2[0], shape2[1], 1])
    return tf.gather_nd(img, tf.concat([batch_index, coords], axis=3))


@layer_register(log_shape=True)
def GridSample(inputs, borderMode="repeat"):
    """Sample an image bilinearly at the points of a grid."""
    image, grid = inputs
    assert borderMode == "repeat"
    scale = tf.get_variable("scale", [], initializer=tf.ones_initializer())
    lcoor = tf.floor(grid)
    ucoor = lcoor + 1
    diff = grid - lcoor
    neg_diff = 1.0 - diff
    lcoory, lcoorx = tf.split(lcoor, 2, 3)
    ucoory, ucoorx = tf.split(ucoor, 2, 3)
    diffy, diffx = tf.split(diff, 2, 3)
    neg_diffy, neg_diffx = tf.split(neg_diff, 2, 3)
    sampled = tf.add_n(
        [
            sample(image, lcoor) * neg_diffx * neg_diffy,
            sample(image, ucoor) * diffx * diffy,
            sample(image, tf.concat([lcoory, ucoorx], 3)) * neg_diffy * diffx,
            sample(image, tf.concat([ucoory, lcoorx], 3)) * diffy * neg_diffx,
        ],
        name="sampled",
    )
    return sampled * scale


@under_name_scope()
def grid_of(theta):
    steps = np.arange(SIZE, dtype=np.float)
    ys, xs = np.meshgrid(steps, steps, indexing="ij")
    base = np.stack([ys, xs], axis=2)[np.newaxis].astype("float32")
    return tf.constant(base) + tf.reshape(theta, [-1, 1, 1, 2])


class Model(ModelDesc):
    def inputs(self):
        return [
            tf.placeholder(tf.float32, (None, SIZE, SIZE, 1), "input"),
            tf.placeholder(tf.float32, (None, SIZE, SIZE, 1), "target"),
        ]

    def build_graph(self, image, target):
        with tf.variable_scope("STN"), argscope(tf.layers.dense, activation=tf.nn.tanh):
            x = tf.concat([image, target], axis=3)
            with argscope([tf.layers.conv2d], padding="same", activation=tf.nn.relu):
                x = tf.layers.conv2d(x, 4, 3, name="conv0")
                x = tf.layers.max_pooling2d(x, 2, 2, name="pool0")
            x = tf.layers.dense(tf.layers.flatten(x), 8, name="fc1")
            theta = FullyConnected("fct", x, 2, kernel_initializer=tf.constant_initializer(0.05), use_bias=False)
        sampled = GridSample("warp", [image, grid_of(theta)])
        assert {"scale"} <= {v.op.name.split("/")[-1] for v in tf.trainable_variables()}
        error = tf.reduce_mean(tf.squared_difference(sampled, target), name="squared_error")
        add_moving_summary(psnr(sampled, target, 1.0, name="psnr"), rms(theta, name="theta_rms"))
        cost = tf.identity(error, name="cost")
        add_moving_summary(cost)
        tf.summary.image("aligned", tf.concat([image, sampled, target], 2), max_outputs=1)
        return print_stat(cost, "cost of each step") if self.training else cost

    def optimizer(self):
        opt = tf.train.AdamOptimizer(5e-3, epsilon=1e-3)
        return optimizer.apply_grad_processors(
            opt,
            [MapGradient(lambda grad: tf.clip_by_value(grad, -1, 1)), ScaleGradient([("STN.*", 0.5), ("warp.*", 2.0)])],
        )


class Shifted(RNGDataFlow):
    def __iter__(self):
        rng = np.random.RandomState(4)
        while True:
            image = np.zeros((SIZE, SIZE, 1), dtype="float32")
            y, x = rng.randint(2, 6, size=2)
            image[y : y + 3, x : x + 3] = rng.rand(3, 3, 1)
            yield [image, np.roll(image, 1, axis=1)]


if __name__ == "__main__":
    logger.auto_set_dir("d")
    norms = []
    launch_train_with_config(
        TrainConfig(
            model=Model(),
            data=QueueInput(BatchData(Shifted(), 8)),
            callbacks=[
                ModelSaver(),
                ProcessTensors(["STN/fct/output:0"], lambda theta: norms.append(float(np.abs(theta).max()))),
                PeriodicCallback(DumpTensors(["cost:0"]), every_k_epochs=2),
            ],
            steps_per_epoch=10,
            max_epoch=6,
        ),
        SimpleTrainer(),
    )
    assert len(norms) == 60 and np.isfinite(norms).all()
