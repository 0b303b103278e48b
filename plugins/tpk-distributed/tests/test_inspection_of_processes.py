"""What looks at a training of several processes: it looks at the chief, and the training stays what it was."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import tensorflow as tf

import tpk

pytestmark = pytest.mark.once

v1 = tf.compat.v1
STEPS = 4
LOOKING = (
    tpk.use("DumpTensors", tensors=["x", "cost"], every_k_steps=2),
    tpk.use("TensorPrinter", tensors="cost"),
    tpk.use("GradientHistogram", every_k_steps=2),
    tpk.use("CheckNumerics"),
    tpk.use("DumpTensorAsImage", tensor="x", every_k_steps=4),
    tpk.use("DumpParamAsImage", variable="w"),
    tpk.use("GraphProfiler", steps=[3]),
)


def train(strategy, callbacks, run_dir):
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]

    def cost(x):
        w = v1.get_variable("w", [3, 1], initializer=v1.ones_initializer())
        return tf.reduce_mean((x @ w - 1) ** 2, name="cost")

    class Values(tpk.Callback):
        chief_only = False

        def after_train(self, trainer):
            self.values = (
                {} if trainer.loop.failure else {each.op.name: trainer.sess.run(each) for each in v1.global_variables()}
            )

    values, rng = Values(), np.random.default_rng(0)
    data = [[rng.normal(size=(2, 3)).astype(np.float32)] for _ in range(2 * STEPS)]
    trainer = tpk.SingleCostTrainer(strategy)
    trainer.setup_graph(
        [tf.TensorSpec([2, 3], tf.float32, "x")],
        tpk.QueueInput(data),
        cost,
        lambda: v1.train.GradientDescentOptimizer(0.1),
    )
    if not trainer.strategy.is_server:
        trainer.train(callbacks=[*callbacks, values], steps_per_epoch=STEPS, max_epoch=1, run_dir=run_dir)
    return getattr(values, "values", None), data, dict(trainer.history) if rank == 0 else {}


@pytest.mark.parametrize("strategy", ["collective", "distributed_replicated", "distributed_parameter_server"])
def test_the_chief_is_looked_at_and_the_training_is_the_same(launch, tmp_path, strategy):
    servers = 0 if strategy == "collective" else 1
    looked_at = launch(train, workers=2, servers=servers, args=(strategy, LOOKING, tmp_path / "run")).returned()
    if strategy != "distributed_parameter_server":  # Whose workers do not wait for each other.
        plain = launch(train, workers=2, servers=servers, args=(strategy, (), tmp_path / "plain")).returned()
        for (one, _, _), (other, _, _) in zip(plain, looked_at, strict=True):
            assert one
            assert all(np.array_equal(value, other[name]) for name, value in one.items())
    _, data, history = looked_at[0]
    for step in (2, 4):
        with np.load(tmp_path / "run" / f"DumpTensor-{step}.npz") as dumped:
            np.testing.assert_array_equal(dumped["x"], data[2 * (step - 1)][0])
    assert len(history["gradients/global_norm"]) == 2
    trace = json.loads((tmp_path / "run" / "chrome-trace-3.json").read_text())
    assert any(event.get("args", {}).get("op") == "MatMul" for event in trace["traceEvents"])
    names = {path.name for path in (tmp_path / "run").glob("*.png")}
    assert names == {"x-4.png", "w-4.png"}
    assert len(list((tmp_path / "run/plugins/profile/step-3").glob("*.xplane.pb"))) == 1


def test_a_bad_number_of_one_process_is_named(launch, tmp_path):
    def train_badly(run_dir):
        def cost(x):
            w = v1.get_variable("w", initializer=1.0)
            return tf.reduce_mean(tf.math.log(w * x, name="log"), name="cost")

        # The second process has every other datapoint.
        data = [[np.float32([0 if number == 5 else 1])] for number in range(2 * STEPS)]
        trainer = tpk.SingleCostTrainer("collective")
        optimizer = v1.train.GradientDescentOptimizer
        trainer.setup_graph([tf.TensorSpec([1], tf.float32, "x")], tpk.QueueInput(data), cost, lambda: optimizer(0.0))
        try:
            trainer.train(callbacks=["CheckNumerics"], steps_per_epoch=STEPS, max_epoch=1, run_dir=run_dir)
        except tpk.errors.TpkError as error:
            return type(error).__name__, str(error)

    _, second = launch(train_badly, workers=2, args=(tmp_path / "run",)).returned()
    assert second[0] == "NonFiniteError"
    assert "the first op that computed a bad number is 'tower0/log' (Log)" in second[1]
