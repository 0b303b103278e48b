"""The order at the end of an epoch is the one that `tpk.train.resume.checkpoints` lists."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

import tpk


class Counting(tpk.Trainer):
    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.train_op = tf.compat.v1.get_variable("counter", initializer=0).assign_add(1, read_value=False)

    def run_step(self):
        super().run_step()
        self.monitors.put_scalar("step", self.global_step)


class Recorder(tpk.Callback):
    """Records its hooks, and the mean over the epoch where it is known."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def after_epoch(self, trainer):
        self.log.append(f"after_epoch {self.name}")

    def trigger_epoch(self, trainer):
        self.log.append(f"trigger_epoch {self.name}")


class First(Recorder):
    @tpk.hookimpl(tryfirst=True)
    def trigger_epoch(self, trainer):
        self.log.append(f"mean {trainer.monitors.get_latest('step')}")
        self.log.append(f"trigger_epoch {self.name}")


class Last(Recorder):
    @tpk.hookimpl(trylast=True)
    def trigger_epoch(self, trainer):
        self.log.append(f"trigger_epoch {self.name}")


class Wrapper(Recorder):
    @tpk.hookimpl(wrapper=True)
    def trigger_epoch(self, trainer):
        self.log.append("before yield")
        result = yield
        self.log.append(f"after yield, saved {Path(tf.train.latest_checkpoint(trainer.run_dir)).name}")
        return result

    def before_checkpoint(self):
        self.log.append("before_checkpoint")

    def state_dict(self):
        self.log.append("state is taken")
        return {}


class Stop(Recorder):
    def trigger_epoch(self, trainer):
        trainer.request_stop("enough")
        super().trigger_epoch(trainer)

    def after_train(self, trainer):
        self.log.append("after_train")


class RecordingMonitor(tpk.Monitor):
    def __init__(self, log):
        self.log = log

    def process_scalar(self, name, value):
        pass

    def after_epoch(self, trainer):
        self.log.append("after_epoch monitor")

    def trigger_epoch(self, trainer):
        self.log.append("trigger_epoch monitor")


def test_a_training_follows_the_list(tmp_path):
    log = []
    callbacks = ["ModelSaver", Last(log, "last"), Stop(log, "a"), Wrapper(log, "w"), Recorder(log, "b")]
    callbacks += [First(log, "first"), Last(log, "last 2")]
    Counting().train(
        callbacks=callbacks, monitors=[RecordingMonitor(log)], steps_per_epoch=2, max_epoch=5, run_dir=tmp_path / "run"
    )
    assert log == [
        *(f"after_epoch {name}" for name in ("last", "a", "w", "b", "first", "last 2", "monitor")),
        "before yield",
        "mean 1.5",
        *(f"trigger_epoch {name}" for name in ("first", "a", "b", "last", "last 2", "monitor")),
        "before_checkpoint",
        "state is taken",
        "after yield, saved model-2",
        "after_train",
    ]
