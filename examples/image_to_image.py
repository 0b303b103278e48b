"""Train an image-to-image GAN that fills in outlines, on shapes that it draws itself.

The generator gets the outline of a disc and a rectangle, and paints both: discs red, rectangles blue. The
discriminator sees the outline beside a painting, and judges each patch of it (pix2pix: Isola et al., 2016,
https://arxiv.org/abs/1611.07004). The generator's cost adds the absolute error.

After each epoch, `pairs-<epoch>.png` in the run directory shows outlines, paintings and the true images. Try
`--strategy replicated --devices 2`: without GPUs, it trains on logical CPU devices.
"""

import argparse

import numpy as np
import tensorflow as tf

import tpk
from tpk import layers
from tpk.dataflow import BatchData, DataFromList

SIZE, BATCH, IMAGES, SHOWN = 32, 16, 2048, 8
L1_WEIGHT = 100.0  # as in the paper


def draw_pair(rng):
    """Return an outline of shape [SIZE, SIZE, 1] and the painted image of shape [SIZE, SIZE, 3], from 0 to 1."""
    y, x = np.mgrid[:SIZE, :SIZE]
    row, column, radius = rng.uniform(7, SIZE - 7), rng.uniform(7, SIZE - 7), rng.uniform(3, 7)
    disc = np.hypot(y - row, x - column) <= radius
    top, left = rng.integers(1, SIZE - 13, 2)
    height, width = rng.integers(5, 12, 2)
    rectangle = (top <= y) & (y < top + height) & (left <= x) & (x < left + width)
    image = np.ones([SIZE, SIZE, 3], np.float32)
    image[rectangle] = 0.1, 0.2, 0.9
    image[disc] = 0.9, 0.1, 0.1
    outline = np.zeros([SIZE, SIZE], bool)
    for axis in (0, 1):
        outline |= (np.diff(image, axis=axis, append=1.0) != 0).any(2)
    return outline[..., None].astype(np.float32), image


def generator(outline, training):
    """Outlines → painted images. A U-Net: each layer on the way up also sees the one of its size on the way down."""
    with tf.compat.v1.variable_scope("generator"):
        down = [outline]
        for filters in (32, 64, 128):
            x = layers.conv2d(down[-1], filters, 4, strides=2, padding="same", use_bias=False)
            x = layers.batch_normalization(x, momentum=0.9, training=training)
            down.append(tf.nn.leaky_relu(x))
        x = down.pop()
        for filters in (64, 32, 16):
            x = layers.conv2d_transpose(x, filters, 4, strides=2, padding="same", use_bias=False)
            x = tf.nn.relu(layers.batch_normalization(x, momentum=0.9, training=training))
            x = tf.concat([x, down.pop()], 3)
        return layers.conv2d(x, 3, 3, padding="same", activation=tf.sigmoid)


def discriminator(outline, image):
    """Outlines and images → a logit for each patch: positive for those that look real."""
    with tf.compat.v1.variable_scope("discriminator", reuse=tf.compat.v1.AUTO_REUSE):
        x = tf.concat([outline, image], 3)
        x = layers.conv2d(x, 32, 4, strides=2, padding="same", activation=tf.nn.leaky_relu, name="conv1")
        x = layers.conv2d(x, 64, 4, strides=2, padding="same", activation=tf.nn.leaky_relu, name="conv2")
        return layers.conv2d(x, 1, 3, padding="same", name="logit")


def build_graph(outline, image):
    """The tower function. It returns the cost of each objective."""
    training = tpk.get_current_tower_context().is_training
    painted = tf.identity(generator(outline, training), name="painted")
    real, fake = discriminator(outline, image), discriminator(outline, painted)

    def cross_entropy(logits, target):
        labels = tf.fill(tf.shape(logits), target)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))

    error = tf.reduce_mean(tf.abs(painted - image), name="error")
    tpk.add_moving_summary(error)
    d_cost = tf.multiply(0.5, cross_entropy(real, 1.0) + cross_entropy(fake, 0.0), name="d_cost")
    g_cost = tf.add(cross_entropy(fake, 1.0), L1_WEIGHT * error, name="g_cost")
    return {"discriminator": d_cost, "generator": g_cost}


def optimizer():
    return tf.compat.v1.train.AdamOptimizer(1e-3, beta1=0.5)


class ShowPairs(tpk.Callback):
    """Shows outlines, painted images and true images, in three rows."""

    def __init__(self, pairs):
        self.outlines, self.images = (np.stack(each) for each in zip(*pairs, strict=True))

    def setup_graph(self, trainer):
        tower = trainer.build_inference_tower("ShowPairs")
        self.outline = tower["outline"]
        rows = tf.concat([tf.tile(1 - self.outline, [1, 1, 1, 3]), tower["painted"], self.images], 1)
        grid = tf.concat(tf.unstack(rows, SHOWN), 1)
        self.grid = tf.cast(255 * tf.repeat(tf.repeat(grid, 2, axis=0), 2, axis=1), tf.uint8)
        self.png = tf.io.encode_png(self.grid)

    def trigger_epoch(self, trainer):
        grid, png = trainer.sess.run([self.grid, self.png], {self.outline: self.outlines})
        trainer.monitors.put_image("pairs", grid)
        (trainer.run_dir / f"pairs-{trainer.epoch_num:03d}.png").write_bytes(png)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strategy", default="single", help="how a step is replicated (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="on how many devices (default: %(default)s)")
    parser.add_argument("--max-epoch", type=int, default=15, help="number of the last epoch (default: %(default)s)")
    parser.add_argument("--run-dir", help="where the run keeps its files (default: runs/<script>/<timestamp>)")
    parser.add_argument("--resume", default="never", choices=["auto", "must", "never"], help="resume that run")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    pairs = [draw_pair(rng) for _ in range(IMAGES)]
    batches = BatchData(DataFromList(pairs, shuffle=True, seed=0), BATCH)

    trainer = tpk.MultiObjectiveTrainer(tpk.use(args.strategy, devices=args.devices))
    with trainer.graph.as_default():
        tpk.set_random_seed(0)
    trainer.setup_graph(
        [
            tf.TensorSpec([None, SIZE, SIZE, 1], tf.float32, "outline"),
            tf.TensorSpec([None, SIZE, SIZE, 3], tf.float32, "image"),
        ],
        trainer.default_input(batches),
        build_graph,
        [
            tpk.Objective(optimizer, name="discriminator", variables="discriminator/"),
            tpk.Objective(optimizer, name="generator", variables="generator/"),
        ],
    )
    trainer.train_with_defaults(
        callbacks=[ShowPairs([draw_pair(rng) for _ in range(SHOWN)]), tpk.ModelSaver(max_to_keep=1)],
        steps_per_epoch=len(batches) // args.devices,
        max_epoch=args.max_epoch,
        run_dir=args.run_dir,
        resume=args.resume,
    )


if __name__ == "__main__":
    main()
