from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

import tpk
from tpk import layers
from tpk.graph.tower_options import in_precision

v1 = tf.compat.v1

HALVES = ["bfloat16", "float16"]


class Digits(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 8, 8, 1], tf.float32, "image"), tf.TensorSpec([None], tf.int64, "label")]

    def build_graph(self, image, label):
        training = tpk.get_current_tower_context().is_training
        hidden = layers.conv2d(image, 8, 3, strides=2, padding="same", use_bias=False)
        hidden = tf.nn.relu(layers.batch_normalization(hidden, momentum=0.9, training=training))
        hidden = layers.dense(layers.flatten(hidden), 32, activation=tf.nn.relu)
        logits = tf.identity(layers.dense(layers.dropout(hidden, 0.1, training=training), 10), name="logits")
        wrong = tf.cast(tf.not_equal(tf.argmax(logits, axis=1), label), tf.float32, name="incorrect_vector")
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        cost = tf.reduce_mean(loss, name="cost")
        tpk.add_moving_summary(cost, tf.reduce_mean(wrong, name="error"))
        return cost

    def optimizer(self):
        return v1.train.AdamOptimizer(5e-3)


class Look(tpk.Callback):
    """Keeps what a training leaves behind."""

    def trigger_epoch(self, trainer):
        self.monitors = trainer.monitors

    def after_train(self, trainer):
        self.graph = trainer.graph
        self.values = {variable.name: trainer.sess.run(variable) for variable in v1.global_variables()}
        self.local = {variable.name: trainer.sess.run(variable) for variable in v1.local_variables()}
        self.trained = [variable.name for variable in v1.trainable_variables()]


def train(
    model, data, callbacks=(), *, strategy="single", precision="float32", xla=False, epochs=1, steps=None, **options
):
    look = Look()
    trainer = tpk.SingleCostTrainer(strategy, precision=precision, xla=xla)
    with trainer.graph.as_default():
        v1.set_random_seed(0)
    trainer.setup_graph(model.get_input_signature(), tpk.FeedInput(data), model.build_graph, model.get_optimizer)
    callbacks = ["MovingAverageSummary", "MergeAllSummaries", "RunUpdateOps", *callbacks, look]
    trainer.train(callbacks=callbacks, steps_per_epoch=steps or len(data), max_epoch=epochs, **options)
    return look


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    batches = [[images[start : start + 64], labels[start : start + 64]] for start in range(0, 1728, 64)]
    return batches[:22], batches[22:]


@pytest.fixture(scope="module")
def accuracy(digits):
    """Trains with some options, and returns the error and the cost on the digits that were held back."""
    train_data, test_data = digits

    @functools.cache
    def accuracy_of(**options):
        runner = tpk.InferenceRunner(test_data, [tpk.ScalarStats("cost"), tpk.ClassificationError()])
        look = train(Digits(), train_data, [runner], epochs=4, **options)
        return tuple(look.monitors.get_latest(f"validation_{name}") for name in ("error", "cost"))

    return accuracy_of


@pytest.mark.parametrize("options", [{"precision": "bfloat16"}, {"precision": "float16"}, {"xla": True}], ids=str)
def test_the_digits_are_learned_to_the_same_accuracy(accuracy, options):
    error, cost = accuracy(**options)
    error_before, cost_before = accuracy()
    assert error_before < 0.15
    assert error == pytest.approx(error_before, abs=0.025)
    assert cost == pytest.approx(cost_before, abs=0.05)


class Linear(tpk.ModelDesc):
    """A layer, and a cost of its outputs."""

    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x")]

    def build_graph(self, x):
        output = tf.identity(layers.dense(x, 2, kernel_initializer="ones", name="layer"), name="output")
        return tf.reduce_mean(output**2, name="cost")

    def optimizer(self):
        return v1.train.MomentumOptimizer(0.01, 0.9)


def batches(count, size=4):
    rng = np.random.default_rng(0)
    return [[rng.normal(size=(size, 3)).astype(np.float32)] for _ in range(count)]


def variables_of(look):
    return {name: value.dtype for name, value in look.values.items()}


@pytest.mark.parametrize("precision", HALVES)
def test_ops_compute_in_the_precision_and_variables_stay_float32(digits, precision):
    data = digits[0][:1]
    plain, mixed = train(Digits(), data), train(Digits(), data, precision=precision)
    own = {name for name in mixed.values if name.startswith("LossScale/")}
    assert {name: dtype for name, dtype in variables_of(mixed).items() if name not in own} == variables_of(plain)
    assert mixed.trained == plain.trained

    def types(kind, attribute="T"):
        return {op.get_attr(attribute).name for op in mixed.graph.get_operations() if op.type == kind}

    computing = ["Conv2D", "Conv2DBackpropFilter", "MatMul", "Relu", "BiasAdd"]
    assert {kind: types(kind) for kind in computing} == {kind: {precision} for kind in computing}
    assert types("FusedBatchNormV3") == {precision}
    assert types("FusedBatchNormV3", "U") == {"float32"}


@pytest.mark.parametrize("precision", HALVES)
def test_small_updates_are_not_lost(precision):
    """1 + 1e-4 is 1 in both types, so a variable of this type would never change."""

    class Slow(Linear):
        def build_graph(self, x):
            return -tf.reduce_sum(v1.get_variable("w", [], initializer=v1.ones_initializer()))

        def optimizer(self):
            return v1.train.GradientDescentOptimizer(1e-4)

    look = train(Slow(), batches(50), precision=precision)
    assert look.values["w:0"] == pytest.approx(1 + 50e-4, rel=1e-5)


@pytest.mark.parametrize("precision", HALVES)
def test_checkpoints_are_those_of_float32(tmp_path, precision):
    class Frozen(Linear):
        def optimizer(self):
            return v1.train.MomentumOptimizer(0.0, 0.9)

    plain = train(Linear(), batches(3), ["ModelSaver"], run_dir=tmp_path / "plain")
    mixed = train(
        Frozen(),
        batches(1),
        ["ModelSaver"],
        precision=precision,
        session_init=tmp_path / "plain",
        run_dir=tmp_path / "mixed",
    )
    back = train(Frozen(), batches(1), session_init=tmp_path / "mixed")
    for name in ("layer/kernel:0", "layer/bias:0"):
        np.testing.assert_array_equal(mixed.values[name], plain.values[name])
        np.testing.assert_array_equal(back.values[name], plain.values[name])
    reader = tf.train.load_checkpoint(str(tmp_path / "mixed"))
    assert reader.get_variable_to_dtype_map()["layer/kernel"] == tf.float32


@pytest.mark.parametrize("precision", HALVES)
def test_inference_towers_compute_in_the_precision_too(precision):
    class Predict(tpk.Callback):
        def setup_graph(self, trainer):
            self.predict = trainer.get_predictor(["x"], ["output"])

        def after_train(self, trainer):
            (self.output,) = self.predict(np.float32([[1, 1, 1 / 3]]))
            self.tower = trainer.towers["PredictTower"]

    predict = Predict()
    train(Linear(), batches(1), [predict], precision=precision)
    assert predict.output.dtype == tf.as_dtype(precision).as_numpy_dtype
    assert predict.tower.inputs[0].dtype == tf.float32
    assert predict.tower.output.dtype == tf.float32


@pytest.mark.parametrize("precision", HALVES)
def test_replicates_stay_identical(precision):
    look = train(Linear(), batches(12), strategy=tpk.use("replicated", devices=2), precision=precision)
    for name in look.trained:
        assert look.local[f"tower1/{name}"].dtype == np.float32
        np.testing.assert_array_equal(look.local[f"tower1/{name}"], look.values[name])


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_two_towers_equal_one_on_both_batches(strategy, precision):
    data = batches(12)
    joined = [[np.concatenate([data[start][0], data[start + 1][0]])] for start in range(0, 12, 2)]
    one = train(Linear(), joined, precision=precision)
    two = train(Linear(), data, strategy=tpk.use(strategy, devices=2), precision=precision, steps=6)
    for name in one.trained:
        # The cost of a batch is rounded to 16 bits.
        np.testing.assert_allclose(two.values[name], one.values[name], rtol=2e-2, atol=1e-3)


def build(func, precision="bfloat16", *inputs):
    with tf.Graph().as_default():
        return in_precision(func, precision)(*map(tf.constant, inputs))


def test_only_variables_that_ask_for_nothing_or_for_16_bits_are_cast():
    def func():
        default = v1.get_variable("default", [2])
        half = v1.get_variable("half", [2], tf.bfloat16, trainable=False)
        single = v1.get_variable("single", [2], tf.float32)
        count = v1.get_variable("count", initializer=3)
        value = v1.get_variable("value", initializer=tf.ones([2], tf.bfloat16))
        with v1.variable_scope(v1.get_variable_scope(), reuse=True):
            again = v1.get_variable("default", [2])
        tensors = [default, half, value, again]
        assert [tensor.dtype for tensor in tensors] == [tf.bfloat16] * 4
        assert all(tf.is_tensor(tensor) and not isinstance(tensor, tf.Variable) for tensor in tensors)
        assert single.assign_add([1.0, 1.0]) is not None
        assert [single.dtype, count.dtype] == [tf.float32, tf.int32]
        types = {variable.op.name: variable.dtype.name for variable in v1.global_variables()}
        assert types.pop("count") == "int32"
        assert types == dict.fromkeys(["default", "half", "single", "value"], "float32")
        return tf.reduce_sum(default)

    assert build(func).dtype == tf.float32


def test_floating_inputs_are_cast_and_others_are_not():
    def func(*inputs):
        assert [each.dtype for each in inputs] == [tf.bfloat16, tf.bfloat16, tf.int64, tf.string]
        return inputs[0]

    build(func, "bfloat16", np.float32(1), np.float64(1), np.int64(1), "text")


def test_each_of_several_costs_is_float32():
    costs = build(lambda x: {"half": x, "single": tf.cast(x, tf.float32)}, "float16", np.float32(1))
    assert {name: cost.dtype for name, cost in costs.items()} == {"half": tf.float32, "single": tf.float32}


def test_float32_leaves_the_function_alone():
    func = Linear().build_graph
    assert in_precision(func, "float32") is func


def test_an_error_in_the_model_has_a_note_about_mixed_precision():
    with pytest.raises((TypeError, ValueError)) as raised:
        build(lambda x: x * v1.get_variable("w", [], tf.float32), "bfloat16", np.float32(1))
    assert any("computes in bfloat16" in note for note in raised.value.__notes__)
    with pytest.raises(AttributeError) as raised:
        build(lambda x: v1.get_variable("w", [], trainable=False).assign(x), "bfloat16", np.float32(1))
    assert any("must ask for dtype=tf.float32" in note for note in raised.value.__notes__)


def test_an_unknown_precision_is_an_error():
    with pytest.raises(tpk.ConfigError, match=r"'float32', 'bfloat16', 'float16', not 'half'"):
        tpk.SingleCostTrainer(precision="half")
    with pytest.raises(tpk.ConfigError, match="not None"):
        in_precision(Linear().build_graph, None)


def test_a_model_that_is_not_callable_is_an_error_in_any_precision():
    trainer = tpk.SingleCostTrainer(precision="bfloat16")
    with pytest.raises(tpk.TowerError, match="callable"):
        trainer.setup_graph(Linear().get_input_signature(), tpk.FeedInput(batches(1)), None, Linear().optimizer)
