from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk import layers
from tpk.graph.tower_options import compiled_by_xla

v1 = tf.compat.v1

BATCH = 8
MAIN_DEVICE = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"
"""Where ops are that are placed nowhere."""


class Model(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 4], tf.float32, "x"), tf.TensorSpec([None], tf.int64, "label")]

    def build_graph(self, x, label):
        training = tpk.get_current_tower_context().is_training
        hidden = layers.dense(x, 16, activation=tf.nn.relu)
        hidden = layers.batch_normalization(hidden, training=training)
        hidden = layers.dropout(hidden, 0.5, training=training)
        logits = tf.identity(layers.dense(hidden, 3), name="logits")
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        cost = tf.reduce_mean(loss, name="cost")
        tpk.add_moving_summary(cost)
        return cost

    def optimizer(self):
        return v1.train.AdamOptimizer(0.01)


class Small(Model):
    """Compiles in less time."""

    def build_graph(self, x, label):
        logits = tf.identity(layers.dense(x, 3), name="logits")
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        return tf.reduce_mean(loss, name="cost")


def batches(count, size=BATCH):
    rng = np.random.default_rng(0)
    return [[rng.normal(size=(size, 4)).astype(np.float32), rng.integers(0, 3, size)] for _ in range(count)]


class Look(tpk.Callback):
    """Keeps the costs, the variables before and after, and what the session ran in the first step."""

    def __init__(self):
        self.costs = []
        self.executed = Counter()

    def before_train(self, trainer):
        self._trainer = trainer
        self.initial = self._values(trainer)

    def before_run(self, run_context):
        options = None
        if not self.costs:
            options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
        cost = self._trainer.towers.training()[0].get_tensor("cost")
        return v1.train.SessionRunArgs(cost, options=options)

    def after_run(self, run_context, run_values):
        self.costs.append(float(run_values.results))
        if len(self.costs) == 1:
            self.executed = executed_ops(run_values.run_metadata)

    def after_train(self, trainer):
        self.graph, self.final = trainer.graph, self._values(trainer)

    def _values(self, trainer):
        return {variable.name: trainer.sess.run(variable) for variable in v1.global_variables()}


def executed_ops(metadata):
    """How often each type of op was executed, by device and type."""
    types = {node.name: node.op for graph in metadata.partition_graphs for node in graph.node}
    return Counter(
        (device.device.rsplit("/", 1)[-1].removeprefix("device:"), types[node.node_name])
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        if node.node_name in types
    )


def count_of(look, op_type, device=MAIN_DEVICE):
    return look.executed[device, op_type]


def train(xla, data, model=None, strategy="single", precision="float32", callbacks=(), steps=None):
    model, look = model or Model(), Look()
    trainer = tpk.SingleCostTrainer(strategy, precision=precision, xla=xla)
    with trainer.graph.as_default():
        v1.set_random_seed(1)
    trainer.setup_graph(model.get_input_signature(), tpk.FeedInput(data), model.build_graph, model.get_optimizer)
    callbacks = ["MovingAverageSummary", "MergeAllSummaries", "RunUpdateOps", *callbacks, look]
    trainer.train(callbacks=callbacks, steps_per_epoch=steps or len(data), max_epoch=1)
    return look


@pytest.fixture(scope="module")
def plain_and_compiled():
    # Two sizes of batches: each cluster is compiled twice.
    data = [*batches(4), *batches(2, BATCH - 3)]
    return train(False, data), train(True, data)


def test_clusters_are_compiled_and_executed(plain_and_compiled):
    plain, compiled = plain_and_compiled
    assert count_of(plain, "_XlaRun") == 0
    assert count_of(plain, "MatMul") >= 3
    assert count_of(compiled, "_XlaRun") >= 1
    # The forward and the backward pass are within the clusters.
    assert count_of(compiled, "MatMul") == 0


def test_training_is_the_same(plain_and_compiled):
    plain, compiled = plain_and_compiled
    for name, value in plain.initial.items():
        np.testing.assert_array_equal(compiled.initial[name], value, err_msg=name)
    np.testing.assert_allclose(compiled.costs, plain.costs, rtol=1e-5)
    for name, value in plain.final.items():
        np.testing.assert_allclose(compiled.final[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_the_graph_is_the_same(plain_and_compiled):
    def describe(look):
        graph = look.graph
        ops = [(op.name, op.type, [each.name for each in op.inputs]) for op in graph.get_operations()]
        keys = [v1.GraphKeys.SUMMARIES, v1.GraphKeys.UPDATE_OPS, v1.GraphKeys.GLOBAL_VARIABLES]
        return ops, {key: [each.name for each in graph.get_collection(key)] for key in keys}

    plain, compiled = plain_and_compiled
    assert describe(plain) == describe(compiled)


def test_half_precision_is_compiled():
    look = train(True, batches(2), Small(), precision="bfloat16")
    assert count_of(look, "_XlaRun") >= 1
    assert count_of(look, "MatMul") == 0
    assert look.final["dense/kernel:0"].dtype == np.float32
    np.testing.assert_allclose(look.costs, train(False, batches(2), Small()).costs, rtol=0.02)


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_each_tower_is_compiled_on_its_device(strategy):
    strategy = tpk.use(strategy, devices=["/cpu:0", "/cpu:1"])
    plain, compiled = (train(xla, batches(4), Small(), strategy, steps=2) for xla in (False, True))
    assert all(count_of(compiled, "_XlaRun", device) for device in ("CPU:0", "CPU:1"))
    np.testing.assert_allclose(compiled.costs, plain.costs, rtol=1e-5)


def test_inference_towers_are_compiled():
    class Predict(tpk.Callback):
        def setup_graph(self, trainer):
            self.predict = trainer.get_predictor(["x"], ["logits"])

        def after_train(self, trainer):
            options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
            metadata = v1.RunMetadata()
            feed = dict(zip(self.predict.inputs, batches(1)[0], strict=False))
            trainer.sess.run(self.predict.outputs, feed, options=options, run_metadata=metadata)
            self.executed = executed_ops(metadata)

    predict = Predict()
    train(True, batches(1), Small(), callbacks=[predict])
    assert predict.executed[MAIN_DEVICE, "_XlaRun"] >= 1
    assert predict.executed[MAIN_DEVICE, "MatMul"] == 0


def test_ops_that_cannot_be_compiled_run_uncompiled():
    class Mixed(Small):
        def build_graph(self, x, label):
            (x,) = tf.numpy_function(lambda values: [values * 2], [x], [tf.float32])
            x.set_shape([None, 4])
            count = tf.while_loop(lambda i, _: i < 3, lambda i, total: (i + 1, total * 2 + x), [0, x])[1]
            x = tf.cond(tf.reduce_sum(x) > 0, lambda: x + count, lambda: x - count)
            tf.strings.as_string(x, name="text")
            return super().build_graph(x, label)

    data = batches(3)
    plain, compiled = train(False, data, Mixed()), train(True, data, Mixed())
    assert count_of(compiled, "_XlaRun") >= 1
    np.testing.assert_allclose(compiled.costs, plain.costs, rtol=1e-5)


def test_without_xla_it_is_an_error(monkeypatch):
    monkeypatch.setattr(tf.test, "is_built_with_xla", lambda: False)
    with pytest.raises(tpk.ConfigError, match=r"xla=True, but TensorFlow .* was built without XLA"):
        tpk.SingleCostTrainer(xla=True)
    with pytest.raises(tpk.ConfigError, match="without XLA"):
        compiled_by_xla(Model().build_graph)
    tpk.SingleCostTrainer()


def test_a_string_is_not_a_flag():
    with pytest.raises(tpk.ConfigError, match="SimpleTrainer: xla must be True or False, not 'no'"):
        tpk.SimpleTrainer(xla="no")
