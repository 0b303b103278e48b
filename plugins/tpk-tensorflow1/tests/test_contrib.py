"""Names of `tf.contrib`; the cases in `oracle` compare more of them, with TensorFlow 1.15 itself."""

from __future__ import annotations

import base64
import gzip
import struct
import zlib

import numpy as np
import pytest
import tensorflow
import tpk_tensorflow1 as tf
from tpk_tensorflow1.contrib import data, distribute, layers, learn, losses, metrics, opt, predictor, slim, summary
from tpk_tensorflow1.contrib.training import HParams
from tpk_tensorflow1.examples.tutorials.mnist import input_data


@pytest.fixture
def graph():
    with tensorflow.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def mnist_files(tmp_path):
    for name, number in [("train", 9), ("t10k", 2)]:
        images = struct.pack(">4i", 2051, number, 2, 3) + bytes(range(6 * number))
        (tmp_path / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        labels = struct.pack(">2i", 2049, number) + bytes(range(number))
        (tmp_path / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    return tmp_path


def test_a_batch_at_the_end_of_an_epoch_is_filled_up_with_the_next_one(mnist_files):
    train, validation, test = input_data.read_data_sets(str(mnist_files), validation_size=2, seed=1)
    assert [part.num_examples for part in (train, validation, test)] == [7, 2, 2]
    np.testing.assert_allclose(test.images[0], np.arange(6, dtype=np.float32) / 255, rtol=1e-6)
    labels = [train.next_batch(5)[1].tolist() for _ in range(3)]
    assert sorted(labels[0] + labels[1][:2]) == list(range(2, 9))
    assert sorted(labels[1][2:] + labels[2][:4]) == list(range(2, 9))
    assert train.epochs_completed == 2


def test_missing_or_wrong_files_of_mnist_are_errors_that_name_them(mnist_files):
    wrong = mnist_files / "train-images-idx3-ubyte.gz"
    wrong.write_bytes(gzip.compress(struct.pack(">i", 2049) + bytes(12)))
    with pytest.raises(ValueError, match=r"train-images.* begins with 2049 instead of 2051"):
        input_data.read_data_sets(str(mnist_files))
    wrong.unlink()
    with pytest.raises(FileNotFoundError, match=r"Nothing is downloaded: put train-images-idx3-ubyte.gz from https://"):
        input_data.read_data_sets(str(mnist_files))


def test_a_vocabulary_numbers_words_and_forgets_rare_ones(tmp_path):
    texts = ["the cat and the dog", "the DOG cat"]
    processor = learn.preprocessing.VocabularyProcessor(4, min_frequency=1)
    assert [numbers.tolist() for numbers in processor.fit_transform(texts)] == [[1, 2, 0, 1], [1, 0, 2, 0]]
    processor.save(tmp_path / "vocabulary")
    restored = learn.preprocessing.VocabularyProcessor.restore(tmp_path / "vocabulary")
    assert list(restored.reverse([[1, 2, 0]])) == ["the cat <UNK>"]


# A `VocabularyProcessor(3)` that TensorFlow 1.15 fitted to "a b b" and saved.
SAVED_BY_TENSORFLOW_1 = (
    "c-ozj%}xR_6om&6!6Jy_?;DJpc>?3c<s`<KXl7%YPPs4*rJdVp`AbN2VZvkE84&jDdcJ#e&T0GI;1*P&%}DBb#I>?Uq>%(>RFp4mrq#bNkQ>dRD1"
    ";hE78aI#YR*z8nOVMVC)yAU9)Ga5#(J0xf*_c(1s!Vcrl2g9pvE@CM%+lc<xD6#GJp;gU*bs|Bppv@dsB+dqq=csVXTedOwxlJc{$)iae}A5Z)=V1"
    "FzNYp>eNK(xuRB2K;c=^^ziB9HGW2tw9ADl%X6QCoi(0^8S$-a9y9F5wd#~&FRr_!U+xwz&$Y4Czzj?Qc(K{?o!)!(zwpv~W!<a?Rburnc*VJv61W"
    "vw6=Vn_=A<18ZV3)}>V&kybD_Mx{>7VjybUv7BdZFub~dmAyxX`mAtk7;C01bY{`i02n-F|(Y4isf_`>4"
)


def test_a_vocabulary_that_tensorflow_1_saved_can_be_restored(tmp_path):
    (tmp_path / "vocabulary").write_bytes(zlib.decompress(base64.b85decode(SAVED_BY_TENSORFLOW_1)))
    restored = learn.preprocessing.VocabularyProcessor.restore(tmp_path / "vocabulary")
    assert [numbers.tolist() for numbers in restored.transform(["b a new b"])] == [[2, 1, 0]]


def test_hyperparameters_keep_their_types():
    hparams = HParams(rate=0.1, sizes=[64, 64], name="small", is_deep=False)
    assert hparams.parse("rate=1, sizes=[32],is_deep=true") is hparams
    assert str(hparams) == "rate=1.0,sizes=[32],name=small,is_deep=True"
    assert hparams.parse_json(hparams.to_json()).values() == {
        "rate": 1.0,
        "sizes": [32],
        "name": "small",
        "is_deep": True,
    }
    hparams.name = "other"
    assert hparams.get("name") == "other"
    for text, message in [
        ("sizes=3", "'sizes' is a list, unlike 3"),
        ("sizes=[x]", "'sizes' is of type int, which 'x' is not"),
        ("raet=3", "Nearest: 'rate'"),
        ("rate", "malformed at 'rate'"),
        ("rate=1,rate=2", "sets 'rate' twice"),
    ]:
        with pytest.raises(ValueError, match=message):
            hparams.parse(text)
    with pytest.raises(KeyError, match="Nearest: 'sizes'"):
        hparams.set_hparam("size", [3])


def test_losses_and_metrics_of_contrib_take_predictions_first(graph):
    predictions, labels = tf.constant([[2.0, 0.0]]), tf.constant([[0.0, 1.0]])
    values = [
        losses.log_loss(tf.constant([0.5, 0.25]), tf.constant([1.0, 0.0]), epsilon=0.0),
        losses.softmax_cross_entropy(predictions, onehot_labels=labels),
        metrics.streaming_recall(tf.constant([1, 0]), tf.constant([1, 1]))[1],
    ]
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        found = sess.run(values)
    np.testing.assert_allclose(found, [(np.log(2) - np.log(0.75)) / 2, 2 + np.log1p(np.exp(-2)), 0.5], rtol=1e-5)


@pytest.mark.parametrize("argument", ["num_gpus", "num_gpus_per_worker"])
def test_a_mirrored_strategy_counts_gpus(graph, monkeypatch, argument, caplog):
    def devices(number):
        strategy = distribute.MirroredStrategy(**{argument: number})
        return [device.rpartition("device:")[2] for device in strategy.extended.worker_devices]

    assert devices(0) == ["CPU:0"]
    assert "no GPU" not in caplog.text
    monkeypatch.setattr(tensorflow.config, "list_physical_devices", lambda kind: [])
    assert devices(2) == ["CPU:0"]
    assert "no GPU, so the MirroredStrategy for 2 GPUs runs on the CPU" in caplog.text
    monkeypatch.setattr(tensorflow.config, "list_physical_devices", lambda kind: ["first", "second"])
    assert devices(2) == ["GPU:0", "GPU:1"]
    assert isinstance(distribute.OneDeviceStrategy("/cpu:0"), tensorflow.compat.v1.distribute.OneDeviceStrategy)


def test_ops_write_summaries(graph, tmp_path):
    writer = summary.create_file_writer(str(tmp_path))
    with writer.as_default(), summary.record_summaries_every_n_global_steps(2):
        step = tf.train.get_or_create_global_step()
        summary.scalar("loss", tf.constant(2.5))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(summary.summary_writer_initializer_op())
        for _ in range(3):
            sess.run(summary.all_summary_ops())
            sess.run(step.assign_add(1))
        sess.run(writer.flush())
    (path,) = tmp_path.iterdir()
    events = [event for event in tf.train.summary_iterator(str(path)) if event.summary.value]
    assert [event.step for event in events] == [0, 2]
    assert [event.summary.value[0].simple_value for event in events] == [2.5, 2.5]


@pytest.mark.parametrize("use_resource", [False, True])
def test_scipy_minimizes_a_loss(graph, use_resource):
    with tf.variable_scope("", use_resource=use_resource):
        x = tf.get_variable("x", initializer=[[3.0, -2.0]])
        y = tf.get_variable("y", initializer=np.float64(4))
    target = tf.placeholder(tf.float32)
    loss = tf.reduce_sum(tf.square(x - target)) + tf.to_float(tf.square(y))
    free = opt.ScipyOptimizerInterface(loss, [x], options={"maxiter": 50})
    bounded = opt.ScipyOptimizerInterface(loss, var_to_bounds={x: ([0, 2], np.inf), y: (None, -1)})
    constraints = {"equalities": [y - 2], "inequalities": [x[0, 0] - 5]}
    constrained = opt.ScipyOptimizerInterface(loss, method="SLSQP", **constraints)
    losses, steps = [], []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        options = {"feed_dict": {target: 1.0}, "fetches": [loss, y]}
        free.minimize(sess, loss_callback=lambda *values: losses.append(values), **options)
        assert losses[0] == (29.0, 4.0)
        np.testing.assert_allclose(sess.run(x), [[1, 1]], atol=1e-4)
        assert sess.run(y) == 4
        bounded.minimize(**options)
        np.testing.assert_allclose(sess.run(x), [[1, 2]], atol=1e-4)
        np.testing.assert_allclose(sess.run(y), -1, atol=1e-4)
        constrained.minimize(step_callback=lambda point: steps.append(point.shape), **options)
        assert set(steps) == {(3,)}
        np.testing.assert_allclose(sess.run(x), [[5, 1]], atol=1e-3)
        np.testing.assert_allclose(sess.run(y), 2, atol=1e-3)


def test_images_are_rotated_and_moved(graph):
    image = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    rotated = tf.contrib.image.rotate(tf.stack([image, image])[..., None], [np.pi / 2, np.pi])[..., 0]
    moved = tf.contrib.image.translate(image, [1.0, 0.0])
    enlarged = tf.contrib.image.transform(image, [0.5, 0, 0, 0, 1, 0, 0, 0], "BILINEAR", [2, 3])
    with tf.Session() as sess:
        assert sess.run(rotated).tolist() == [[[2.0, 4.0], [1.0, 3.0]], [[4.0, 3.0], [2.0, 1.0]]]
        assert sess.run(moved).tolist() == [[0.0, 1.0], [0.0, 3.0]]
        assert sess.run(enlarged).tolist() == [[1.0, 1.5, 2.0], [3.0, 3.5, 4.0]]
    with pytest.raises(TypeError, match="images must have 2, 3 or 4 dimensions in the graph, but their shape is"):
        tf.contrib.image.rotate(tf.placeholder(tf.float32), 0.1)


def test_a_window_slides_over_a_dataset(graph):
    dataset = tf.data.Dataset.range(5).apply(data.sliding_window_batch(3, stride=2))
    batch = dataset.make_one_shot_iterator().get_next()
    with tf.Session() as sess:
        assert [sess.run(batch).tolist() for _ in range(2)] == [[0, 1, 2], [2, 3, 4]]


def test_optimize_loss_trains(graph):
    x = tf.get_variable("x", initializer=[3.0, 4.0])
    loss = tf.reduce_sum(x**2) / 2
    step = tf.train.get_or_create_global_step()
    train = layers.optimize_loss(loss, step, 0.5, "SGD", clip_gradients=1.0, gradient_multipliers={x: 2.0})
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(train)
        np.testing.assert_allclose(sess.run(x), [2.7, 3.6], rtol=1e-6)
        assert sess.run(step) == 1


def test_a_train_op_of_slim_summarizes_the_gradients_of_embeddings(graph):
    x = tf.get_variable("x", initializer=[3.0, 4.0])
    loss = tf.reduce_sum(tf.nn.embedding_lookup(x, [0]) ** 2)
    train = slim.learning.create_train_op(loss, tf.train.GradientDescentOptimizer(0.25), summarize_gradients=True)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(train) == 9.0
        assert sess.run(x).tolist() == [1.5, 4.0]
        assert len(tf.Summary.FromString(sess.run(tf.summary.merge_all())).value) == 2


def test_normalizers_of_contrib_normalize_instances(graph):
    x = np.random.default_rng(0).normal(2, 3, [2, 4, 5, 6]).astype(np.float32)
    outputs = [
        layers.instance_norm(tf.constant(x), scale=False),
        layers.instance_norm(tf.constant(x.transpose(0, 3, 1, 2)), data_format="NCHW", scope="first"),
    ]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        instances, first = sess.run(outputs)
    for found, axes in [(instances, (1, 2)), (first, (2, 3))]:
        np.testing.assert_allclose(found.mean(axes), 0, atol=1e-5)
        np.testing.assert_allclose(found.std(axes), 1, rtol=1e-4)
    assert [variable.op.name for variable in tf.trainable_variables()] == [
        "InstanceNorm/beta",
        "first/beta",
        "first/gamma",
    ]


def test_batch_norm_of_vectors_creates_beta_first_and_has_an_unbiased_variance(graph):
    x = tf.constant([[1.0], [3.0]])
    regularizers = {"beta": slim.l2_regularizer(0.5), "gamma": slim.l1_l2_regularizer(0.1, 0.2)}
    y = layers.batch_norm(x, decay=0.5, scale=True, updates_collections=None, param_regularizers=regularizers)
    variables = tf.global_variables()
    names = ["BatchNorm/beta", "BatchNorm/gamma", "BatchNorm/moving_mean", "BatchNorm/moving_variance"]
    assert [each.op.name for each in variables] == names
    assert [each.op.name for each in tf.losses.get_regularization_losses()] == [
        "BatchNorm/beta/Regularizer/l2_regularizer",
        "BatchNorm/gamma/Regularizer/l1_l2_regularizer",
    ]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        np.testing.assert_allclose(sess.run(y), [[-1], [1]], atol=1e-3)
        assert sess.run(variables[3]).tolist() == [1.5]  # (1 + 2) / 2


def test_networks_of_slim_are_built_of_the_layers_of_contrib(graph):
    with slim.arg_scope(slim.nets.resnet_v1.resnet_arg_scope()):
        logits, ends = slim.nets.resnet_v1.resnet_v1_50(tf.zeros([1, 32, 32, 3]), 10, is_training=True)
    variables = {variable.op.name for variable in tf.global_variables()}
    unit = "resnet_v1_50/block1/unit_1/bottleneck_v1"
    assert {f"{unit}/conv1/weights", f"{unit}/conv1/BatchNorm/gamma", f"{unit}/shortcut/BatchNorm/beta"} <= variables
    assert len(variables) == 267
    assert logits.shape.as_list() == [1, 1, 1, 10]
    assert f"{unit}/conv2" in ends
    assert len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)) == 2 * 53


def test_a_predictor_has_the_signatures_of_its_saved_model(tmp_path):
    directory = str(tmp_path / "model")
    with tensorflow.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [None], "x")
        tf.saved_model.simple_save(sess, directory, {"x": x}, {"double": 2 * x})
    predict = predictor.from_saved_model(directory)
    assert predict({"x": [1.0, 2.0]})["double"].tolist() == [2.0, 4.0]
    with pytest.raises(ValueError, match=r"no inputs \['y'\]; it has \['x'\]"):
        predict({"y": [1.0]})
    with pytest.raises(ValueError, match=r"model has no signature 'other'; it has .*'serving_default'"):
        predictor.from_saved_model(directory, "other")
    with pytest.raises(ValueError, match="input_names with output_names"):
        predictor.from_saved_model(directory, input_names={"x": "x:0"})
