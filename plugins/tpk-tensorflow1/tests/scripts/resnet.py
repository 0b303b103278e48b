"""A small residual network of slim.nets, restored in part and trained further."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import slim
from tensorflow.contrib.slim.nets import resnet_v1
from tensorflow.contrib.slim.python.slim.nets import resnet_utils


def network(images, num_classes, is_training):
    blocks = [
        resnet_v1.resnet_v1_block("block1", base_depth=2, num_units=2, stride=2),
        resnet_utils.Block("block2", resnet_v1.bottleneck, [{"depth": 16, "depth_bottleneck": 4, "stride": 1}]),
    ]
    with slim.arg_scope(resnet_v1.resnet_arg_scope(weight_decay=0.001, batch_norm_decay=0.9)):
        net, ends = resnet_v1.resnet_v1(images, blocks, num_classes, is_training=is_training, scope="resnet")
    return tf.squeeze(net, [1, 2]), ends


random = np.random.RandomState(0)
images = random.rand(6, 32, 32, 3).astype(np.float32)
classes = [0, 1, 2, 0, 1, 2]
results = {}
for run in ("first", "second"):
    with tf.Graph().as_default():
        logits, ends = network(tf.constant(images), 3, is_training=True)
        tf.losses.softmax_cross_entropy(slim.one_hot_encoding(classes, 3), logits)
        update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        with tf.control_dependencies(update_ops):
            loss = tf.losses.get_total_loss(add_regularization_losses=True, name="total_loss")
        step = slim.get_or_create_global_step()
        variables = slim.get_variables("resnet/logits") if run == "second" else None
        train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss, step, var_list=variables)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            if run == "second":
                restored = slim.get_variables_to_restore(exclude=["resnet/logits", "global_step"])
                restored = [v for v in restored if "Momentum" not in v.op.name]
                slim.assign_from_checkpoint_fn(tf.train.latest_checkpoint("."), restored)(sess)
                results["restored"] = [v.op.name for v in restored]
            results[run + " costs"] = [sess.run([loss, train])[0] for _ in range(6)]
            tf.train.Saver(slim.get_model_variables()).save(sess, "./model.ckpt", global_step=step)
        results[run + " ends"] = sorted(ends)
np.savez("results.npz", updates=len(update_ops), **results)
