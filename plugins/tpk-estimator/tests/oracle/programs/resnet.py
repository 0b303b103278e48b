"""In the shape of the official ResNet: batch normalization with update ops, weight decay, steps of the rate."""

import json

import numpy as np
import tensorflow.compat.v1 as tf

SIZE, CLASSES, BATCH = 8, 5, 8


def batch_norm(inputs, training):
    return tf.layers.batch_normalization(inputs, momentum=0.9, epsilon=1e-5, training=training, fused=True)


def conv(inputs, filters, kernel_size, strides):
    return tf.layers.conv2d(
        inputs,
        filters,
        kernel_size,
        strides,
        padding="SAME",
        use_bias=False,
        kernel_initializer=tf.variance_scaling_initializer(),
    )


def block(inputs, filters, strides, training):
    shortcut = inputs
    inputs = tf.nn.relu(batch_norm(inputs, training))
    if strides > 1:
        shortcut = conv(inputs, filters, 1, strides)
    inputs = tf.nn.relu(batch_norm(conv(inputs, filters, 3, strides), training))
    return conv(inputs, filters, 3, 1) + shortcut


def resnet(images, training):
    with tf.variable_scope("resnet_model"):
        y = conv(images, 4, 3, 1)
        y = block(y, 4, 1, training)
        y = block(y, 8, 2, training)
        y = tf.nn.relu(batch_norm(y, training))
        y = tf.identity(tf.reduce_mean(y, [1, 2], keepdims=True), "final_reduce_mean")
        return tf.identity(tf.layers.dense(tf.squeeze(y, [1, 2]), CLASSES), "final_dense")


def model_fn(features, labels, mode, params):
    tf.summary.image("images", features, max_outputs=2)
    logits = resnet(features, mode == tf.estimator.ModeKeys.TRAIN)
    predictions = {"classes": tf.argmax(logits, axis=1), "probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(
            mode=mode,
            predictions=predictions,
            export_outputs={"predict": tf.estimator.export.PredictOutput(predictions)},
        )
    cross_entropy = tf.losses.sparse_softmax_cross_entropy(logits=logits, labels=labels)
    l2_loss = params["weight_decay"] * tf.add_n(
        [tf.nn.l2_loss(tf.cast(v, tf.float32)) for v in tf.trainable_variables() if "batch_normalization" not in v.name]
    )
    tf.summary.scalar("l2_loss", l2_loss)
    loss = cross_entropy + l2_loss
    accuracy = tf.metrics.accuracy(labels, predictions["classes"])
    top_2 = tf.metrics.mean(tf.nn.in_top_k(predictions=logits, targets=labels, k=2, name="top_2_op"))
    train_op = None
    if mode == tf.estimator.ModeKeys.TRAIN:
        global_step = tf.train.get_or_create_global_step()
        rate = tf.train.piecewise_constant(tf.cast(global_step, tf.int32), [5, 10], [0.1, 0.05, 0.01])
        tf.identity(rate, name="learning_rate")
        tf.summary.scalar("learning_rate", rate)
        optimizer = tf.train.MomentumOptimizer(learning_rate=rate, momentum=0.9)
        update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        train_op = tf.group(optimizer.minimize(loss, global_step), update_ops)
    return tf.estimator.EstimatorSpec(
        mode=mode,
        predictions=predictions,
        loss=loss,
        train_op=train_op,
        eval_metric_ops={"accuracy": accuracy, "accuracy_top_2": top_2},
    )


def input_fn(number, seed):
    random = np.random.RandomState(seed)
    images = random.rand(number, SIZE, SIZE, 3).astype(np.float32)
    labels = images.mean((1, 2)).argmax(1).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((images, labels)).repeat().batch(BATCH).prefetch(1)


config = tf.estimator.RunConfig(save_checkpoints_secs=60 * 60 * 24, save_summary_steps=1)
classifier = tf.estimator.Estimator(model_fn, "model", config, params={"weight_decay": 2e-4})
for cycle in range(2):
    classifier.train(lambda: input_fn(40, 1), max_steps=8 * (cycle + 1))
    results = classifier.evaluate(lambda: input_fn(24, 2), steps=3)
    print(json.dumps({name: float(value) for name, value in sorted(results.items())}))
