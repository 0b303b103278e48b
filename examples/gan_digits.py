"""Train a DCGAN-like pair on the handwritten digits of scikit-learn, on one device or many.

Two networks have opposite goals: the discriminator tells real digits from generated ones, and the generator makes what
the discriminator takes for real. Each is an objective: a cost, an optimizer, and the variables that it may change.

After each epoch, `digits-<epoch>.png` in the run directory and the images in TensorBoard show what the generator makes
of always the same noise. Try `--strategy replicated --devices 2`: without GPUs, it trains on logical CPU devices.
"""

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tpk
from tpk import layers
from tpk.dataflow import BatchData, DataFromList

BATCH, NOISE = 32, 32


def generator(noise, training):
    """Noise of shape [batch, NOISE] → images of shape [batch, 8, 8, 1] from 0 to 1."""
    with tf.compat.v1.variable_scope("generator"):
        x = layers.dense(noise, 2 * 2 * 128, use_bias=False)
        x = tf.nn.relu(layers.batch_normalization(x, momentum=0.9, training=training))
        x = tf.reshape(x, [-1, 2, 2, 128])
        x = layers.conv2d_transpose(x, 64, 4, strides=2, padding="same", use_bias=False)
        x = tf.nn.relu(layers.batch_normalization(x, momentum=0.9, training=training))
        return layers.conv2d_transpose(x, 1, 4, strides=2, padding="same", activation=tf.sigmoid)


def discriminator(image, training):
    """Images → a logit for each: positive for those that look real. The second call shares the variables."""
    with tf.compat.v1.variable_scope("discriminator", reuse=tf.compat.v1.AUTO_REUSE):
        x = layers.conv2d(image, 64, 4, strides=2, padding="same", activation=tf.nn.leaky_relu, name="conv1")
        x = layers.conv2d(x, 128, 4, strides=2, padding="same", activation=tf.nn.leaky_relu, name="conv2")
        x = layers.dropout(layers.flatten(x), 0.3, training=training)
        return layers.dense(x, 1, name="logit")[:, 0]


def build_graph(image):
    """The tower function: one replicate of the pair. It returns the cost of each objective."""
    training = tpk.get_current_tower_context().is_training
    noise = tf.random.normal([tf.shape(image)[0], NOISE], name="noise")
    generated = tf.identity(generator(noise, training), name="generated")
    real, fake = discriminator(image, training), discriminator(generated, training)

    def cross_entropy(logits, label):
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.fill(tf.shape(logits), label), logits=logits)

    # Labels of 0.9 rather than 1 keep the discriminator from being too sure of itself.
    d_cost = tf.reduce_mean(cross_entropy(real, 0.9) + cross_entropy(fake, 0.0), name="d_cost")
    g_cost = tf.reduce_mean(cross_entropy(fake, 1.0), name="g_cost")
    return {"discriminator": d_cost, "generator": g_cost}


def optimizer():
    return tf.compat.v1.train.AdamOptimizer(1e-3, beta1=0.5)


class ShowDigits(tpk.Callback):
    """Shows a grid of generated digits after each epoch, of the same noise, so you can watch them become digits."""

    noise = np.random.default_rng(0).normal(size=[64, NOISE])

    def setup_graph(self, trainer):
        # An inference tower calls the tower function again, with the variables of the training towers.
        tower = trainer.build_inference_tower("ShowDigits")
        self.noise_tensor = tower["noise"]
        digits = tf.pad(tower["generated"], [[0, 0], [1, 1], [1, 1], [0, 0]])
        rows = tf.transpose(tf.reshape(digits, [8, 8, 10, 10]), [0, 2, 1, 3])
        enlarged = tf.repeat(tf.repeat(tf.reshape(rows, [80, 80, 1]), 4, axis=0), 4, axis=1)
        self.grid = tf.cast(255 * enlarged, tf.uint8)
        self.png = tf.io.encode_png(self.grid)

    def trigger_epoch(self, trainer):
        grid, png = trainer.sess.run([self.grid, self.png], {self.noise_tensor: self.noise})
        trainer.monitors.put_image("digits", grid)
        (trainer.run_dir / f"digits-{trainer.epoch_num:03d}.png").write_bytes(png)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strategy", default="single", help="how a step is replicated (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="on how many devices (default: %(default)s)")
    parser.add_argument("--update", default="in_turn", choices=["in_turn", "together"], help="(default: %(default)s)")
    parser.add_argument("--every", type=int, default=1, help="train the discriminator in every k-th step only")
    parser.add_argument("--max-epoch", type=int, default=60, help="number of the last epoch (default: %(default)s)")
    parser.add_argument("--run-dir", help="where the run keeps its files (default: runs/<script>/<timestamp>)")
    parser.add_argument("--resume", default="never", choices=["auto", "must", "never"], help="resume that run")
    args = parser.parse_args()

    images = (load_digits().images / 16).astype(np.float32)[..., None]
    batches = BatchData(DataFromList([[image] for image in images], shuffle=True, seed=0), BATCH)

    trainer = tpk.MultiObjectiveTrainer(tpk.use(args.strategy, devices=args.devices), update=args.update)
    with trainer.graph.as_default():
        tpk.set_random_seed(0)
    trainer.setup_graph(
        [tf.TensorSpec([None, 8, 8, 1], tf.float32, "image")],
        trainer.default_input(batches),
        build_graph,
        [
            tpk.Objective(optimizer, name="discriminator", variables="discriminator/", every=args.every),
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
