"""A trainer of one's own: it sets `train_op`, and is otherwise a trainer like any other.

Two players learn against each other, which no "fit x to y" describes.
"""

import tensorflow as tf

import tpk


class MinMaxTrainer(tpk.Trainer):
    """Finds the saddle point of x² + 2xy - y², at the origin: `x` descends, and `y` ascends."""

    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            x = tf.compat.v1.get_variable("x", initializer=3.0)
            y = tf.compat.v1.get_variable("y", initializer=-2.0)
            value = tf.identity(x * x + 2 * x * y - y * y, name="value")
            optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.05)
            descend = optimizer.minimize(value, var_list=[x])
            ascend = optimizer.minimize(-value, var_list=[y])
            self.train_op = tf.group(descend, ascend)
            self.players = tf.stack([x, y], name="players")


class PrintPlayers(tpk.Callback):
    def trigger_epoch(self, trainer):
        x, y = trainer.sess.run(trainer.players)
        print(f"epoch {trainer.epoch_num}: x = {x:+.5f}, y = {y:+.5f}")


if __name__ == "__main__":
    MinMaxTrainer().train(callbacks=[PrintPlayers(), tpk.ProgressBar(["value"])], steps_per_epoch=50, max_epoch=4)
