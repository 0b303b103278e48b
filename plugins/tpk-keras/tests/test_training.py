"""Trainings of Keras models, on each strategy, against Keras's own loop and against each other."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tpk_keras import KerasModel, KerasRestore, KerasSaver

import tpk
from tpk.errors import ConfigError
from tpk.graph.variables import by_name, saveable_variables
from tpk.testing import check_callback
from tpk.testing.trainings import TinyModel

v1 = tf.compat.v1

STEPS = 20
RATE = 0.05


class Model(tpk.ModelDesc):
    def __init__(self, keras, *, batch_norm=False, dropout=0.0):
        def build():
            of = keras.layers
            layers = [of.Conv2D(4, 3, kernel_regularizer=keras.regularizers.L2(0.01))]
            layers += [of.BatchNormalization(momentum=0.9)] if batch_norm else []
            layers += [of.ReLU(), of.Flatten()]
            layers += [of.Dropout(dropout)] if dropout else []
            return keras.Sequential([*layers, of.Dense(3)])

        self.build = build
        self.net = KerasModel(build, keras=keras.__name__)

    def inputs(self):
        return [tf.TensorSpec([None, 6, 6, 1], tf.float32, "image"), tf.TensorSpec([None], tf.int64, "label")]

    def build_graph(self, image, label):
        logits = tf.identity(self.net(image), name="logits")
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        return tf.add_n([tf.reduce_mean(loss), *self.net.losses], name="cost")

    def optimizer(self):
        return v1.train.MomentumOptimizer(RATE, 0.9)


def batches(count, size=8):
    rng = np.random.default_rng(0)
    return [
        [rng.normal(size=(size, 6, 6, 1)).astype(np.float32), rng.integers(0, 3, size).astype(np.int64)]
        for _ in range(count)
    ]


def concatenated(data, count):
    return [
        [np.concatenate(parts) for parts in zip(*data[at : at + count], strict=True)]
        for at in range(0, len(data), count)
    ]


class Look(tpk.Callback):
    """Keeps the variables before and after the training, and the costs."""

    chief_only = False

    def setup_graph(self, trainer):
        self._cost = trainer.towers.training()[0].output

    def before_train(self, trainer):
        self.before, self.costs = self._values(trainer, saveable_variables(trainer.graph)), []

    def before_run(self, run_context):
        return self._cost

    def after_run(self, run_context, run_values):
        self.costs.append(float(run_values.results))

    def after_train(self, trainer):
        self.after = self._values(trainer, saveable_variables(trainer.graph))
        self.of_others = self._values(trainer, v1.local_variables())

    def _values(self, trainer, variables):
        return trainer.sess.run(dict(by_name(variables)))


def train(
    model, data, strategy="single", epochs=1, callbacks=(), source=tpk.FeedInput, trainer_options=None, **options
):
    trainer, look = tpk.SingleCostTrainer(strategy, **(trainer_options or {})), Look()
    with trainer.graph.as_default():
        v1.set_random_seed(1)
    trainer.setup_graph(model.get_input_signature(), source(data), model.build_graph, model.get_optimizer)
    steps = len(data) // trainer.strategy.num_replicas
    trainer.train(callbacks=[*callbacks, look, tpk.RunUpdateOps()], steps_per_epoch=steps, max_epoch=1, **options)
    return look


def test_it_trains_as_keras_itself_does(keras, tmp_path):
    data, model = batches(STEPS), Model(keras, batch_norm=True)
    plain = model.build()
    plain(data[0][0])
    plain.save_weights(tmp_path / "start.weights.h5")
    look = train(model, data, session_init=KerasRestore(model.net, tmp_path / "start.weights.h5"))

    plain.compile(
        keras.optimizers.SGD(RATE, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    for image, label in data:
        plain.train_on_batch(image, label)
    names = [name for name in look.after if name.startswith("model/") and not name.endswith("/Momentum")]
    assert len(names) == len(plain.get_weights()) == 8
    by_layer = dict(zip(by_weight_order(plain), plain.get_weights(), strict=True))
    for name in names:
        # Twenty steps with sums of float32 in another order.
        np.testing.assert_allclose(look.after[name], by_layer[name], rtol=2e-3, atol=2e-4, err_msg=name)
        assert not np.array_equal(look.after[name], look.before[name])


def by_weight_order(model):
    """The names in tpk of the weights of a model that was built first of all, in their order."""
    paths = [getattr(weight, "path", weight.name).removesuffix(":0").split("/") for weight in model.weights]
    kinds = [path[-2].rstrip("0123456789").rstrip("_") for path in paths]
    return [f"model/{kind}/{path[-1]}" for kind, path in zip(kinds, paths, strict=True)]


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_two_towers_equal_one_on_both_batches(keras, strategy):
    data = batches(2 * STEPS)
    many = train(Model(keras), data, tpk.use(strategy, devices=2))
    one = train(Model(keras), concatenated(data, 2), session_init=many.before)
    assert many.after.keys() == one.after.keys()
    for name, value in one.after.items():
        np.testing.assert_allclose(many.after[name], value, rtol=2e-4, atol=2e-5, err_msg=name)


def test_replicates_have_their_own_variables_and_stay_identical(keras):
    look = train(Model(keras, dropout=0.3), batches(STEPS), tpk.use("replicated", devices=2))
    of_model = [name for name in look.after if name.startswith("model/") and not name.endswith("/Momentum")]
    assert len(of_model) == 4
    for name in of_model:
        np.testing.assert_array_equal(look.of_others[f"tower1/{name}"], look.after[name], err_msg=name)


def test_towers_that_do_not_wait_share_the_model(keras):
    look = train(
        Model(keras, batch_norm=True, dropout=0.2), batches(4) * 10, tpk.use("async", devices=2), source=tpk.QueueInput
    )
    assert len([name for name in look.after if name.startswith("model/") and "Momentum" not in name]) == 8
    assert not any(name.startswith("tower1") for name in look.of_others)
    # Not compared with the first costs, because the other tower may have trained the model by then. Guessing one of
    # three labels costs log(3).
    assert np.mean(look.costs[-5:]) < np.log(3)


@pytest.mark.parametrize("strategy", ["single", "replicated"])
def test_a_training_that_is_resumed_is_the_same_to_the_bit(keras, strategy, tmp_path):
    def run(epochs, run_dir, data):
        strategy_of_run = tpk.use("replicated", devices=2) if strategy == "replicated" else "single"
        model = Model(keras, batch_norm=True, dropout=0.5)
        trainer, look = tpk.SingleCostTrainer(strategy_of_run), Look()
        with trainer.graph.as_default():
            v1.set_random_seed(1)
        trainer.setup_graph(model.get_input_signature(), tpk.QueueInput(data), model.build_graph, model.get_optimizer)
        trainer.train(
            callbacks=[tpk.ModelSaver(), look, tpk.RunUpdateOps()],
            steps_per_epoch=3,
            max_epoch=epochs,
            run_dir=run_dir,
            resume="auto",
            session_init=start,
        )
        return look

    data = batches(12)
    start = None
    first = run(1, tmp_path / "cut", data)
    start = first.before
    whole = run(2, tmp_path / "whole", data)
    resumed = run(2, tmp_path / "cut", data)
    assert len(set(whole.costs)) == 6
    assert first.costs + resumed.costs == whole.costs
    for name, value in whole.after.items():
        np.testing.assert_array_equal(resumed.after[name], value, err_msg=name)


class Predict(tpk.Callback):
    def setup_graph(self, trainer):
        self._predict = trainer.get_predictor(["image"], ["logits"])

    def after_train(self, trainer):
        (self.logits,) = self._predict(batches(1)[0][0])


@pytest.mark.parametrize("strategy", ["single", "replicated"])
def test_a_saved_model_predicts_the_same_in_plain_keras(keras, strategy, tmp_path):
    model, predict = Model(keras, batch_norm=True, dropout=0.5), Predict()
    devices = {"devices": 2} if strategy == "replicated" else {}
    train(
        model,
        batches(8),
        tpk.use(strategy, **devices),
        callbacks=[KerasSaver(model.net, "digits.keras"), KerasSaver(model.net, tmp_path / "w.weights.h5"), predict],
        run_dir=tmp_path / "run",
    )
    image = batches(1)[0][0]
    plain = keras.models.load_model(tmp_path / "run" / "digits.keras")
    np.testing.assert_allclose(plain.predict(image, verbose=0), predict.logits, rtol=1e-5, atol=1e-5)
    other = model.build()
    other(image)
    other.load_weights(tmp_path / "w.weights.h5")
    np.testing.assert_array_equal(other.get_weights()[0], plain.get_weights()[0])


def test_a_graph_without_a_training_loads_its_checkpoint(keras, tmp_path):
    model, predict = Model(keras, batch_norm=True, dropout=0.5), Predict()
    train(model, batches(4), callbacks=[tpk.ModelSaver(), predict], run_dir=tmp_path)
    model.build()  # Whatever else is built in between.
    with tf.Graph().as_default() as graph:
        image = v1.placeholder(tf.float32, [None, 6, 6, 1])
        with tpk.PredictTowerContext(creates_variables=True):
            logits = model.net(image)
        assert {name for name in by_name(saveable_variables(graph)) if not name.startswith("model/")} == set()
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            tpk.SaverRestore(tmp_path).run(sess)
            np.testing.assert_array_equal(sess.run(logits, {image: batches(1)[0][0]}), predict.logits)


@pytest.mark.parametrize(("options", "tolerance"), [({"precision": "bfloat16"}, 0.1), ({"xla": True}, 1e-4)])
def test_precision_and_xla_leave_the_model_its_variables(keras, options, tolerance):
    data = batches(3)
    plain = train(Model(keras, batch_norm=True), data)
    other = train(Model(keras, batch_norm=True), data, session_init=plain.before, trainer_options=options)
    assert plain.after.keys() == other.after.keys()
    for name in [name for name in plain.after if not name.endswith("/Momentum")]:
        # The inputs lose digits by the first, and the second sums in another order.
        np.testing.assert_allclose(other.after[name], plain.after[name], atol=tolerance, err_msg=name)
        assert other.after[name].dtype == plain.after[name].dtype


def test_a_saver_needs_a_model_and_a_place():
    with pytest.raises(ConfigError, match="expected the KerasModel"):
        KerasSaver("model")
    with pytest.raises(ConfigError, match="suffix"):
        KerasSaver(KerasModel(lambda: None), "model.ckpt")


def test_an_optimizer_of_keras_is_refused(keras):
    class WithKerasOptimizer(Model):
        def optimizer(self):
            return keras.optimizers.SGD(0.1)

    with pytest.raises(ConfigError, match=r"expected a tf\.compat\.v1\.train\.Optimizer"):
        train(WithKerasOptimizer(keras), batches(1))


def test_a_keras_model_predicts_during_the_training_and_after_it(tmp_path):
    def dense():
        return tf.keras.layers.Dense(2)

    class Net(tpk.ModelDesc):
        def __init__(self):
            self.net = KerasModel(dense, name="fc")

        def inputs(self):
            return [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None, 2], tf.float32, "label")]

        def build_graph(self, x, label):
            prediction = tf.identity(self.net(x), name="prediction")
            return tf.reduce_mean((prediction - label) ** 2, name="cost")

        def optimizer(self):
            return tf.compat.v1.train.GradientDescentOptimizer(0.1)

    class Last(tpk.Callback):
        def setup_graph(self, trainer):
            self.predict = trainer.get_predictor(["x"], ["prediction"], device="cpu")

        def trigger_epoch(self, trainer):
            weights = trainer.sess.run({each.op.name: each for each in tf.compat.v1.trainable_variables()})
            (self.found,) = self.predict([[1, 2, 3]])
            wanted = np.array([[1, 2, 3]]) @ weights["fc/kernel"] + weights["fc/bias"]
            np.testing.assert_allclose(self.found, wanted, rtol=1e-5, atol=1e-6)

    last = Last()
    config = tpk.TrainConfig(
        model=Net(),
        data=tpk.TensorInput(lambda: [tf.ones([4, 3]), tf.zeros([4, 2])]),
        callbacks=["ModelSaver", last],
        steps_per_epoch=2,
        max_epoch=2,
        run_dir=tmp_path,
    )
    tpk.launch_train_with_config(config, tpk.use("SyncMultiGPUTrainerReplicated", devices=2))
    offline = tpk.predict.PredictConfig(model=Net(), session_init=tmp_path, output_names=["prediction"])
    with tpk.predict.OfflinePredictor(offline) as predict:
        np.testing.assert_array_equal(predict([[1, 2, 3]])[0], last.found)


class WithKeras(TinyModel):
    net = KerasModel(
        lambda: tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(2, kernel_initializer="ones")])
    )

    def build_graph(self, x, row, label):
        outputs = self.net(x)
        return super().build_graph(x, row, label) + tf.reduce_mean(outputs**2)


def test_the_saver_follows_the_rules_of_callbacks():
    check_callback(lambda: KerasSaver(WithKeras.net, "net.weights.h5"), model=WithKeras)


def test_the_saver_is_found_by_its_name():
    (entry,) = [each for each in tpk.get_catalog().entries("callback") if each.name == "KerasSaver"]
    assert entry.distribution == "tpk-keras"
    assert isinstance(tpk.get_catalog().resolve("callback", tpk.use("KerasSaver", model=WithKeras.net)), KerasSaver)
