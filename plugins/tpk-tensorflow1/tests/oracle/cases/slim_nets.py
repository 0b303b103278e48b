"""The networks of `slim.nets`: variables, end points and logits; the small images make them quick."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import slim
from tensorflow.contrib.slim import nets
from tensorflow.contrib.slim.nets import resnet_v2, vgg
from tensorflow.contrib.slim.python.slim.nets import alexnet, overfeat


def _images(size):
    return tf.constant(np.random.RandomState(0).rand(1, size, size, 3), tf.float32)


def _small():
    """Use weights that do not need random numbers."""
    weights = tf.constant_initializer(0.01)
    return slim.arg_scope([slim.conv2d, slim.fully_connected], weights_initializer=weights)


def _built(logits, ends):
    return {"logits": logits, "ends": sorted(ends), "sum": tf.reduce_mean(ends[sorted(ends)[0]])}


def large_networks():
    """Compare the variables and end points of networks that are too large to run."""
    results = {}
    networks = [
        (vgg.vgg_16, vgg.vgg_arg_scope, 224),
        (alexnet.alexnet_v2, alexnet.alexnet_v2_arg_scope, 224),
        (overfeat.overfeat, overfeat.overfeat_arg_scope, 231),
        (nets.resnet_v1.resnet_v1_50, resnet_v2.resnet_arg_scope, 224),
    ]
    for network, scope, size in networks:
        with tf.Graph().as_default(), slim.arg_scope(scope(weight_decay=0.1)):
            logits, ends = network(tf.zeros([1, size, size, 3]), 5, is_training=True)
            results[network.__name__] = {
                "logits": logits.get_shape().as_list(),
                "ends": sorted(ends),
                "variables": [each.op.name for each in tf.global_variables()],
                "shapes": [str(each.shape) for each in tf.global_variables()],
                "model variables": len(slim.get_model_variables()),
                "regularization": len(tf.losses.get_regularization_losses()),
            }
    return results


def resnet_v1_blocks():
    with slim.arg_scope(nets.resnet_v1.resnet_arg_scope(batch_norm_decay=0.9)), _small():
        blocks = [nets.resnet_v1.resnet_v1_block("block1", base_depth=2, num_units=2, stride=2)]
        logits, ends = nets.resnet_v1.resnet_v1(_images(32), blocks, 3, is_training=True)
    return _built(logits, ends)


def resnet_v2_with_output_stride():
    with slim.arg_scope(resnet_v2.resnet_arg_scope()), _small():
        blocks = [resnet_v2.resnet_v2_block(f"block{i}", base_depth=2, num_units=2, stride=2) for i in (1, 2)]
        net, ends = resnet_v2.resnet_v2(
            _images(64), blocks, None, is_training=False, global_pool=False, output_stride=8, scope="net"
        )
    return {"net": net, "ends": sorted(ends)}


def inception_v1_base():
    with slim.arg_scope(nets.inception.inception_v1_arg_scope()), _small():
        net, ends = nets.inception.inception_v1_base(_images(64), final_endpoint="Mixed_3c")
    return {"net": net, "ends": sorted(ends)}


def inception_v3_base():
    with slim.arg_scope(nets.inception.inception_v3_arg_scope()), _small():
        net, ends = nets.inception.inception_v3_base(_images(96), "Mixed_5b", depth_multiplier=0.25)
    return {"net": net, "ends": sorted(ends)}
