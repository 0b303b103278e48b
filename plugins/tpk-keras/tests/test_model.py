"""Keras models in towers, against the same models where TensorFlow executes eagerly."""

from __future__ import annotations

import cloudpickle
import numpy as np
import pytest
import tensorflow as tf
from tpk_keras import KerasModel, KerasRestore

from tpk import ChainInit
from tpk.errors import CheckpointError, ConfigError, TowerError
from tpk.graph.variables import variable_name
from tpk.tower import PredictTowerContext, TowerFunc, TrainTowerContext

v1 = tf.compat.v1
GraphKeys = v1.GraphKeys

IMAGES = np.random.default_rng(0).normal(size=(6, 6, 6, 1)).astype(np.float32)
NAMES = [
    "model/conv/kernel",
    "model/conv/bias",
    "model/batch_normalization/gamma",
    "model/batch_normalization/beta",
    "model/batch_normalization/moving_mean",
    "model/batch_normalization/moving_variance",
    "model/dense/kernel",
    "model/dense/bias",
]


def layers_of(keras):
    of = keras.layers
    return [
        of.Conv2D(3, 3, activation="relu", name="conv", kernel_regularizer=keras.regularizers.L2(0.1)),
        of.BatchNormalization(momentum=0.8),
        of.Flatten(),
        of.Dense(4, activity_regularizer=keras.regularizers.L2(0.1)),
    ]


def sequential(keras):
    return keras.Sequential(layers_of(keras))


def functional(keras):
    outputs = inputs = keras.Input((6, 6, 1))
    for layer in layers_of(keras):
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


def in_graph(net, vs_names=("", "")):
    """A graph with training towers in these variable scopes, and one for inference; and the outputs of each."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 6, 6, 1], "x")
        tower = TowerFunc(net, [tf.TensorSpec(x.shape, tf.float32, "x")])
        for index, vs_name in enumerate(vs_names):
            with TrainTowerContext(ns_name=f"tower{index}", vs_name=vs_name, index=index, total=len(vs_names)):
                tower(x)
        with PredictTowerContext(ns_name="predict"):
            tower(x)
    return graph, x, [handle.output for handle in tower.towers]


def names(graph, key=GraphKeys.GLOBAL_VARIABLES):
    return [variable_name(variable) for variable in graph.get_collection(key)]


def values_of(graph, sess):
    variables = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
    return sess.run({variable_name(variable): variable for variable in variables})


@pytest.fixture
def session():
    opened = []

    def open_session(graph):
        opened.append(v1.Session(graph=graph))
        with graph.as_default():
            opened[-1].run(v1.global_variables_initializer())
        return opened[-1]

    yield open_session
    for sess in opened:
        sess.close()


@pytest.mark.parametrize("build", [sequential, functional])
def test_towers_share_variables_with_the_names_in_the_model(keras, build):
    build(keras)
    for _ in range(2):
        graph, _, _ = in_graph(KerasModel(lambda: build(keras), keras=keras.__name__))
        assert sorted(names(graph)) == sorted(NAMES)
        trained = [name for name in NAMES if "moving" not in name]
        assert sorted(names(graph, GraphKeys.TRAINABLE_VARIABLES)) == sorted(trained)
        assert len(graph.get_collection(GraphKeys.UPDATE_OPS)) == 2
        assert len(graph.get_collection(GraphKeys.REGULARIZATION_LOSSES)) == 1


@pytest.mark.parametrize("build", [sequential, functional])
def test_towers_with_variable_scopes_have_their_own(keras, build):
    graph, _, _ = in_graph(KerasModel(lambda: build(keras), keras=keras.__name__), ("", "tower1"))
    assert sorted(names(graph)) == sorted([*NAMES, *(f"tower1/{name}" for name in NAMES)])
    assert len(graph.get_collection(GraphKeys.UPDATE_OPS)) == 4


@pytest.mark.parametrize("build", [sequential, functional])
def test_without_a_name_the_variables_are_called_as_in_the_model(keras, build):
    net = KerasModel(lambda: build(keras), name="", keras=keras.__name__)
    graph, _, _ = in_graph(net, ("", "tower1"))
    inside = [name.removeprefix("model/") for name in NAMES]
    assert sorted(names(graph)) == sorted([*inside, *(f"tower1/{name}" for name in inside)])
    assert sorted(net.variable_names(graph)) == sorted(inside)
    assert len(graph.get_collection(GraphKeys.UPDATE_OPS)) == 4


def test_two_models_without_a_name_clash(keras):
    if keras.__version__.startswith("2."):
        pytest.skip("Keras 2 tells their layers apart by the name scopes of the graph")
    error = pytest.raises(TowerError, match="there is a variable 'conv/kernel' in this tower already")
    with tf.Graph().as_default(), error:
        for _ in range(2):
            KerasModel(lambda: sequential(keras), name="", keras=keras.__name__)(tf.ones([1, 6, 6, 1]))


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
@pytest.mark.parametrize("build", [sequential, functional])
def test_a_tower_computes_the_same_as_plain_keras_with_the_saved_model(keras, build, suffix, session, tmp_path):
    net = KerasModel(lambda: build(keras), keras=keras.__name__)
    graph, x, (train, _, predict) = in_graph(net)
    sess = session(graph)
    path = tmp_path / "new" / f"digits{suffix}"
    net.save(path, values_of(graph, sess), graph)
    assert [file.name for file in path.parent.iterdir()] == [path.name]

    if suffix == ".keras":
        plain = keras.models.load_model(path)
    else:
        plain = build(keras)
        plain(IMAGES)
        plain.load_weights(path)
    # The kernels of a graph and of a function may add numbers in a different order.
    np.testing.assert_allclose(sess.run(predict, {x: IMAGES}), plain(IMAGES), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sess.run(train, {x: IMAGES}), plain(IMAGES, training=True), rtol=1e-4, atol=1e-5)

    sess.run(graph.get_collection(GraphKeys.UPDATE_OPS), {x: IMAGES})
    after = values_of(graph, sess)
    for name, value in zip(net.variable_names(graph), plain.get_weights(), strict=True):
        np.testing.assert_allclose(after[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("collected", [False, True])
def test_losses_are_those_of_plain_keras(keras, collected, session, tmp_path):
    net, losses = KerasModel(lambda: functional(keras), keras=keras.__name__), []

    def tower(x):
        outputs = net(x)
        keys = (GraphKeys.LOSSES, GraphKeys.REGULARIZATION_LOSSES)
        losses.append([loss for key in keys for loss in v1.get_collection(key)] if collected else net.losses)
        return outputs

    graph, x, _ = in_graph(tower)
    sess = session(graph)
    net.save(tmp_path / "model.keras", values_of(graph, sess), graph)
    plain = keras.models.load_model(tmp_path / "model.keras")
    plain(IMAGES, training=True)
    for of_tower in losses[:2]:
        np.testing.assert_allclose(sorted(sess.run(of_tower, {x: IMAGES})), sorted(map(float, plain.losses)), rtol=1e-4)


def test_a_training_starts_from_weights_in_a_file(keras, session, tmp_path):
    plain = functional(keras)
    plain.save_weights(tmp_path / "plain.weights.h5")
    net = KerasModel(lambda: functional(keras), keras=keras.__name__)
    graph, _, _ = in_graph(net)
    sess = session(graph)
    before = values_of(graph, sess)
    init = KerasRestore(net, tmp_path / "plain.weights.h5", ignore=["model/dense/bias"])
    ChainInit([{"model/dense/bias": np.full(4, 7.0)}, init]).run(sess)
    after = values_of(graph, sess)
    assert not np.array_equal(before["model/conv/kernel"], after["model/conv/kernel"])
    np.testing.assert_array_equal(after.pop("model/dense/bias"), np.full(4, 7.0))
    expected = dict(zip(net.variable_names(graph), plain.get_weights(), strict=True))
    for name, value in after.items():
        np.testing.assert_array_equal(value, expected[name])


def test_a_function_may_load_weights_with_keras_3(keras3, session, tmp_path):
    plain = functional(keras3)
    plain.save(tmp_path / "plain.keras")
    net = KerasModel(lambda: keras3.models.load_model(tmp_path / "plain.keras"))
    graph, x, (*_, predict) = in_graph(net)
    np.testing.assert_allclose(session(graph).run(predict, {x: IMAGES}), plain(IMAGES), rtol=1e-5, atol=1e-6)


def test_calls_in_one_tower_share_the_model_and_update_it_one_after_the_other(keras3, session):
    net, plain = KerasModel(lambda: functional(keras3)), functional(keras3)
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 6, 6, 1])
        with TrainTowerContext():
            net(x)
            net(x * 2)
    updates = graph.get_collection(GraphKeys.UPDATE_OPS)
    assert len(updates) == 2
    sess = session(graph)
    before = values_of(graph, sess)
    sess.run(updates, {x: IMAGES})
    after = values_of(graph, sess)
    plain.set_weights([before[name] for name in net.variable_names(graph)])
    plain(IMAGES, training=True)
    plain(IMAGES * 2, training=True)
    for name, value in zip(net.variable_names(graph), plain.get_weights(), strict=True):
        np.testing.assert_allclose(after[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_the_dtype_policy_of_keras_sets_the_precision_of_a_model(keras):
    policies = getattr(keras, "config", keras.mixed_precision)
    set_policy = getattr(policies, "set_dtype_policy", None) or policies.set_global_policy
    set_policy("mixed_bfloat16")
    try:
        graph, _, outputs = in_graph(KerasModel(lambda: functional(keras), keras=keras.__name__))
    finally:
        set_policy("float32")
    assert {output.dtype for output in outputs} == {tf.bfloat16}
    assert {variable.dtype.base_dtype for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)} == {tf.float32}


def test_a_model_travels_to_another_process_without_its_graphs(keras):
    net = KerasModel(lambda: functional(keras), name="net", keras=keras.__name__)
    in_graph(net)
    graph, _, _ = in_graph(cloudpickle.loads(cloudpickle.dumps(net)))
    assert sorted(names(graph)) == sorted(name.replace("model/", "net/", 1) for name in NAMES)


@pytest.mark.filterwarnings("ignore:Skipping nested container")  # Keras warns before it fails.
def test_invalid_files_for_saving_and_reading_are_an_error(keras, session, tmp_path):
    net = KerasModel(lambda: functional(keras), keras=keras.__name__)
    graph, _, _ = in_graph(net)
    with pytest.raises(CheckpointError, match=r"missing values for variables.*model/conv/kernel"):
        net.save(tmp_path / "model.keras", {}, graph)
    with pytest.raises(ConfigError, match=r"model\.npz.*\.weights\.h5"):
        net.save(tmp_path / "model.npz", {}, graph)
    with pytest.raises(CheckpointError, match="there is no file"):
        KerasRestore(net, tmp_path / "nothing.keras")
    assert list(tmp_path.iterdir()) == []

    wider = [*layers_of(keras)[:-1], keras.layers.Dense(5)]
    keras.Sequential([keras.Input((6, 6, 1)), *wider]).save_weights(tmp_path / "other.weights.h5")
    with pytest.raises(CheckpointError, match="does not fit"):
        KerasRestore(net, tmp_path / "other.weights.h5").run(session(graph))

    dense = KerasModel(lambda: keras.layers.Dense(2), keras=keras.__name__)
    graph, _, _ = in_graph(dense)
    with pytest.raises(ConfigError, match="a layer, not a model"):
        dense.save(tmp_path / "model.keras", values_of(graph, session(graph)), graph)


@pytest.mark.parametrize("training", [None, True])
def test_in_a_branch_a_model_cannot_train(keras, training):
    """Its updates and losses would be missed much later, or, with Keras 2, never."""

    def build(x):
        net = KerasModel(lambda: sequential(keras), keras=keras.__name__)
        return tf.cond(tf.reduce_sum(x) > 0, lambda: net(x, training=training), lambda: tf.zeros([6, 4]))

    message = r"KerasModel.*: an update or a loss of its layers is created inside a tf\.cond.*training=False"
    with pytest.raises(ConfigError, match=message):
        in_graph(build)


def test_in_a_branch_a_model_infers(keras):
    def build(x):
        net = KerasModel(lambda: sequential(keras), keras=keras.__name__)
        return tf.cond(tf.reduce_sum(x) > 1e9, lambda: tf.zeros([6, 4]), lambda: net(x, training=False))

    graph, x, (outputs, *_) = in_graph(build, [""])
    with graph.as_default(), v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        assert sess.run(outputs, {x: IMAGES}).any()
