"""A custom callback that overrides all hooks and records their calls, with top-level names of TensorFlow 1."""

# ruff: noqa: F403, F405

import numpy as np
import tensorflow as tf
from tensorpack import *
from tensorpack.callbacks import Callback
from tensorpack.tfutils.summary import add_moving_summary


class Model(ModelDesc):
    def inputs(self):
        return [tf.placeholder(tf.float32, [None, 2], "x")]

    def build_graph(self, x):
        w = tf.get_variable("w", shape=[2], initializer=tf.ones_initializer())
        cost = tf.reduce_sum(tf.square(w * x), name="cost")
        add_moving_summary(cost)
        return cost

    def optimizer(self):
        return tf.train.GradientDescentOptimizer(0.1)


class Recorder(Callback):
    def __init__(self):
        self.calls = []
        self.costs = []
        self.temperature, self.noise, self.noises = 1.0, None, []

    def _note(self, name):
        self.calls.append((name, self.epoch_num, self.local_step, self.global_step))

    def _setup_graph(self):
        (self.cost,) = self.get_tensors_maybe_in_tower(["cost:0"])
        self.double = tf.multiply(self.cost, 2, name="double")
        assert self.graph is tf.get_default_graph()

    def _before_train(self):
        self._note("before_train")

    def _before_epoch(self):
        self._note("before_epoch")

    def _before_run(self, _):
        return tf.train.SessionRunArgs([self.cost, self.double])

    def _after_run(self, _, run_values):
        cost, double = run_values.results
        assert double == 2 * cost
        self.costs.append(float(cost))

    def _trigger_step(self):
        self.noises.append(self.noise)
        self._note("trigger_step")

    def _after_epoch(self):
        self._note("after_epoch")

    def _trigger_epoch(self):
        self._note("trigger_epoch")
        self.trainer.monitors.put_scalar("steps_so_far", self.global_step)
        super()._trigger_epoch()

    def _trigger(self):
        self._note("trigger")

    def _after_train(self):
        self._note("after_train")
        np.savez(
            "calls.npz", calls=np.array(self.calls, dtype=object).astype(str), costs=self.costs, noises=self.noises
        )


if __name__ == "__main__":
    logger.set_logger_dir("train_log/hooks", action="d")
    data = DataFromList([[np.full([3, 2], n, dtype="float32")] for n in (0.5, 1.0)], shuffle=False)
    recorder = Recorder()
    config = TrainConfig(
        model=Model(),
        data=FeedInput(data),
        callbacks=[
            recorder,
            PeriodicTrigger(ModelSaver(), every_k_epochs=2),
            HumanHyperParamSetter(ObjAttrParam(recorder, "temperature")),
            ScheduledHyperParamSetter(ObjAttrParam(recorder, "noise"), [(0, 1.0), (4, 0.0)], "linear", step_based=True),
        ],
        extra_callbacks=[MovingAverageSummary(), MergeAllSummaries(), RunUpdateOps()],
        monitors=[JSONWriter(), ScalarPrinter()],
        steps_per_epoch=2,
        max_epoch=3,
    )
    launch_train_with_config(config, SimpleTrainer())
