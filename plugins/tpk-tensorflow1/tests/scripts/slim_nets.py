"""A residual network and a single-shot detector of slim layers, with argument scopes and end points."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import slim

BOXES, CLASSES = 4, 3


def arg_scope(weight_decay=0.0004, is_training=True):
    batch_norm_params = {"decay": 0.9, "epsilon": 1e-5, "scale": True, "is_training": is_training}
    with slim.arg_scope([slim.batch_norm], **batch_norm_params) as scope:
        pass
    with slim.arg_scope(scope):
        with slim.arg_scope(
            [slim.conv2d],
            weights_regularizer=slim.l2_regularizer(weight_decay),
            weights_initializer=slim.variance_scaling_initializer(),
            normalizer_fn=slim.batch_norm,
            normalizer_params=batch_norm_params,
        ) as scope:
            return scope


@slim.add_arg_scope
def bottleneck(inputs, depth, stride, outputs_collections=None, scope=None):
    with tf.variable_scope(scope, "bottleneck", [inputs]) as sc:
        preact = slim.batch_norm(inputs, activation_fn=tf.nn.relu, scope="preact")
        shortcut = slim.conv2d(
            preact, depth, [1, 1], stride=stride, normalizer_fn=None, activation_fn=None, scope="shortcut"
        )
        residual = slim.conv2d(preact, depth // 2, [1, 1], scope="conv1")
        residual = slim.conv2d(residual, depth // 2, 3, stride=stride, scope="conv2")
        residual = slim.conv2d(residual, depth, [1, 1], normalizer_fn=None, activation_fn=None, scope="conv3")
        return slim.utils.collect_named_outputs(outputs_collections, sc.name, shortcut + residual)


def network(images, scope="ssd"):
    with tf.variable_scope(scope, values=[images]) as sc:
        end_points_collection = sc.original_name_scope + "_end_points"
        with slim.arg_scope([slim.conv2d, slim.max_pool2d, bottleneck], outputs_collections=end_points_collection):
            net = slim.conv2d(images, 4, 3, stride=2, scope="conv1")
            net = slim.repeat(net, 2, slim.conv2d, 4, [3, 3], scope="conv2")
            net = slim.max_pool2d(net, [2, 2], padding="SAME", scope="pool2")
            for number in range(2):
                net = bottleneck(net, 8, 2, scope="unit_%d" % (number + 1))
        end_points = slim.utils.convert_collection_to_dict(end_points_collection)
        predictions, locations = [], []
        for name in ("ssd/unit_1", "ssd/unit_2"):
            layer = end_points[name]
            box = tf.variable_scope(name.split("/")[1] + "_box")
            with box, slim.arg_scope([slim.conv2d], activation_fn=None, normalizer_fn=None):
                loc = slim.conv2d(layer, BOXES * 4, [3, 3], scope="conv_loc")
                cls = slim.conv2d(layer, BOXES * CLASSES, [3, 3], scope="conv_cls")
            locations.append(tf.reshape(loc, [tf.shape(loc)[0], -1, 4]))
            predictions.append(tf.reshape(cls, [tf.shape(cls)[0], -1, CLASSES]))
        return tf.concat(predictions, 1), tf.concat(locations, 1), end_points


random = np.random.RandomState(0)
pictures = random.rand(4, 32, 32, 3).astype(np.float32)
with slim.arg_scope(arg_scope()):
    logits, boxes, ends = network(tf.placeholder_with_default(pictures, [None, 32, 32, 3]))
anchors = sum(BOXES * size * size for size in (4, 2))
labels = tf.constant(random.randint(0, CLASSES, [4, anchors]))
tf.losses.sparse_softmax_cross_entropy(labels, logits)
positive = tf.cast(labels > 0, tf.float32)
tf.losses.compute_weighted_loss(tf.reduce_sum(tf.abs(boxes - 0.5), -1), positive)
total_loss = tf.losses.get_total_loss()
global_step = slim.get_or_create_global_step()
optimizer = tf.train.MomentumOptimizer(tf.train.exponential_decay(0.02, global_step, 5, 0.9), 0.9)
updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
with tf.control_dependencies(updates):
    train_op = optimizer.minimize(total_loss, global_step=global_step)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    costs = [sess.run([total_loss, train_op])[0] for _ in range(8)]
    mean = sess.run(slim.get_variables_by_name("moving_mean")[0])
np.savez(
    "results.npz",
    costs=costs,
    mean=mean,
    variables=sorted(v.op.name for v in slim.get_variables_to_restore(exclude=["ssd/unit_1_box"])),
    ends=sorted(ends),
    regularization=len(tf.losses.get_regularization_losses()),
)
