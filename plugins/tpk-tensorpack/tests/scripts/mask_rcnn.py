#!/usr/bin/env python
"""A small Mask R-CNN: anchors that are memoized, a feature pyramid with shared heads, and masks of cropped features."""

import itertools

import numpy as np
import tensorflow as tf
from tensorpack import *  # noqa: F403
from tensorpack.models import Conv2D, Conv2DTranspose, FullyConnected, layer_register
from tensorpack.tfutils import optimizer
from tensorpack.tfutils.argscope import argscope
from tensorpack.tfutils.scope_utils import under_name_scope
from tensorpack.tfutils.summary import add_moving_summary
from tensorpack.utils.argtools import memoized

# ruff: noqa: F405, UP031, B905

SIZE, STRIDES, CHANNELS, CLASSES = 32, (4, 8), 8, 3


@memoized
def get_all_anchors(stride, size):
    """Return the square of each position of a level, as [size, size, 4]."""
    centers = (np.arange(SIZE // stride) + 0.5) * stride
    x, y = np.meshgrid(centers, centers)
    return np.stack([x - size, y - size, x + size, y + size], axis=-1).astype("float32")


@memoized
def get_all_anchors_fpn():
    return [get_all_anchors(stride, size=stride * 2) for stride in STRIDES]


def overlaps(boxes, box):
    low, high = np.maximum(boxes[..., :2], box[:2]), np.minimum(boxes[..., 2:], box[2:])
    inside = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = np.prod(boxes[..., 2:] - boxes[..., :2], axis=-1)
    return inside / (areas + np.prod(box[2:] - box[:2]) - inside)


def make_datapoint(seed):
    """Return an image, the labels of the anchors of each level, and the box, class and mask of one object."""
    rng = np.random.RandomState(seed)
    x, y, w, h = *rng.randint(0, 16, 2), *rng.randint(8, 16, 2)
    category = rng.randint(1, CLASSES)
    mask = np.zeros((SIZE, SIZE), "float32")
    mask[y : y + h, x : x + w] = 1
    image = np.stack([mask * category] * 3, axis=-1) + rng.normal(0, 0.1, (SIZE, SIZE, 3))
    box = np.array([x, y, x + w, y + h], "float32")
    labels = [(overlaps(anchors, box) > 0.4).astype("int32") for anchors in get_all_anchors_fpn()]
    return [image.astype("float32"), *labels, box[None], np.array([category], "int64"), mask[None]]


def get_train_dataflow():
    ds = DataFromList([[seed] for seed in range(8)], shuffle=False)
    return MultiProcessMapData(ds, num_proc=1, map_func=lambda dp: make_datapoint(*dp), buffer_size=2, strict=True)


@layer_register(log_shape=True)
def rpn_head(featuremap, channel):
    """Return the objectness of each position, as [height, width]."""
    with argscope(Conv2D, kernel_initializer=tf.random_normal_initializer(stddev=0.1)):
        hidden = Conv2D("conv0", featuremap, channel, 3, activation=tf.nn.relu)
        return tf.squeeze(Conv2D("class", hidden, 1, 1), [0, 3])


@under_name_scope()
def roi_align(featuremap, boxes, resolution):
    boxes = tf.stop_gradient(boxes) / SIZE
    boxes = tf.stack([boxes[:, 1], boxes[:, 0], boxes[:, 3], boxes[:, 2]], axis=1)
    return tf.image.crop_and_resize(featuremap, boxes, tf.zeros([tf.shape(boxes)[0]], tf.int32), [resolution] * 2)


class MaskRCNN(ModelDesc):
    def inputs(self):
        labels = [
            tf.TensorSpec((SIZE // stride, SIZE // stride), tf.int32, "anchor_labels_lvl%d" % level)
            for level, stride in enumerate(STRIDES, 2)
        ]
        return [
            tf.TensorSpec((SIZE, SIZE, 3), tf.float32, "image"),
            *labels,
            tf.TensorSpec((None, 4), tf.float32, "gt_boxes"),
            tf.TensorSpec((None,), tf.int64, "gt_labels"),
            tf.TensorSpec((None, SIZE, SIZE), tf.float32, "gt_masks"),
        ]

    def backbone(self, image):
        with argscope(Conv2D, strides=2, activation=tf.nn.relu):
            c2 = Conv2D("stem", image, CHANNELS, 3, strides=4)
            c3 = Conv2D("group1", c2, CHANNELS, 3)
        with tf.variable_scope("fpn"):
            p3 = Conv2D("lateral_3", c3, CHANNELS, 1)
            p2 = Conv2D("lateral_2", c2, CHANNELS, 1) + FixedUnPooling("upsample", p3, 2)
        return [p2, p3]

    def build_graph(self, *inputs):
        inputs = dict(zip([spec.name for spec in self.inputs()], inputs))
        features = self.backbone(tf.expand_dims(inputs["image"], 0))
        costs, scores = [], []
        for level, feature in enumerate(features, 2):
            with tf.variable_scope("rpn", reuse=tf.AUTO_REUSE) if level > 2 else tf.variable_scope("rpn"):
                logits = rpn_head("head", feature, CHANNELS)
            labels = tf.cast(inputs["anchor_labels_lvl%d" % level], tf.float32)
            entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
            costs.append(tf.reduce_mean(entropy, name="rpn_loss_lvl%d" % level))
            scores.append(tf.reshape(logits, [-1]))
        anchors = np.concatenate([each.reshape(-1, 4) for each in get_all_anchors_fpn()])
        _, best = tf.nn.top_k(tf.concat(scores, 0), 4, sorted=False)
        proposals = tf.clip_by_value(tf.gather(tf.constant(anchors), best), 0.0, float(SIZE), name="proposals")

        boxes = inputs["gt_boxes"]
        if get_current_tower_context().is_training:
            crops = roi_align(features[0], boxes, 7)
        else:
            crops = roi_align(features[0], proposals, 7)
        class_logits = FullyConnected("fastrcnn", crops, CLASSES)
        mask_logits = Conv2DTranspose("maskrcnn", crops, CLASSES, 2, strides=2)
        tf.nn.softmax(class_logits, name="output/probs")
        tf.sigmoid(mask_logits, name="output/masks")
        if not get_current_tower_context().is_training:
            return None
        costs.append(
            tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=inputs["gt_labels"], logits=class_logits),
                name="label_loss",
            )
        )
        targets = roi_align(tf.expand_dims(inputs["gt_masks"], 3), boxes, 14)
        own = tf.gather(tf.transpose(mask_logits, [0, 3, 1, 2]), inputs["gt_labels"], axis=1)[:, 0]
        mask_loss = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.squeeze(targets, 3), logits=own)
        costs.append(tf.reduce_mean(mask_loss, name="maskrcnn_loss"))
        costs.append(regularize_cost(".*/W", l2_regularizer(1e-4), name="wd_cost"))
        total = tf.add_n(costs, "total_cost")
        add_moving_summary(total, *costs)
        return total

    def optimizer(self):
        opt = tf.train.MomentumOptimizer(0.02, 0.9)
        return optimizer.apply_grad_processors(opt, [gradproc.GlobalNormClip(1.0)])


def main():
    logger.set_logger_dir("train_log/mask_rcnn", action="d")
    config = TrainConfig(
        model=MaskRCNN(),
        data=QueueInput(get_train_dataflow()),
        callbacks=[ModelSaver()],
        steps_per_epoch=50,
        max_epoch=2,
    )
    launch_train_with_config(config, SimpleTrainer())
    predict = OfflinePredictor(
        PredictConfig(
            model=MaskRCNN(),
            session_init=SmartInit("train_log/mask_rcnn/checkpoint"),
            input_names=["image"],
            output_names=["proposals", "output/probs", "output/masks"],
        )
    )
    proposals, probabilities, masks = predict(make_datapoint(0)[0])
    anchors = list(itertools.chain.from_iterable(get_all_anchors_fpn()))
    np.savez("mask_rcnn.npz", proposals=proposals, probabilities=probabilities, masks=masks, rows=len(anchors))


if __name__ == "__main__":
    main()
