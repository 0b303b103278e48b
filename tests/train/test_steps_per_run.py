"""Many steps in one run: what they compute is what they would, each in a run of its own."""

import numpy as np
import pytest
import tensorflow as tf

import tpk

STEPS = 23

rng = np.random.default_rng(0)
IMAGES = rng.normal(size=(40, 4, 6, 6, 1)).astype(np.float32)
LABELS = rng.integers(0, 3, size=(40, 4)).astype(np.int32)
BATCHES = list(zip(IMAGES, LABELS, strict=True))


class Model(tpk.ModelDesc):
    """A convolution, batch normalization, dropout, a moving summary, a schedule in the graph."""

    def __init__(self, optimizer="momentum"):
        self._optimizer = optimizer

    def inputs(self):
        return [tf.TensorSpec([4, 6, 6, 1], tf.float32, "image"), tf.TensorSpec([4], tf.int32, "label")]

    def build_graph(self, image, label):
        training = tpk.get_current_tower_context().is_training
        net = tpk.layers.conv2d(image, 4, 3)
        net = tf.nn.relu(tpk.layers.batch_normalization(net, training=training))
        net = tpk.layers.dropout(tpk.layers.flatten(net), 0.3, training=training)
        logits = tpk.layers.dense(net, 3)
        cost = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits), name="cost")
        tpk.add_moving_summary(cost)
        return cost

    def optimizer(self):
        rate = tf.compat.v1.train.exponential_decay(0.05, tf.compat.v1.train.get_global_step(), 5, 0.9)
        if self._optimizer == "adam":
            return tf.compat.v1.train.AdamOptimizer(rate)
        return tf.compat.v1.train.MomentumOptimizer(rate, 0.9)


def dataset():
    return tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))


def drawn():
    shuffled = tpk.graph.random.normal([4, 6, 6, 1], name="images")
    return [shuffled, tf.constant([0, 1, 2, 0], tf.int32)]


INPUTS = {
    "queue": lambda: tpk.QueueInput(BATCHES),
    "staging": lambda: tpk.StagingInput(tpk.QueueInput(BATCHES)),
    "staged feed": lambda: tpk.StagingInput(tpk.FeedInput(BATCHES)),
    "dataset": lambda: tpk.TFDatasetInput(dataset),
    "tensors": lambda: tpk.TensorInput(drawn),
}
STRATEGIES = {
    "single": "single",
    "replicated": tpk.use("replicated", devices=2),
    "parameter_server": tpk.use("parameter_server", devices=2),
}


class Values(tpk.Callback):
    """Reads all variables at the end, and notes where the steps of the runs were."""

    def __init__(self):
        self.values = {}
        self.steps = []

    def trigger_step(self, trainer):
        self.steps.append((trainer.local_step, trainer.global_step))

    def after_train(self, trainer):
        variables = trainer.graph.get_collection("variables")
        self.values = dict(zip([v.name for v in variables], trainer.sess.run(variables), strict=True))


def train(k, strategy="single", data="queue", model=None, callbacks=(), steps=STEPS, epochs=2, **options):
    values = Values()
    config = tpk.TrainConfig(
        model=model or Model(),
        data=INPUTS[data]() if isinstance(data, str) else data,
        callbacks=[values, *callbacks],
        monitors=[],
        steps_per_epoch=steps,
        max_epoch=epochs,
        steps_per_run=k,
        seed=3,
        **options,
    )
    trainer = tpk.launch_train_with_config(config, strategy)
    return values, trainer


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("data", INPUTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_variables_are_the_same_bits(strategy, data, tmp_path):
    """Whatever k is, and whether it divides the steps of the epoch."""
    alone, _ = train(1, STRATEGIES[strategy], data, run_dir=tmp_path / "1")
    many, trainer = train(8, STRATEGIES[strategy], data, run_dir=tmp_path / "8")
    assert many.steps == [(7, 8), (15, 16), (22, 23), (7, 31), (15, 39), (22, 46)]
    assert trainer.global_step == alone.values["global_step:0"] == 2 * STEPS
    assert_same_bits(alone.values, many.values)


@pytest.mark.parametrize("data", INPUTS)
def test_a_compiled_loop_computes_the_same(data, tmp_path):
    """XLA rounds otherwise, in the last bits; data and draws are the same."""
    alone, _ = train(1, tpk.use("single"), data, run_dir=tmp_path / "1")
    trainer = tpk.SimpleTrainer(xla=True)
    many, _ = train(8, trainer, data, run_dir=tmp_path / "8")
    assert many.steps == [(7, 8), (15, 16), (22, 23), (7, 31), (15, 39), (22, 46)]
    assert trainer.global_step == alone.values["global_step:0"] == 2 * STEPS
    for name, value in alone.values.items():
        np.testing.assert_allclose(many.values[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
