"""Train a conditional GAN on the handwritten digits of scikit-learn: you choose which digit it generates.

Both networks see the label (Mirza and Osindero, 2014, https://arxiv.org/abs/1411.1784): the generator next to its
noise, the discriminator as ten more channels of the image.

After each epoch, `digits-<epoch>.png` in the run directory has a row for each digit from 0 to 9. Try `--strategy
replicated --devices 2`: without GPUs, it trains on logical CPU devices.
"""

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tpk
from tpk import layers
from tpk.dataflow import BatchData, DataFromList

BATCH, NOISE, CLASSES, COLUMNS = 32, 32, 10, 8


def generator(noise, label, training):
    """Noise of shape [batch, NOISE] and labels of shape [batch] → images of shape [batch, 8, 8, 1] from 0 to 1."""
    with tf.compat.v1.variable_scope("generator"):
        x = tf.concat([noise, tf.one_hot(label, CLASSES)], 1)
        x = layers.dense(x, 2 * 2 * 128, use_bias=False)
        x = tf.nn.relu(layers.batch_normalization(x, momentum=0.9, training=training))
        x = tf.reshape(x, [-1, 2, 2, 128])
        x = layers.conv2d_transpose(x, 64, 4, strides=2, padding="same", use_bias=False)
        x = tf.nn.relu(layers.batch_normalization(x, momentum=0.9, training=training))
        return layers.conv2d_transpose(x, 1, 4, strides=2, padding="same", activation=tf.sigmoid)


def discriminator(image, label, training):
    """Images and their labels → a logit for each: positive for those that look like a real image of the label."""
    with tf.compat.v1.variable_scope("discriminator", reuse=tf.compat.v1.AUTO_REUSE):
        channels = tf.tile(tf.one_hot(label, CLASSES)[:, None, None], [1, 8, 8, 1])
        x = tf.concat([image, channels], 3)
        x = layers.conv2d(x, 64, 4, strides=2, padding="same", activation=tf.nn.leaky_relu, name="conv1")
        x = layers.conv2d(x, 128, 4, strides=2, padding="same", activation=tf.nn.leaky_relu, name="conv2")
        x = layers.dropout(layers.flatten(x), 0.3, training=training)
        return layers.dense(x, 1, name="logit")[:, 0]


def build_graph(image, label):
    """The tower function. It returns the cost of each objective."""
    training = tpk.get_current_tower_context().is_training
    noise = tf.random.normal([tf.shape(image)[0], NOISE], name="noise")
    generated = tf.identity(generator(noise, label, training), name="generated")
    real, fake = discriminator(image, label, training), discriminator(generated, label, training)

    def cross_entropy(logits, target):
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.fill(tf.shape(logits), target), logits=logits)

    d_cost = tf.reduce_mean(cross_entropy(real, 0.9) + cross_entropy(fake, 0.0), name="d_cost")
    g_cost = tf.reduce_mean(cross_entropy(fake, 1.0), name="g_cost")
    return {"discriminator": d_cost, "generator": g_cost}


def optimizer():
    return tf.compat.v1.train.AdamOptimizer(1e-3, beta1=0.5)


class ShowDigits(tpk.Callback):
    """Shows a row of generated images for each digit, always from the same noise."""

    noise = np.tile(np.random.default_rng(0).normal(size=[COLUMNS, NOISE]), [CLASSES, 1])
    labels = np.repeat(np.arange(CLASSES), COLUMNS)

    def setup_graph(self, trainer):
        tower = trainer.build_inference_tower("ShowDigits")
        self.inputs = {tower["noise"]: self.noise, tower["label"]: self.labels}
        digits = tf.pad(tower["generated"], [[0, 0], [1, 1], [1, 1], [0, 0]])
        rows = tf.transpose(tf.reshape(digits, [CLASSES, COLUMNS, 10, 10]), [0, 2, 1, 3])
        grid = tf.reshape(rows, [CLASSES * 10, COLUMNS * 10, 1])
        self.grid = tf.cast(255 * tf.repeat(tf.repeat(grid, 4, axis=0), 4, axis=1), tf.uint8)
        self.png = tf.io.encode_png(self.grid)

    def trigger_epoch(self, trainer):
        grid, png = trainer.sess.run([self.grid, self.png], self.inputs)
        trainer.monitors.put_image("digits", grid)
        (trainer.run_dir / f"digits-{trainer.epoch_num:03d}.png").write_bytes(png)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strategy", default="single", help="how a step is replicated (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="on how many devices (default: %(default)s)")
    parser.add_argument("--max-epoch", type=int, default=60, help="number of the last epoch (default: %(default)s)")
    parser.add_argument("--run-dir", help="where the run keeps its files (default: runs/<script>/<timestamp>)")
    parser.add_argument("--resume", default="never", choices=["auto", "must", "never"], help="resume that run")
    args = parser.parse_args()

    data = load_digits()
    images = (data.images / 16).astype(np.float32)[..., None]
    labels = data.target.astype(np.int32)
    batches = BatchData(DataFromList(list(zip(images, labels, strict=True)), shuffle=True, seed=0), BATCH)

    trainer = tpk.MultiObjectiveTrainer(tpk.use(args.strategy, devices=args.devices))
    with trainer.graph.as_default():
        tpk.set_random_seed(0)
    trainer.setup_graph(
        [tf.TensorSpec([None, 8, 8, 1], tf.float32, "image"), tf.TensorSpec([None], tf.int32, "label")],
        trainer.default_input(batches),
        build_graph,
        [
            tpk.Objective(optimizer, name="discriminator", variables="discriminator/"),
            tpk.Objective(optimizer, name="generator", variables="generator/"),
        ],
    )
    trainer.train_with_defaults(
        callbacks=[ShowDigits(), tpk.ModelSaver(max_to_keep=1)],
        steps_per_epoch=len(batches) // args.devices,
        max_epoch=args.max_epoch,
        run_dir=args.run_dir,
        resume=args.resume,
    )


if __name__ == "__main__":
    main()
