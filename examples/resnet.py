"""Train a ResNet-50 on folders of images, as for ImageNet, or on synthetic ones.

The folder has `train/<class>/*.jpg` and `val/<class>/*.jpg`. Worker processes read, crop, flip and colour the images;
the device gets bytes, and does the rest. Without `--data` the images are made on the device, which shows its speed.

    python examples/resnet.py --data imagenet --precision bfloat16 --workers 16
    python examples/resnet.py --data imagenet --strategy replicated --devices 8
"""

import argparse
import math
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

import tpk
from tpk import layers
from tpk.dataflow import BatchData, DataFromList, MapData, MultiProcessRunner

v1 = tf.compat.v1

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of the pixels of ImageNet
WEIGHT_DECAY, LABEL_SMOOTHING = 1e-4, 0.1


# The model


def resnet(image, classes, depth, training):
    """Images → logits (He et al., 2015, https://arxiv.org/abs/1512.03385, with the stride in the 3x3 convolutions)."""

    def convolve(x, filters, kernel, stride=1, gamma="ones"):
        x = layers.conv2d(x, filters, kernel, stride, "same", use_bias=False, kernel_initializer=he_normal)
        return layers.batch_normalization(x, momentum=0.9, epsilon=1e-5, gamma_initializer=gamma, training=training)

    def bottleneck(x, filters, stride):
        shortcut = x
        if stride > 1 or x.shape[-1] != 4 * filters:
            shortcut = convolve(x, 4 * filters, 1, stride)
        x = tf.nn.relu(convolve(x, filters, 1))
        x = tf.nn.relu(convolve(x, filters, 3, stride))
        # At first a block hands on its input, which makes large batches trainable (Goyal et al., 2017).
        return tf.nn.relu(shortcut + convolve(x, 4 * filters, 1, gamma="zeros"))

    he_normal = v1.variance_scaling_initializer(2.0, "fan_out")
    with v1.variable_scope("stem"):
        x = tf.nn.relu(convolve(image, 64, 7, 2))
        x = layers.max_pooling2d(x, 3, 2, "same")
    for group, count in enumerate(BLOCKS[depth]):
        for block in range(count):
            with v1.variable_scope(f"group{group}/block{block}"):
                x = bottleneck(x, 64 * 2**group, stride=2 if group > 0 and block == 0 else 1)
    x = tf.reduce_mean(x, [1, 2])
    return layers.dense(x, classes, kernel_initializer=v1.random_normal_initializer(stddev=0.01), name="logits")


class ResNet(tpk.ModelDesc):
    def __init__(self, args, classes, images, strategy):
        self.args, self.classes, self.images, self.strategy = args, classes, images, strategy

    def inputs(self):
        size = self.args.image_size
        return [tf.TensorSpec([None, size, size, 3], tf.uint8, "image"), tf.TensorSpec([None], tf.int64, "label")]

    def build_graph(self, image, label):
        training = tpk.get_current_tower_context().is_training
        image = (tf.cast(image, tf.float32) - MEAN) / STD
        image = tf.cast(image, v1.get_variable_scope().dtype)  # which is what --precision asks for
        logits = tf.cast(resnet(image, self.classes, self.args.depth, training), tf.float32, name="prediction")
        for k in (1, 5):
            wrong = tf.logical_not(tf.math.in_top_k(label, logits, k))
            wrong = tf.cast(wrong, tf.float32, name=f"wrong_top{k}")
            tpk.add_moving_summary(tf.reduce_mean(wrong, name=f"train_error_top{k}"))
        smoothing = LABEL_SMOOTHING / self.classes
        labels = tf.one_hot(label, self.classes, 1 - LABEL_SMOOTHING + smoothing, smoothing)
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, logits), name="cost")

    def optimizer(self):
        optimizer = v1.train.MomentumOptimizer(self.learning_rate(), 0.9, use_nesterov=True)
        # Batch normalization's gamma and beta do not decay.
        decay = tpk.MapGradient(lambda gradient, variable: gradient + WEIGHT_DECAY * variable, ".*/kernel")
        return tpk.apply_grad_processors(optimizer, [decay])

    def learning_rate(self):
        """A line up to the peak, then half a cosine, or steps down: a function of the step, so it needs no callback."""
        warm_up, last = self.args.warm_up, self.args.max_epoch
        total_batch = self.args.batch * self.strategy.num_replicas * self.strategy.world_size
        steps_per_epoch = self.args.steps_per_epoch or self.images // total_batch
        epoch = tf.cast(tpk.get_global_step_var() + 1, tf.float32) / steps_per_epoch
        if self.args.schedule == "cosine":
            rest = 0.5 + 0.5 * tf.cos(math.pi * tf.minimum((epoch - warm_up) / max(last - warm_up, 1), 1.0))
        else:
            rest = 0.1 ** tf.reduce_sum(tf.cast(epoch > np.array([1 / 3, 2 / 3, 8 / 9], np.float32) * last, tf.float32))
        return self.args.rate * total_batch / 256 * tf.where(epoch < warm_up, epoch / max(warm_up, 1), rest)


# The data


def find_images(folder):
    """The paths of `folder/<class>/<image>`: an array of bytes, as workers get that sooner than a list of strings."""
    paths = [path for path in folder.glob("*/*") if path.suffix.lower() in (".jpeg", ".jpg", ".png")]
    if not paths:
        raise SystemExit(f"no images in {folder}: expected {folder}/<class>/<image>.jpg")
    return np.array(sorted(str(path).encode() for path in paths))


def random_box(width, height):
    """A random part: 8 to 100 % of the area, 3:4 to 4:3 (Szegedy et al., 2014, https://arxiv.org/abs/1409.4842)."""
    for _ in range(10):
        area, aspect = random.uniform(0.08, 1) * width * height, (4 / 3) ** random.uniform(-1, 1)
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return left, top, left + w, top + h
    return 0, 0, width, height


def augment(image, size):
    image = image.resize((size, size), Image.Resampling.BILINEAR, random_box(*image.size))
    if random.random() < 0.5:
        image = ImageOps.mirror(image)
    jitters = [ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color]
    for jitter in random.sample(jitters, len(jitters)):
        image = jitter(image).enhance(random.uniform(0.6, 1.4))
    return image


def crop_center(image, size):
    return ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR, bleed=1 / 16)  # 7/8 of the shorter side


def read(path, transform, classes):
    """The path of an image → its pixels and its label. It runs in a worker, without TensorFlow."""
    path = Path(path.decode())
    with Image.open(path) as image:
        return [np.asarray(transform(image.convert("RGB"))), np.int64(classes.index(path.parent.name))]


def batches(files, classes, args, training):
    transform = partial(augment if training else crop_center, size=args.image_size)
    images = MapData(DataFromList(files, shuffle=training), partial(read, transform=transform, classes=classes))
    return MultiProcessRunner(BatchData(images, args.batch, remainder=not training), args.workers)


def synthetic_batch(args):
    shape = [args.batch, args.image_size, args.image_size, 3]
    image = tf.random.stateless_uniform(shape, seed=[0, 0], maxval=256, dtype=tf.int32)
    return [tf.cast(image, tf.uint8), tf.random.stateless_uniform([args.batch], [0, 1], 0, 1000, tf.int64)]


# The training


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with train/<class>/ and val/<class>/ (default: synthetic)")
    parser.add_argument("--depth", type=int, default=50, choices=BLOCKS, help="layers (default: %(default)s)")
    parser.add_argument("--image-size", type=int, default=224, help="width and height (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="images a step on each device (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=8, help="processes that read images (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=0.1, help="learning rate for 256 images (default: %(default)s)")
    parser.add_argument("--schedule", default="cosine", choices=["cosine", "steps"], help="(default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=5, help="epochs in which the rate rises (default: %(default)s)")
    parser.add_argument("--max-epoch", type=int, default=90, help="number of the last epoch (default: %(default)s)")
    parser.add_argument("--steps-per-epoch", type=int, help="(default: one pass over the images)")
    parser.add_argument("--strategy", default="single", help="how a step is replicated (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="on how many devices (default: %(default)s)")
    parser.add_argument("--precision", default="float32", help="or bfloat16, float16 (default: %(default)s)")
    parser.add_argument("--xla", action="store_true", help="compile the towers")
    parser.add_argument("--steps-per-run", type=int, default=1, help="steps in a call of TensorFlow (default: 1)")
    parser.add_argument("--run-dir", help="where the run keeps its files (default: runs/<script>/<timestamp>)")
    parser.add_argument("--resume", default="never", choices=["auto", "must", "never"], help="resume that run")
    parser.add_argument("--load", metavar="CHECKPOINT", help="start with the variables of this checkpoint")
    args = parser.parse_args()

    strategy = tpk.use(args.strategy, devices=args.devices)
    trainer = tpk.SingleCostTrainer(strategy, args.precision, args.xla, args.steps_per_run)
    trainer.resolve_plugins()  # The learning rate depends on the number of replicas.
    callbacks: list[tpk.Callback] = [tpk.ModelSaver(max_to_keep=3, asynchronous=True)]
    data: dict[str, Any]
    if args.data is None:
        args.steps_per_epoch = args.steps_per_epoch or 1000
        classes, files = list(map(str, range(1000))), []
        data = {"data": tpk.TensorInput(partial(synthetic_batch, args))}
    else:
        files = find_images(args.data / "train")
        classes = sorted(path.name for path in (args.data / "train").iterdir() if path.is_dir())
        data = {"dataflow": batches(files, classes, args, training=True)}
        validation = batches(find_images(args.data / "val"), classes, args, training=False)
        errors = [tpk.ClassificationError(f"wrong_top{k}", f"validation_error_top{k}") for k in (1, 5)]
        callbacks += [
            tpk.InferenceRunner(validation, errors, sanity_batches=2),
            tpk.MinSaver("validation_error_top1"),
            tpk.InputMonitor(),
        ]
    config = tpk.TrainConfig(
        model=ResNet(args, len(classes), len(files), trainer.strategy),
        callbacks=callbacks,
        session_init=args.load,
        steps_per_epoch=args.steps_per_epoch,
        max_epoch=args.max_epoch,
        run_dir=args.run_dir,
        resume=args.resume,
        seed=0,
        **data,
    )
    tpk.launch_train_with_config(config, trainer)


if __name__ == "__main__":
    main()
