"""Keras models, trained by tensorpack's trainers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
import tpk_tensorpack as tp
from sklearn.datasets import load_digits
from tpk_tensorpack.contrib.keras import KerasModel, KerasPhaseCallback, setup_keras_trainer

from tpk.errors import ConfigError

v1 = tf.compat.v1
IMAGE = tf.TensorSpec([None, 8, 8, 1], tf.float32, "image")
LABEL = tf.TensorSpec([None, 10], tf.float32, "label")


@pytest.fixture(params=["tf.keras", "tf_keras"])
def keras(request):
    return tf.keras if request.param == "tf.keras" else pytest.importorskip(request.param)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def digits():
    images, labels = load_digits(return_X_y=True)
    points = [
        [image, label]
        for image, label in zip(
            (images / 16).astype("float32").reshape(-1, 8, 8, 1), np.eye(10, dtype="float32")[labels], strict=True
        )
    ]
    return (
        tp.BatchData(tp.DataFromList(points[:1400], shuffle=False), 50),
        tp.BatchData(tp.DataFromList(points[1400:], shuffle=False), 50, remainder=True),
    )


def convnet(keras):
    layers = keras.layers

    def get_model(image):
        model = keras.models.Sequential()
        model.add(layers.InputLayer(input_tensor=image))
        model.add(layers.Conv2D(16, 3, activation="relu", padding="same"))
        model.add(layers.BatchNormalization(momentum=0.8))
        model.add(layers.MaxPooling2D())
        model.add(layers.Flatten())
        model.add(layers.Dropout(0.2))
        model.add(layers.Dense(10, kernel_regularizer=keras.regularizers.l2(1e-4)))
        model.add(layers.Activation("softmax"))
        return model

    return get_model


def test_digits(keras, log_dir):
    train, test = digits()
    model = KerasModel(convnet(keras), [IMAGE], [LABEL], train, tp.SimpleTrainer())
    rate = v1.get_variable("learning_rate", initializer=1e-2, trainable=False)
    model.compile(v1.train.AdamOptimizer(rate), "categorical_crossentropy", "categorical_accuracy")
    model.fit(validation_data=test, steps_per_epoch=28, max_epoch=2, callbacks=[tp.ModelSaver()])
    stats = json.loads((log_dir / "stats.json").read_text())[-1]
    measured = {"categorical_accuracy", "categorical_crossentropy", "total_loss"}
    measured |= {f"validation_{name}" for name in measured} | {"regularize_cost"}
    assert set(stats) == {*measured, "epoch_num", "global_step"}
    assert stats["validation_categorical_accuracy"] > 0.7
    assert stats["categorical_accuracy"] > 0.8
    assert stats["total_loss"] == pytest.approx(stats["categorical_crossentropy"] + stats["regularize_cost"], rel=1e-4)
    assert stats["validation_total_loss"] == stats["validation_categorical_crossentropy"]
    names = set(tf.train.load_checkpoint(str(log_dir / "model-56")).get_variable_to_shape_map())
    trained = {"conv2d/kernel", "conv2d/bias", "batch_normalization/gamma", "batch_normalization/beta"}
    trained |= {"dense/kernel", "dense/bias"}
    assert names == {
        *trained,
        *(f"{name}/{slot}" for name in trained for slot in ("Adam", "Adam_1")),
        *("batch_normalization/moving_mean", "batch_normalization/moving_variance"),
        *("beta1_power", "beta2_power", "global_step", "learning_rate"),
        *("tpk_random_seed", "tpk_further_runs"),  # The state of the dropout, for resumed runs.
    }


@pytest.mark.parametrize("trainer", [tp.SyncMultiGPUTrainerReplicated, tp.SyncMultiGPUTrainerParameterServer])
def test_two_towers(trainer, graph):
    train, _ = digits()
    model = KerasModel(convnet(tf.keras), [IMAGE], [LABEL], train, trainer(2))
    model.compile(v1.train.AdamOptimizer(1e-2), "categorical_crossentropy", "categorical_accuracy")
    model.fit(steps_per_epoch=14, max_epoch=1, monitors=[])
    assert model.trainer.monitors.get_latest("total_loss") < 2
    names = {each.op.name.removeprefix("tower1/") for each in graph.get_collection("trainable_variables")}
    assert {"conv2d/kernel", "dense/bias"} <= names
    assert not [name for name in names if "_1" in name]


POINTS = [[np.full([4, 3], n, "float32"), np.ones([4], "int32"), np.full([4, 2], 0.5, "float32")] for n in range(1, 4)]
SPECS = [
    tf.TensorSpec([None, 3], tf.float32, "x"),
    tf.TensorSpec([None], tf.int32, "a"),
    tf.TensorSpec([None, 2], tf.float32, "b"),
]


def two_headed(keras):
    def get_model(x):
        inputs = keras.layers.Input(tensor=x)
        hidden = keras.layers.Dense(4, name="hidden")(inputs)
        heads = [keras.layers.Dense(3, activation="softmax", name="first"), keras.layers.Dense(2, name="second")]
        return keras.models.Model(inputs, [head(hidden) for head in heads])

    return get_model


def test_several_outputs_have_a_loss_and_a_metric_each(keras):
    model = KerasModel(
        two_headed(keras),
        inputs_desc=SPECS[:1],
        targets_desc=SPECS[1:],
        input=tp.QueueInput(tp.DataFromList(POINTS, shuffle=False)),
        trainer=tp.SimpleTrainer(),
    )
    optimizer = v1.train.GradientDescentOptimizer(0.01)
    model.compile(optimizer, ["sparse_categorical_crossentropy", "mse"], ["sparse_categorical_accuracy", "mae"])
    test = tp.QueueInput(tp.DataFromList(POINTS, shuffle=False))
    model.fit(test, max_epoch=1, steps_per_epoch=3, monitors=[])
    reported = model.trainer.monitors
    statistics = ["mae", "mse", "sparse_categorical_accuracy", "sparse_categorical_crossentropy", "total_loss"]
    for name in [*statistics, *(f"validation_{name}" for name in statistics)]:
        assert np.isfinite(reported.get_latest(name)), name
    assert reported.get_latest("validation_total_loss") == pytest.approx(
        reported.get_latest("validation_mse") + reported.get_latest("validation_sparse_categorical_crossentropy")
    )
    assert reported.get_latest("empty_regularize_cost") == 0


def test_one_output_may_have_several_metrics_and_several_inputs():
    keras = tf.keras

    def get_model(x, b):
        merged = keras.layers.Concatenate()([keras.layers.Dense(2)(x), b])
        return keras.Model([x, b], keras.layers.Dense(3, activation="softmax")(merged))

    trainer = tp.SimpleTrainer()
    signature = [SPECS[0], SPECS[2]]
    flow = tp.FeedInput(
        tp.MapData(tp.DataFromList(POINTS, shuffle=False), lambda point: [point[0], point[2], point[1]])
    )
    metrics = ["sparse_categorical_accuracy", "sparse_categorical_crossentropy"]
    optimizer = v1.train.GradientDescentOptimizer(0.01)
    setup_keras_trainer(
        trainer,
        get_model,
        signature,
        SPECS[1:2],
        flow,
        optimizer,
        [metrics[1]],
        [metrics[0], "sparse_top_k_categorical_accuracy"],
    )
    trainer.train_with_defaults(max_epoch=1, steps_per_epoch=3, monitors=[])
    assert {*metrics, "sparse_top_k_categorical_accuracy", "total_loss"} <= set(trainer.monitors.names)


class Phases(tp.Callback):
    """Record the model's inputs in each step, in training and in inference towers."""

    def __init__(self):
        self.seen = []

    def _setup_graph(self):
        self.predictor = self.trainer.get_predictor(["x"], ["phase"])
        (self.phase,) = self.get_tensors_maybe_in_tower(["phase"])

    def _before_run(self, _):
        return v1.train.SessionRunArgs(self.phase)

    def _after_run(self, _, run_values):
        self.seen.append(bool(run_values.results))

    def _trigger_epoch(self):
        self.seen.append(bool(self.predictor(POINTS[0][0])[0]))


@pytest.mark.parametrize("dtype", [tf.bool, tf.int32])
def test_the_learning_phase_of_keras_2_is_fed(dtype, graph):
    phase = v1.placeholder_with_default(np.zeros([], dtype.as_numpy_dtype), [], name="keras_learning_phase")

    class Model(tp.ModelDesc):
        def inputs(self):
            return SPECS[:1]

        def build_graph(self, x):
            tf.identity(phase, name="phase")
            return tf.reduce_mean(v1.get_variable("w", [3]) * x, name="cost")

        def optimizer(self):
            return v1.train.GradientDescentOptimizer(0.01)

    phases = Phases()
    flow = tp.DataFromList([point[:1] for point in POINTS], shuffle=False)
    options = {"model": Model(), "dataflow": flow, "monitors": [], "extra_callbacks": [], "max_epoch": 1}
    config = tp.TrainConfig(callbacks=[phases, KerasPhaseCallback(True)], **options)
    tp.launch_train_with_config(config, tp.SimpleTrainer())
    assert phases.seen == [True, True, True, False]


def test_models_that_cannot_be():
    flow = tp.DataFromList(POINTS, shuffle=False)
    for missing in ("input_signature", "target_signature", "input"):
        given = {"input_signature": SPECS[:1], "target_signature": SPECS[1:], "input": flow, missing: None}
        with pytest.raises(ConfigError, match=f"needs {missing}="):
            KerasModel(two_headed(tf.keras), **given)
    with pytest.raises(ConfigError, match=r"such as SimpleTrainer\(\)"):
        KerasModel(two_headed(tf.keras), SPECS[:1], SPECS[1:], flow, tp.Trainer())
    with pytest.raises(TypeError, match="expected a bool"):
        KerasPhaseCallback(1)


@pytest.mark.parametrize(
    ("loss", "metrics", "message"),
    [
        ("mse", None, "2 outputs, 2 targets and 1 losses"),
        (["mse", "mse"], "mae", "2 outputs and 1 metrics"),
        (["mse", len], None, "loss of a Keras model contains <built-in function len>"),
        (["mse", "nothing_like_this"], None, "no function 'nothing_like_this'"),
        (["mse", "mse"], ["mae", "accuracy"], "Choose one of 'categorical_accuracy'"),
    ],
)
def test_names_that_do_not_fit(loss, metrics, message):
    flow = tp.DataFromList(POINTS, shuffle=False)
    model = KerasModel(two_headed(tf.keras), SPECS[:1], SPECS[1:], flow, tp.SimpleTrainer())
    with pytest.raises(ConfigError, match=r"before compile\(\)"):
        model.fit()
    with pytest.raises(ConfigError, match=message):
        model.compile(v1.train.GradientDescentOptimizer(0.01), loss, metrics)


def test_optimizers_are_those_of_tensorflow():
    model = KerasModel(two_headed(tf.keras), SPECS[:1], SPECS[1:], tp.FakeData([[1]]), tp.SimpleTrainer())
    with pytest.raises(ConfigError, match=r"expected one from tf\.train"):
        model.compile("adam", ["mse", "mse"])
