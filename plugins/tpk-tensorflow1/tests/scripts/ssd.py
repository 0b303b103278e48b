"""A single-shot detector: a slim base, heads with default boxes on several maps, and hard negative mining."""

import math

import numpy as np
import tensorflow as tf

slim = tf.contrib.slim
CLASSES = 3
MAPS = {"block4": (8, [0.2, 0.3], [1.0, 2.0]), "block6": (4, [0.5, 0.6], [1.0, 2.0, 0.5])}


def arg_scope(weight_decay=0.0005, data_format="NHWC"):
    with slim.arg_scope(
        [slim.conv2d, slim.fully_connected],
        activation_fn=tf.nn.relu,
        weights_regularizer=slim.l2_regularizer(weight_decay),
        weights_initializer=tf.contrib.layers.xavier_initializer(),
        biases_initializer=tf.zeros_initializer(),
    ):
        with slim.arg_scope([slim.conv2d, slim.max_pool2d], padding="SAME", data_format=data_format) as scope:
            return scope


def anchors_of(size, scales, ratios, dtype=np.float32):
    y, x = np.mgrid[0:size, 0:size]
    y, x = (np.expand_dims((each.astype(dtype) + 0.5) / size, -1) for each in (y, x))
    h = [scales[0], math.sqrt(scales[0] * scales[1])] + [scales[0] / math.sqrt(r) for r in ratios[1:]]
    w = [scales[0], math.sqrt(scales[0] * scales[1])] + [scales[0] * math.sqrt(r) for r in ratios[1:]]
    full = np.ones_like(y) * np.ones(len(h), dtype)
    return np.stack([y * full, x * full, h * full, w * full], -1).reshape(-1, 4).astype(dtype)


def net(inputs, is_training=True, keep_prob=0.5, reuse=None, scope="ssd_vgg"):
    end_points = {}
    with tf.variable_scope(scope, "ssd_vgg", [inputs], reuse=reuse):
        x = slim.repeat(inputs, 2, slim.conv2d, 4, [3, 3], scope="conv1")
        x = slim.max_pool2d(x, [2, 2], scope="pool1")
        x = slim.repeat(x, 2, slim.conv2d, 8, [3, 3], scope="conv2")
        end_points["block4"] = x
        x = slim.max_pool2d(x, [3, 3], stride=1, scope="pool5")
        x = slim.conv2d(x, 8, [3, 3], rate=2, scope="conv6")
        x = tf.layers.dropout(x, rate=keep_prob, training=is_training)
        with tf.variable_scope("block6"):
            x = slim.conv2d(x, 4, [1, 1], scope="conv1x1")
            x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="CONSTANT")
            end_points["block6"] = slim.conv2d(x, 8, [3, 3], stride=2, scope="conv3x3", padding="VALID")
        predictions, logits, locations = [], [], []
        for layer, (_, scales, ratios) in MAPS.items():
            with tf.variable_scope(layer + "_box"):
                features, boxes = end_points[layer], len(scales) + len(ratios) - 1
                if layer == "block4":
                    features = tf.nn.l2_normalize(features, -1) * tf.get_variable(
                        "gamma", [features.shape[-1].value], initializer=tf.constant_initializer(20.0)
                    )
                shape = features.get_shape().as_list()[1:-1]
                loc = slim.conv2d(features, boxes * 4, [3, 3], activation_fn=None, scope="conv_loc")
                cls = slim.conv2d(features, boxes * CLASSES, [3, 3], activation_fn=None, scope="conv_cls")
            locations.append(tf.reshape(loc, [-1, shape[0] * shape[1] * boxes, 4]))
            logits.append(tf.reshape(cls, [-1, shape[0] * shape[1] * boxes, CLASSES]))
            predictions.append(slim.softmax(logits[-1], scope="softmax"))
        return [tf.concat(each, axis=1) for each in (predictions, logits, locations)] + [end_points]


def encode(labels, bboxes, anchors):
    """Match the anchors with the boxes of an image, and return classes, offsets and scores."""
    centers, sizes = anchors[:, :2], anchors[:, 2:]
    low, high = centers - sizes / 2.0, centers + sizes / 2.0

    def body(i, classes, offsets, scores):
        box = bboxes[i]
        inner = tf.maximum(tf.minimum(high, box[2:]) - tf.maximum(low, box[:2]), 0.0)
        both = inner[:, 0] * inner[:, 1]
        union = sizes[:, 0] * sizes[:, 1] + tf.reduce_prod(box[2:] - box[:2]) - both
        jaccard = tf.div(both, union)
        better = tf.logical_and(tf.greater(jaccard, 0.3), tf.greater(jaccard, scores))
        box_offsets = tf.concat(
            [((box[:2] + box[2:]) / 2 - centers) / sizes / 0.1, tf.log((box[2:] - box[:2]) / sizes) / 0.2], 1
        )
        better_int = tf.cast(better, tf.int64)
        classes = better_int * labels[i] + (1 - better_int) * classes
        return [i + 1, classes, tf.where(better, box_offsets, offsets), tf.where(better, jaccard, scores)]

    count = anchors.shape[0]
    state = [0, tf.zeros([count], tf.int64), tf.zeros([count, 4]), tf.zeros([count])]
    return tf.while_loop(lambda i, *_: tf.less(i, tf.shape(labels)[0]), body, state)[1:]


def abs_smooth(x):
    absx = tf.abs(x)
    minx = tf.minimum(absx, 1)
    return 0.5 * ((absx - 1) * minx + absx)


def losses(logits, locations, classes, offsets, scores, negative_ratio=3.0, alpha=1.0):
    logits = tf.reshape(logits, [-1, CLASSES])
    classes, scores = tf.reshape(classes, [-1]), tf.reshape(scores, [-1])
    locations, offsets = tf.reshape(locations, [-1, 4]), tf.reshape(offsets, [-1, 4])
    pmask = scores > 0.3
    fpmask = tf.cast(pmask, tf.float32)
    n_positives = tf.reduce_sum(fpmask)
    nmask = tf.logical_not(pmask)
    nvalues = tf.where(nmask, slim.softmax(logits)[:, 0], 1.0 - tf.cast(nmask, tf.float32))
    max_neg_entries = tf.cast(tf.reduce_sum(tf.cast(nmask, tf.float32)), tf.int32)
    n_neg = tf.minimum(tf.cast(negative_ratio * n_positives, tf.int32) + 4, max_neg_entries)
    val, _ = tf.nn.top_k(-nvalues, k=n_neg)
    fnmask = tf.cast(tf.logical_and(nmask, nvalues < -val[-1]), tf.float32)
    batch_size = 2
    with tf.name_scope("cross_entropy_pos"):
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=classes)
        tf.losses.add_loss(tf.div(tf.reduce_sum(loss * fpmask), batch_size, name="value"))
    with tf.name_scope("cross_entropy_neg"):
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=tf.cast(pmask, tf.int32))
        tf.losses.add_loss(tf.div(tf.reduce_sum(loss * fnmask), batch_size, name="value"))
    with tf.name_scope("localization"):
        weights = tf.expand_dims(alpha * fpmask, axis=-1)
        loss = abs_smooth(locations - offsets)
        tf.losses.add_loss(tf.div(tf.reduce_sum(loss * weights), batch_size, name="value"))
    return n_neg


def nms(predictions, locations, anchors):
    """Return the best boxes of the first image, without those that overlap them."""
    centers = locations[0, :, :2] * anchors[:, 2:] * 0.1 + anchors[:, :2]
    sizes = tf.exp(locations[0, :, 2:] * 0.2) * anchors[:, 2:]
    boxes = tf.concat([centers - sizes / 2, centers + sizes / 2], 1)
    scores = predictions[0, :, 1]
    return tf.gather(boxes, tf.image.non_max_suppression(boxes, scores, 3, iou_threshold=0.45))


random = np.random.RandomState(0)
images = tf.constant(random.rand(2, 16, 16, 3), tf.float32)
labels = tf.constant([[1, 2], [2, 1]], tf.int64)
bboxes = tf.constant([[[0.1, 0.1, 0.4, 0.4], [0.4, 0.3, 0.9, 0.9]], [[0.5, 0.5, 0.8, 0.7], [0.0, 0.2, 0.6, 0.8]]])
all_anchors = np.concatenate([anchors_of(*each) for each in MAPS.values()])
with slim.arg_scope(arg_scope()):
    predictions, logits, locations, end_points = net(images, is_training=False)
encoded = zip(*[encode(*each, anchors=all_anchors) for each in zip(tf.unstack(labels), tf.unstack(bboxes))])
classes, offsets, scores = [tf.stack(each) for each in encoded]
n_neg = losses(logits, locations, classes, offsets, scores)
global_step = slim.create_global_step()
learning_rate = tf.train.exponential_decay(0.0002, global_step, 4, 0.9, staircase=True, name="exponential_decay")
optimizer = tf.train.MomentumOptimizer(learning_rate, momentum=0.9, name="Momentum")
total_loss = tf.losses.get_total_loss()
train_op = optimizer.minimize(total_loss, global_step)
detected = nms(predictions, locations, all_anchors)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    negatives, matched = sess.run([n_neg, classes])
    costs = [sess.run([total_loss, train_op])[0] for _ in range(10)]
    boxes, rate = sess.run([detected, learning_rate])
np.savez(
    "results.npz",
    costs=costs,
    negatives=negatives,
    matched=matched,
    boxes=boxes,
    rate=rate,
    variables=[v.op.name for v in slim.get_model_variables()],
)
