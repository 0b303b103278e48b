"""The truth that every synchronous strategy owes: N towers on b1 … bN equal one tower on their concatenation."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk import layers

v1 = tf.compat.v1

STEPS = 20
BATCH = 4

OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.05, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.01),
}


class Model(tpk.ModelDesc):
    def __init__(self, optimizer="sgd"):
        self._optimizer = optimizer

    def inputs(self):
        return [tf.TensorSpec([None, 5], tf.float32, "x"), tf.TensorSpec([None, 2], tf.float32, "y")]

    def build_graph(self, x, y):
        hidden = layers.dense(x, 7, activation=tf.tanh, kernel_initializer=v1.glorot_uniform_initializer(seed=1))
        output = layers.dense(hidden, 2, kernel_initializer=v1.glorot_uniform_initializer(seed=2))
        return tf.reduce_mean((output - y) ** 2, name="cost")

    def optimizer(self):
        return OPTIMIZERS[self._optimizer]()


def batches(count):
    rng = np.random.default_rng(0)
    return [[rng.normal(size=(BATCH, size)).astype(np.float32) for size in (5, 2)] for _ in range(count)]


def concatenated(data, count):
    return [
        [np.concatenate([batch[component] for batch in data[start : start + count]]) for component in (0, 1)]
        for start in range(0, len(data), count)
    ]


class Variables(tpk.Callback):
    """Keeps the final values of all variables, in the checkpoint and in the other towers."""

    def after_train(self, trainer):
        run = trainer.sess.run
        self.saved = {variable.name: run(variable) for variable in v1.global_variables()}
        self.local = {variable.name: run(variable) for variable in v1.local_variables()}
        self.trained = [variable.name for variable in v1.trainable_variables()]


def train(strategy, data, steps=STEPS, model=None, source=tpk.FeedInput, callbacks=(), **options):
    model = model or Model()
    variables = Variables()
    trainer = tpk.SingleCostTrainer(strategy)
    trainer.setup_graph(model.get_input_signature(), source(data), model.build_graph, model.get_optimizer)
    trainer.train(callbacks=[*callbacks, variables], steps_per_epoch=steps, max_epoch=1, **options)
    return variables


def assert_equal(ours, theirs):
    assert ours.saved.keys() == theirs.saved.keys()
    assert ours.trained == theirs.trained
    for name, value in theirs.saved.items():
        # Sums of float32 in another order.
        np.testing.assert_allclose(ours.saved[name], value, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_n_towers_equal_one_on_the_concatenation(strategy, optimizer, count):
    data = batches(STEPS * count)
    many = train(tpk.use(strategy, devices=count), data, model=Model(optimizer))
    one = train("single", concatenated(data, count), model=Model(optimizer))
    assert_equal(many, one)


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_a_smaller_batch_counts_as_much_as_a_larger_one(strategy):
    data = batches(STEPS * 2)
    smaller = [[array[: 1 + 3 * (index % 2)] for array in batch] for index, batch in enumerate(data)]
    repeated = [[np.repeat(array, BATCH // len(array), 0) for array in batch] for batch in smaller]
    assert_equal(train(tpk.use(strategy, devices=2), smaller), train("single", concatenated(repeated, 2)))


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_sums_are_means_at_a_learning_rate_times_the_towers(strategy):
    class Rated(Model):
        def __init__(self, rate):
            self.rate = rate

        def optimizer(self):
            return v1.train.GradientDescentOptimizer(self.rate)

    data = batches(STEPS * 3)
    summed = tpk.use(strategy, devices=3, average=False)
    assert_equal(train(summed, data, model=Rated(0.03)), train(tpk.use(strategy, devices=3), data, model=Rated(0.09)))
    assert tpk.get_catalog().resolve("strategy", summed).describe()["average"] is False


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_sparse_gradients_are_summed_up_too(strategy):
    class Embedded(tpk.ModelDesc):
        def __init__(self, rate):
            self.rate = rate

        def inputs(self):
            return [tf.TensorSpec([None], tf.int32, "rows")]

        def build_graph(self, rows):
            table = v1.get_variable("table", [6, 2], initializer=v1.ones_initializer())
            return tf.reduce_sum(tf.gather(table, rows) ** 2)

        def optimizer(self):
            return v1.train.GradientDescentOptimizer(self.rate)

    data = [[np.array(rows, np.int32)] for rows in ([0, 1], [1, 5], [2, 2], [3, 0])]
    summed = train(tpk.use(strategy, devices=2, average=False), data, steps=2, model=Embedded(0.1))
    assert_equal(summed, train(tpk.use(strategy, devices=2), data, steps=2, model=Embedded(0.2)))


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_accumulation_equals_one_step_on_all_of_it(strategy, optimizer):
    class Accumulating(Model):
        def optimizer(self):
            return tpk.AccumGradOptimizer(super().optimizer(), 2)

    data = batches(STEPS * 2)
    many = train(tpk.use(strategy, devices=2), data, model=Accumulating(optimizer))
    one = train("single", concatenated(data, 4), steps=STEPS // 2, model=Model(optimizer))
    for name in one.trained:
        np.testing.assert_allclose(many.saved[name], one.saved[name], rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("source", [tpk.QueueInput, lambda data: tpk.TFDatasetInput(data)], ids=["queue", "dataset"])
@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_inputs_from_the_graph_reach_the_towers_in_order(strategy, source):
    data = batches(STEPS * 2)
    many = train(tpk.use(strategy, devices=2), data, source=source)
    assert_equal(many, train("single", concatenated(data, 2)))


@pytest.mark.parametrize("ps_device", ["cpu", "gpu"])
def test_the_placement_of_shared_variables_does_not_change_results(ps_device):
    data = batches(STEPS * 2)
    many = train(tpk.use("parameter_server", devices=2, ps_device=ps_device), data)
    assert_equal(many, train("single", concatenated(data, 2)))


def replicates_of(variables, count):
    """The other towers' copies of each trained variable."""
    return {name: [variables.local[f"tower{index}/{name}"] for index in range(1, count)] for name in variables.trained}


@pytest.mark.parametrize("pack_bytes", [0, 100, 1 << 20])
@pytest.mark.parametrize("mode", ["copy", "cpu"])
def test_replicates_stay_identical_bit_by_bit(mode, pack_bytes):
    data = batches(STEPS * 4)
    options = {"devices": 4, "mode": mode, "pack_bytes": pack_bytes}
    many = train(tpk.use("replicated", **options), data, model=Model("adam"))
    for name, copies in replicates_of(many, 4).items():
        for copy in copies:
            np.testing.assert_array_equal(copy, many.saved[name])
    assert_equal(many, train("single", concatenated(data, 4), model=Model("adam")))


def test_a_checkpoint_holds_one_copy_and_restores_all_towers(tmp_path):
    data = batches(40)
    whole = train(tpk.use("replicated", devices=2), data, model=Model("adam"))
    train(
        tpk.use("replicated", devices=2),
        data[:20],
        steps=10,
        model=Model("adam"),
        callbacks=["ModelSaver"],
        run_dir=tmp_path,
    )
    names = tf.train.load_checkpoint(str(tmp_path)).get_variable_to_shape_map()
    assert not [name for name in names if "tower" in name]
    everything = tpk.SaverRestore(tmp_path)
    half = train(tpk.use("replicated", devices=2), data[20:], steps=10, model=Model("adam"), session_init=everything)
    for name, value in whole.saved.items():
        np.testing.assert_array_equal(half.saved[name], value, err_msg=name)


def test_a_checkpoint_of_one_strategy_restores_another(tmp_path):
    data = batches(20)
    one = train("single", data, steps=10, callbacks=["ModelSaver"], run_dir=tmp_path)
    many = train(tpk.use("replicated", devices=2), data, steps=1, session_init=tmp_path, model=Frozen())
    for name in one.trained:
        np.testing.assert_array_equal(many.saved[name], one.saved[name])
        np.testing.assert_array_equal(replicates_of(many, 2)[name][0], one.saved[name])


class Frozen(Model):
    def optimizer(self):
        return v1.train.GradientDescentOptimizer(0.0)


def test_towers_train_on_different_shapes_at_once():
    rng = np.random.default_rng(0)
    data = [[rng.normal(size=(size, width)).astype(np.float32) for width in (5, 2)] for size in (2, 6) * STEPS]
    for strategy in ("replicated", "parameter_server"):
        variables = train(tpk.use(strategy, devices=2), data)
        assert all(np.isfinite(value).all() for value in variables.saved.values())


class Embedding(tpk.ModelDesc):
    """Its gradients are sparse."""

    def inputs(self):
        return [tf.TensorSpec([None], tf.int32, "index")]

    def build_graph(self, index):
        table = v1.get_variable("table", [10, 3], initializer=v1.ones_initializer())
        return tf.reduce_mean(tf.nn.embedding_lookup(table, index) ** 2)

    def optimizer(self):
        return v1.train.GradientDescentOptimizer(0.1)


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_sparse_gradients(strategy):
    rng = np.random.default_rng(0)
    data = [[rng.integers(0, 10, 4).astype(np.int32)] for _ in range(20)]
    joined = [[np.concatenate([data[i][0], data[i + 1][0]])] for i in range(0, 20, 2)]
    many = train(tpk.use(strategy, devices=2), data, steps=10, model=Embedding())
    one = train("single", joined, steps=10, model=Embedding())
    assert_equal(many, one)


def layer_of_tpk(x, **regularizers):
    return layers.dense(x, 2, kernel_initializer=v1.ones_initializer(), use_bias=False, **regularizers)


def layer_of_tensorflow_1(x, **regularizers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # They are deprecated.
        return v1.layers.dense(x, 2, kernel_initializer=v1.ones_initializer(), use_bias=False, **regularizers)


def variable_of_tensorflow(x, kernel_regularizer, activity_regularizer):
    kernel = v1.get_variable("kernel", [5, 2], initializer=v1.ones_initializer(), regularizer=kernel_regularizer)
    outputs = x @ kernel
    add_loss(activity_regularizer(outputs) / tf.cast(tf.shape(x)[0], tf.float32))
    return outputs


def all_by_hand(x, kernel_regularizer, activity_regularizer):
    kernel = v1.get_variable("kernel", [5, 2], initializer=v1.ones_initializer())
    add_loss(kernel_regularizer(kernel))
    outputs = x @ kernel
    add_loss(activity_regularizer(outputs) / tf.cast(tf.shape(x)[0], tf.float32))
    return outputs


def add_loss(loss):
    v1.add_to_collection(v1.GraphKeys.REGULARIZATION_LOSSES, loss)


class Regularized(Model):
    """Asks for the losses in the graph, as TF1 code does."""

    def __init__(self, layer, total):
        super().__init__()
        self.layer, self.total = layer, total

    def build_graph(self, x, y):
        hidden = self.layer(x, kernel_regularizer=tf.nn.l2_loss, activity_regularizer=tf.nn.l2_loss)
        cost = v1.losses.mean_squared_error(y, hidden)
        return tf.identity(self.total(cost), name="cost")


TOTALS = {
    "get_total_loss": lambda cost: v1.losses.get_total_loss(),
    "get_regularization_loss": lambda cost: cost + v1.losses.get_regularization_loss(),
    "collection": lambda cost: cost + tf.add_n(v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)),
}
LAYERS = [layer_of_tpk, variable_of_tensorflow, all_by_hand]
if hasattr(v1.layers, "dense"):  # with Keras 2
    LAYERS.append(layer_of_tensorflow_1)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_each_tower_gets_the_losses_of_its_own_activities_and_of_the_weights_it_uses(strategy, layer):
    data = batches(STEPS * 3)
    model = Regularized(layer, TOTALS["get_total_loss"])
    many = train(tpk.use(strategy, devices=3), data, model=model)
    assert_equal(many, train("single", concatenated(data, 3), model=model))


@pytest.mark.parametrize("total", TOTALS)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("strategy", ["single", "replicated", "parameter_server", "async"])
def test_the_cost_of_each_tower_is_that_of_one_tower_on_its_data(strategy, layer, total):
    data = batches(3)
    model, given = Regularized(layer, TOTALS[total]), iter(data)
    strategy = strategy if strategy == "single" else tpk.use(strategy, devices=3)
    trainer = tpk.SingleCostTrainer(strategy)
    source = tpk.TensorInput(lambda: list(map(tf.constant, next(given))))
    trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
    with trainer.graph.as_default():
        trainer.build_inference_tower("evaluation", [tf.constant(each) for each in data[0]])
        costs = [tower.get_tensor("cost") for tower in trainer.towers]
        with v1.Session(config=trainer.strategy.session_config(v1.ConfigProto())) as sess:
            sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            values = sess.run(costs)

    def cost_of(x, y):
        outputs = x.sum(axis=1, keepdims=True) @ np.ones([1, 2], np.float32)
        return ((outputs - y) ** 2).mean() + 10 / 2 + (outputs**2).sum() / 2 / len(x)

    expected = [cost_of(*datapoint) for datapoint in data[: len(values) - 1]]
    np.testing.assert_allclose(values, [*expected, expected[0]], rtol=1e-5)


def test_a_learning_rate_variable_is_one_for_all_towers():
    class Scheduled(Model):
        def optimizer(self):
            rate = v1.get_variable("rate", initializer=0.1, trainable=False)
            return v1.train.GradientDescentOptimizer(rate)

    data = batches(STEPS * 2)
    many = train(tpk.use("replicated", devices=2), data, model=Scheduled())
    assert [name for name in many.saved if "rate" in name] == ["rate:0"]
    assert_equal(many, train("single", concatenated(data, 2), model=Scheduled()))


def test_inference_reads_the_main_towers_variables():
    data = batches(8)
    inference = tpk.InferenceRunner(data[:1], tpk.ScalarStats("cost"))

    class Cost(tpk.Callback):
        def trigger_epoch(self, trainer):
            self.value = trainer.monitors.get_latest("validation_cost")

    costs = []
    for strategy, feed in (("single", concatenated(data, 2)), (tpk.use("replicated", devices=2), data)):
        inference, cost = tpk.InferenceRunner(data[:1], tpk.ScalarStats("cost")), Cost()
        train(strategy, feed, steps=4, callbacks=[inference, cost])
        costs.append(cost.value)
    assert costs[0] == pytest.approx(costs[1], rel=1e-4)


def test_non_trainable_variables_agree_at_the_end_of_an_epoch_as_was_asked_for():
    class Statistics(Model):
        def build_graph(self, x, y):
            seen = v1.get_variable("seen", [], initializer=v1.zeros_initializer(), trainable=False)
            v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, seen.assign(tf.reduce_max(x)).op)
            return super().build_graph(x, y)

    data = [[np.full([2, 5], value, np.float32), np.zeros([2, 2], np.float32)] for value in (1, 3)]
    for sync, expected in ((None, (1, 3)), ("mean", (2, 2)), ("broadcast", (1, 1))):
        strategy = tpk.use("replicated", devices=2, sync_variables=sync)
        variables = train(strategy, data, steps=1, model=Statistics(), callbacks=["RunUpdateOps"])
        assert (variables.saved["seen:0"], variables.local["tower1/seen:0"]) == expected


class Measured(Model):
    """Has state that TensorFlow names after tensors and name scopes."""

    def build_graph(self, x, y):
        cost = super().build_graph(x, y)
        (_, update), trained = v1.metrics.mean(cost, name="mean_cost"), v1.trainable_variables()[-1:]
        averages = v1.train.ExponentialMovingAverage(0.9)
        for op in (update.op, averages.apply(trained)):
            v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, op)
        return cost


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server", "async"])
def test_metrics_and_averages_of_tensorflow(strategy):
    data = batches(STEPS * 2)
    many = train(
        tpk.use(strategy, devices=2), data, model=Measured(), source=tpk.QueueInput, callbacks=["RunUpdateOps"]
    )
    one = train("single", concatenated(data, 2), model=Measured(), callbacks=["RunUpdateOps"])
    assert many.saved.keys() == one.saved.keys()
    assert "dense_1/bias/ExponentialMovingAverage:0" in one.saved
    assert many.local["mean_cost/count:0"] == one.local["mean_cost/count:0"] == STEPS
    if strategy == "replicated":
        totals = [many.local[f"{scope}mean_cost/total:0"] for scope in ("", "tower1/")]
        assert sum(totals) / 2 == pytest.approx(one.local["mean_cost/total:0"], rel=1e-4)
