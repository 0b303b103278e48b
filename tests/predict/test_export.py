"""Exported models compute the same bits as the predictor, in programs without tpk."""

from __future__ import annotations

import logging
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk import layers
from tpk.errors import CheckpointError, ConfigError, InputError, TowerError
from tpk.predict import PredictConfig
from tpk.predict.export import ModelExporter, Signature
from tpk.predict.offline import OfflinePredictor

v1 = tf.compat.v1


class Network(tpk.ModelDesc):
    """A convolution, statistics of batch normalization, a branch, and a cost that no export needs."""

    def inputs(self):
        return [tf.TensorSpec([None, 6, 6, 2], tf.float32, "image"), tf.TensorSpec([None], tf.int32, "label")]

    def build_graph(self, image, label):
        training = tpk.get_current_tower_context().is_training
        x = layers.conv2d(image, 4, 3, name="conv")
        x = tf.nn.relu(layers.batch_normalization(x, training=training, name="norm"))
        x = tf.reshape(x, [-1, 64], name="features")
        logits = layers.dense(x, 3, name="linear")
        logits = tf.cond(tf.reduce_mean(image) > 0, lambda: logits * 2, lambda: logits + 1)
        tf.nn.softmax(logits, name="probabilities")
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits), name="cost")

    def optimizer(self):
        return v1.train.GradientDescentOptimizer(0.1)


def weights():
    rng = np.random.default_rng(0)
    shapes = {"conv/kernel": [3, 3, 2, 4], "conv/bias": [4], "linear/kernel": [64, 3], "linear/bias": [3]}
    shapes.update({f"norm/{name}": [4] for name in ("gamma", "beta", "moving_mean", "moving_variance")})
    return {name: rng.uniform(0.1, 1, shape).astype(np.float32) for name, shape in shapes.items()}


def config(**options):
    given = {"model": Network(), "session_init": weights(), "output_names": ["probabilities"]}
    return PredictConfig(**{**given, **options})


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).normal(size=(5, 6, 6, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(images):
    with OfflinePredictor(config()) as predict:
        (probabilities,) = predict(images)
    assert probabilities.shape == (5, 3) and np.ptp(probabilities) > 0.1
    return probabilities


@pytest.fixture(scope="module")
def savedmodel(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "savedmodel"
    ModelExporter(config()).export_savedmodel(path)
    return path


# Programs without tpk.


@pytest.mark.tf2_only("loads the model in eager mode")
def test_tensorflow_loads_a_savedmodel_eagerly(savedmodel, images, expected):
    loaded = tf.saved_model.load(str(savedmodel))
    outputs = loaded.signatures["serving_default"](image=tf.constant(images))
    assert list(outputs) == ["probabilities"]
    np.testing.assert_array_equal(outputs["probabilities"].numpy(), expected)


@pytest.mark.tf2_only("loads the model in eager mode")
@pytest.mark.skipif(not hasattr(tf.keras.layers, "TFSMLayer"), reason="TFSMLayer came with Keras 3")
def test_keras_takes_a_savedmodel_for_a_layer(savedmodel, images, expected):
    layer = tf.keras.layers.TFSMLayer(str(savedmodel), call_endpoint="serving_default")
    np.testing.assert_array_equal(np.asarray(layer(images)["probabilities"]), expected)
    inputs = tf.keras.Input(images.shape[1:])
    model = tf.keras.Model(inputs, layer(inputs))
    np.testing.assert_array_equal(np.asarray(model(images)["probabilities"]), expected)


@pytest.mark.timeout(240)
def test_another_process_without_tpk_loads_a_savedmodel(savedmodel, images, expected, tmp_path):
    np.save(tmp_path / "images.npy", images)
    program = f"""
import sys
sys.modules["tpk"] = None  # From now on, importing it is an error.
import numpy as np
import tensorflow as tf

function = tf.saved_model.load({str(savedmodel)!r}).signatures["serving_default"]
images = tf.constant(np.load("images.npy"))
np.save("outputs.npy", function(image=images)["probabilities"].numpy())
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "outputs.npy"), expected)


def test_tensorflow_1_loads_a_savedmodel_by_its_tags(images, expected, tmp_path):
    ModelExporter(config()).export_savedmodel(tmp_path / "model", tags=["serve", "cpu"])
    with tf.Graph().as_default(), v1.Session() as sess:
        signature = v1.saved_model.load(sess, ["serve", "cpu"], str(tmp_path / "model")).signature_def[
            "serving_default"
        ]
        fed, fetched = signature.inputs["image"].name, signature.outputs["probabilities"].name
        np.testing.assert_array_equal(sess.run(fetched, {fed: images}), expected)


@pytest.mark.parametrize("other", ["label", "features", "cost"])
def test_a_frozen_graph_has_all_inputs_that_were_named(other, images, expected, tmp_path):
    """Also those that the outputs do not depend on: a program can feed what the signature lists."""
    signature = ModelExporter(config(input_names=["image", other])).export_frozen(tmp_path / "model.pb")
    assert list(signature.inputs) == ["image", other]
    graph_def = v1.GraphDef.FromString((tmp_path / "model.pb").read_bytes())
    with tf.Graph().as_default(), v1.Session() as sess:
        fed = {spec.name: v1.placeholder(spec.dtype, spec.shape) for spec in signature.inputs.values()}
        (fetched,) = tf.graph_util.import_graph_def(graph_def, fed, [spec.name for spec in signature.outputs.values()])
        zeros = np.zeros([size or 5 for size in fed[f"{other}:0"].shape])
        outputs = sess.run(fetched, {fed["image:0"]: images, fed[f"{other}:0"]: zeros})
    assert outputs.shape == expected.shape
    assert np.allclose(outputs, expected, rtol=1e-4) == (other != "features")


def test_a_frozen_graph_is_imported(images, expected, tmp_path):
    signature = ModelExporter(config()).export_frozen(tmp_path / "model.pb")
    graph_def = v1.GraphDef.FromString((tmp_path / "model.pb").read_bytes())
    as_written = v1.ConfigProto()
    as_written.graph_options.rewrite_options.disable_meta_optimizer = True
    outputs = []
    for session_config in (as_written, None):
        with tf.Graph().as_default(), v1.Session(config=session_config) as sess:
            v1.import_graph_def(graph_def, name="")
            fetched = {key: spec.name for key, spec in signature.outputs.items()}
            outputs.append(sess.run(fetched, {signature.inputs["image"].name: images})["probabilities"])
    np.testing.assert_array_equal(outputs[0], expected)
    # Of constants, TensorFlow's optimizers compute in advance what they can, and so in another order.
    np.testing.assert_allclose(outputs[1], expected, rtol=1e-5)


def test_a_frozen_graph_has_no_variables_and_no_training_ops(tmp_path):
    ModelExporter(config(device="/cpu:0")).export_frozen(tmp_path / "model.pb")
    graph_def = v1.GraphDef.FromString((tmp_path / "model.pb").read_bytes())
    nodes = [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]
    assert not [node.name for node in nodes if "Variable" in node.op or "Assign" in node.op]
    assert not [node.name for node in nodes if "label" in node.name or "cost" in node.name or "Entropy" in node.op]
    assert not [node.name for node in graph_def.node if node.device or "_class" in node.attr]


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
@pytest.mark.tf2_only("in TF1 behaviour, TensorFlow Lite's converter leaves the signatures out")
def test_tensorflow_lite_runs_a_converted_model(images, expected, tmp_path):
    signature = ModelExporter(config()).export_tflite(tmp_path / "model.tflite")
    assert list(signature.inputs) == ["image"] and list(signature.outputs) == ["probabilities"]
    runner = tf.lite.Interpreter(str(tmp_path / "model.tflite")).get_signature_runner("serving_default")
    # Its kernels are others: they fuse the normalization into the convolution, and add up in another order.
    np.testing.assert_allclose(runner(image=images)["probabilities"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_a_converter_can_be_configured(tmp_path):
    def quantize(converter):
        converter.optimizations = [tf.lite.Optimize.DEFAULT]

    def build(x):
        tf.matmul(x, v1.get_variable("w", [64, 64]), name="y")

    given = {"tower_func": build, "input_signature": [tf.TensorSpec([1, 64], tf.float32, "x")], "output_names": ["y"]}
    exporter = ModelExporter(PredictConfig(**given, session_init={"w": np.eye(64, dtype=np.float32)}))
    exporter.export_tflite(tmp_path / "plain.tflite")
    exporter.export_tflite(tmp_path / "quantized.tflite", quantize)
    sizes = [(tmp_path / f"{name}.tflite").stat().st_size for name in ("plain", "quantized")]
    assert sizes[1] < sizes[0] / 2


# Signatures.


@pytest.mark.tf2_only("loads the model in eager mode")
def test_several_signatures_are_functions_over_one_graph(images, expected, tmp_path):
    signatures = {
        "serving_default": Signature(["probabilities"]),
        "features": Signature({"vector": "features"}, {"pixels": "image"}),
        "head": Signature(["probabilities"], ["features", "image"]),
        "evaluate": Signature(["cost"]),
    }
    exported = ModelExporter(config()).export_savedmodel(tmp_path / "model", signatures)
    assert list(exported["evaluate"].inputs) == ["image", "label"]
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    functions = loaded.signatures
    assert set(functions) == set(signatures)
    vector = functions["features"](pixels=tf.constant(images))["vector"]
    head = functions["head"](features=vector, image=tf.constant(images))["probabilities"]
    np.testing.assert_array_equal(head.numpy(), expected)
    with OfflinePredictor(config(output_names=["cost", "features"])) as predict:
        cost, features = predict(images, np.arange(5, dtype=np.int32) % 3)
    np.testing.assert_array_equal(vector.numpy(), features)
    labels = tf.constant(np.arange(5, dtype=np.int32) % 3)
    np.testing.assert_array_equal(functions["evaluate"](image=tf.constant(images), label=labels)["cost"].numpy(), cost)


def test_a_signature_tells_shapes_and_types_and_is_logged(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "tpk"):
        exported = ModelExporter(config()).export_savedmodel(tmp_path / "model")
    signature = exported["serving_default"]
    assert signature.inputs == {"image": tf.TensorSpec([None, 6, 6, 2], tf.float32, "image:0")}
    assert signature.outputs == {"probabilities": tf.TensorSpec([None, 3], tf.float32, "probabilities:0")}
    assert str(signature) == "(image: float32 [?, 6, 6, 2]) -> (probabilities: float32 [?, 3])"
    assert caplog.messages[-1] == f"exported to {tmp_path / 'model'} (SavedModel): serving_default{signature}"
    function = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    assert function.structured_input_signature[1]["image"].shape.as_list() == [None, 6, 6, 2]


@pytest.mark.tf2_only("loads the model in eager mode")
def test_outputs_have_the_keys_that_the_config_gives_them(images, expected, tmp_path):
    exporter = ModelExporter(config(output_names={"scores": "probabilities"}))
    exporter.export_savedmodel(tmp_path / "model")
    function = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    np.testing.assert_array_equal(function(image=tf.constant(images))["scores"].numpy(), expected)
    assert exporter.export_frozen(tmp_path / "model.pb").outputs["scores"].name == "probabilities:0"


# Tables, files, and what else must be initialized.


@pytest.fixture
def with_table(tmp_path):
    """A config of a model that reads a file into a table; and the file."""
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("one\ntwo\nthree\n")

    def build(word):
        rows = tf.lookup.TextFileInitializer(
            str(vocabulary),
            *(tf.string, tf.lookup.TextFileIndex.WHOLE_LINE),
            *(tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER),
        )
        offset = v1.get_variable("offset", initializer=7, collections=[v1.GraphKeys.LOCAL_VARIABLES], trainable=False)
        number = tf.lookup.StaticHashTable(rows, -1).lookup(word)
        tf.gather(v1.get_variable("vectors", [4]), number + 1, name="vector")
        tf.add(number, tf.cast(offset, tf.int64), name="shifted")

    options = {"tower_func": build, "input_signature": [tf.TensorSpec([None], tf.string, "word")]}
    values = {"vectors": np.arange(4, dtype=np.float32)}
    return PredictConfig(**options, session_init=values, output_names=["vector", "shifted"]), vocabulary


@pytest.mark.tf2_only("loads the model in eager mode")
def test_files_go_with_a_savedmodel_and_tables_are_filled(with_table, tmp_path):
    config, vocabulary = with_table
    ModelExporter(config).export_savedmodel(tmp_path / "model")
    vocabulary.unlink()
    (tmp_path / "model").rename(tmp_path / "moved")
    function = tf.saved_model.load(str(tmp_path / "moved")).signatures["serving_default"]
    outputs = function(word=tf.constant(["three", "none", "one"]))
    assert outputs["vector"].numpy().tolist() == [3, 0, 1]
    assert outputs["shifted"].numpy().tolist() == [9, 6, 7]


def test_a_table_cannot_be_frozen(with_table, tmp_path):
    with pytest.raises(ConfigError, match=r"the outputs vector, shifted need the tables hash_table.*Export a SavedMod"):
        ModelExporter(with_table[0]).export_frozen(tmp_path / "model.pb")
    assert [path.name for path in tmp_path.iterdir()] == ["words.txt"]


# Errors.


def test_existing_files_are_an_error_and_not_changed(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "file").write_text("mine")
    exporter = ModelExporter(config())
    exports = (exporter.export_savedmodel, exporter.export_frozen, exporter.export_tflite)
    for export in exports:
        for name in ("model", "file"):
            with pytest.raises(ConfigError, match=f"{name} already exists and is not overwritten. Export to another"):
                export(tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "model"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("what", ["weights", "outputs", "inputs", "writing"])
def test_a_failed_export_leaves_no_files(what, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise tf.errors.ResourceExhaustedError(None, None, "no space left on device")

    options, error = {
        "weights": ({"session_init": {"conv/kernel": np.zeros([3, 3, 2, 4])}}, CheckpointError),
        "outputs": ({"output_names": ["probability"]}, TowerError),
        "inputs": ({"output_names": ["cost"], "input_names": ["image"]}, InputError),
        "writing": ({}, ConfigError),
    }[what]
    if what == "writing":
        monkeypatch.setattr(v1.train.Saver, "save", fail)
    exporter = ModelExporter(config(**options))
    with pytest.raises(error):
        exporter.export_savedmodel(tmp_path / "exports" / "model" / "1")
    if what != "writing":
        with pytest.raises(error):
            exporter.export_frozen(tmp_path / "exports" / "model.pb")
    assert not list(tmp_path.iterdir())


def test_directories_above_are_created(tmp_path):
    ModelExporter(config()).export_frozen(tmp_path / "exports" / "network" / "1.pb")
    assert [path.name for path in (tmp_path / "exports" / "network").iterdir()] == ["1.pb"]


def test_operations_that_tensorflow_lite_lacks_are_named(tmp_path):
    def build(x):
        tf.add(tf.linalg.det(tf.math.erf(tf.nn.relu(x))), 1.0, name="y")

    signature = [tf.TensorSpec([None, 2, 2], tf.float32, "x")]
    exporter = ModelExporter(PredictConfig(tower_func=build, input_signature=signature, output_names=["y"]))
    with pytest.raises(ConfigError, match=r"lacks operations that the outputs need: Erf, MatrixDeterminant\. Build"):
        exporter.export_tflite(tmp_path / "model.tflite")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("signatures", "error", "message"),
    [
        ({}, ConfigError, r"signatures={}: expected a mapping of names to signatures"),
        ({"f": ["probabilities"]}, ConfigError, r"the signature 'f' is \['probabilities'\]; expected a Signature\("),
        ({"": Signature(["cost"])}, ConfigError, "a signature cannot have the name ''"),
        ({"__saved_model_init_op": Signature(["cost"])}, ConfigError, "a signature cannot have the name '__saved"),
        ({"f": Signature(["probabilites"])}, TowerError, "no tensor 'probabilites'. Nearest: 'probabilities'"),
        ({"f": Signature(["cost"], ["imag"])}, TowerError, "no tensor 'imag'. Nearest: 'image'"),
        ({"f": Signature(["cost"], ["image"])}, InputError, "depend on 'label', which is not among the inputs"),
    ],
)
def test_an_invalid_signature_is_an_error(signatures, error, message, tmp_path):
    with pytest.raises(error, match=message):
        ModelExporter(config()).export_savedmodel(tmp_path / "model", signatures)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("names", [[], "cost", [1], None, {"cost": 2}])
def test_a_signature_is_made_of_names(names):
    with pytest.raises(ConfigError, match=r"Signature: output_names=.*: expected"):
        Signature(names)


@pytest.mark.parametrize("tags", ["serve", [], [1]])
def test_tags_are_names(tags, tmp_path):
    with pytest.raises(ConfigError, match=r"tags=.*: expected a list of names"):
        ModelExporter(config()).export_savedmodel(tmp_path / "model", tags=tags)


def test_an_exporter_needs_a_config():
    with pytest.raises(ConfigError, match=r"ModelExporter\(<.*Network.*expected a tpk.PredictConfig"):
        ModelExporter(Network())


def test_a_path_that_tensorflow_would_take_for_a_pattern_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"treats a path with one of .* as a pattern"):
        ModelExporter(config()).export_savedmodel(tmp_path / "model[1]")


def test_a_path_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file.* could not be written"):
        ModelExporter(config()).export_frozen(tmp_path / "file" / "model.pb")
