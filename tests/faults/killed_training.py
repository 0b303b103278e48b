"""The training that is killed: `python killed_training.py RUN_DIR SCENARIO`, the scenario as JSON.

It does all that a checkpoint has to bring back, and says on stdout how far it is: ``began``, the global step after
each step, ``ending`` and ``ended``. At its end it leaves the values of all variables in ``final.npz``.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

import tpk
from tpk.dataflow import BatchData, DataFromList, MultiProcessRunner

v1 = tf.compat.v1

STEPS_PER_EPOCH, EPOCHS = 10, 4
LAST_STEP = STEPS_PER_EPOCH * EPOCHS


@attrs.frozen
class Scenario:
    """What differs between trainings."""

    input: str = "feed"
    strategy: str = "single"
    optimizer: str = "momentum"
    every_k_steps: int = 2
    max_to_keep: int = 3
    best: int = 2
    asynchronous: bool = False
    on_failure: str = "raise"
    width: int = 64


class Network(tpk.ModelDesc):
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def inputs(self):
        return [tf.TensorSpec([None, 16], tf.float32, "x"), tf.TensorSpec([None], tf.float32, "y")]

    def build_graph(self, x, y):
        training = tpk.get_current_tower_context().is_training
        hidden = tpk.layers.dense(x, self._scenario.width, activation=tf.nn.relu, name="hidden")
        hidden = tpk.layers.batch_normalization(hidden, training=training, name="norm")
        hidden = tpk.layers.dropout(hidden, 0.3, training=training)
        cost = tf.reduce_mean((tpk.layers.dense(hidden, 1, name="out")[:, 0] - y) ** 2, name="cost")
        tpk.add_moving_summary(cost)
        return cost

    def optimizer(self):
        rate = v1.get_variable("learning_rate", initializer=0.002, trainable=False)
        kinds = {"adam": v1.train.AdamOptimizer, "momentum": lambda rate: v1.train.MomentumOptimizer(rate, 0.9)}
        return tpk.MovingAverageOptimizer(kinds[self._scenario.optimizer](rate))


class Noise(tpk.Callback):
    """Reports numbers of the global generators and the norm of the weights."""

    def trigger_step(self, trainer):
        if trainer.global_step % 3:
            trainer.monitors.put_scalar("score", random.random())
        if trainer.global_step % 4 == 0:
            trainer.monitors.put_scalar("numpy", np.random.normal())

    def trigger_epoch(self, trainer):
        trainer.monitors.put_scalar("norm", np.linalg.norm(trainer.sess.run(v1.trainable_variables()[0])))


class Say(tpk.Callback):
    """Says how far the training is, and keeps what it ends with."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    @tpk.hookimpl(tryfirst=True)
    def before_train(self, trainer):
        say("began")

    def trigger_step(self, trainer):
        say(trainer.global_step)

    @tpk.hookimpl(trylast=True)
    def after_train(self, trainer):
        if trainer.loop.failure is None:
            variables = v1.global_variables()
            names = [variable.op.name.replace("/", "|") for variable in variables]
            np.savez(self._run_dir / "final.npz", **dict(zip(names, trainer.sess.run(variables), strict=True)))
        say("ending")


def say(what: Any) -> None:
    """Say it at once, since what a killed process has in its buffers is lost; and on a line of its own.

    Threads write to the same file meanwhile, and may be in the middle of a line.
    """
    sys.stdout.write(f"\n{what}\n")
    sys.stdout.flush()


def make_input(kind: str) -> tpk.InputSource:
    rng = np.random.default_rng(0)
    rows = [(row, np.float32(row.sum())) for row in rng.normal(size=(70, 16)).astype(np.float32)]
    flow = BatchData(DataFromList(rows, shuffle=True), 4)
    if kind == "feed":
        return tpk.FeedInput(flow)
    return tpk.QueueInput(MultiProcessRunner(flow, 2) if kind == "workers" else flow, queue_size=7)


def train(run_dir: Path, scenario: Scenario, **options: Any) -> None:
    strategies = {"single": "single", "replicated": tpk.use("replicated", devices=["/cpu:0", "/cpu:1"])}
    config = tpk.TrainConfig(
        model=Network(scenario),
        data=make_input(scenario.input),
        callbacks=[
            *options.pop("before", ()),
            tpk.ModelSaver(
                when=tpk.Every(steps=scenario.every_k_steps, epochs=1),
                max_to_keep=scenario.max_to_keep,
                asynchronous=scenario.asynchronous,
                on_failure=scenario.on_failure,
            ),
            Noise(),
            tpk.ScheduledHyperParamSetter("learning_rate", [(0, 0.002), (2, 0.001), (3, 0.0005)]),
            tpk.PeriodicTrigger(
                tpk.MinSaver("score", keep=scenario.best, on_failure=scenario.on_failure), every_k_steps=3
            ),
            tpk.SimpleMovingAverage(["cost"], 3),
            Say(run_dir),
        ],
        **{
            "monitors": ["JSONWriter", "TFEventWriter"],
            "steps_per_epoch": STEPS_PER_EPOCH,
            "max_epoch": EPOCHS,
            "run_dir": run_dir,
            "resume": "auto",
            "seed": 11,
            **options,
        },
    )
    tpk.launch_train_with_config(config, strategies[scenario.strategy])


def main(run_dir: str, scenario: dict[str, Any]) -> None:
    train(Path(run_dir), Scenario(**scenario))
    say("ended")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
