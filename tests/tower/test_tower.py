from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import InputError, TowerError
from tpk.tower import PredictTowerContext, TowerFunc, TrainTowerContext, get_current_tower_context

v1 = tf.compat.v1
SIGNATURE = [tf.TensorSpec([None, 3], tf.float32, "x")]
EAGER = tf.constant([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def linear(x):
    w = v1.get_variable("w", [3, 1])
    v1.summary.scalar("norm", tf.norm(w))
    v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, tf.no_op("update"))
    return tf.identity(x @ w, name="y")


def x():
    return v1.placeholder(tf.float32, [None, 3])


def names(variables):
    return [variable.name for variable in variables]


def test_towers_share_variables_and_have_name_scopes_of_their_own():
    tower = TowerFunc(linear, SIGNATURE)
    with TrainTowerContext(ns_name="tower0", total=2):
        tower(x())
    with TrainTowerContext(ns_name="tower1", index=1, total=2):
        tower(x())
    with PredictTowerContext(ns_name="predict"):
        tower(x())
    assert names(v1.trainable_variables()) == ["w:0"]
    assert [handle.output.name for handle in tower.towers] == ["tower0/y:0", "tower1/y:0", "predict/y:0"]
    assert len(tower.towers.training()) == 2
    assert [handle.ns_name for handle in tower.towers.inference()] == ["predict"]


def test_an_inference_tower_computes_with_the_variables_of_the_training_tower():
    tower = TowerFunc(linear, SIGNATURE)
    with TrainTowerContext():
        tower(tf.ones([1, 3]))
    with PredictTowerContext(ns_name="predict"):
        tower(tf.ones([1, 3]))
    (w,) = v1.trainable_variables()
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        sess.run(w.initializer, {w.initializer.inputs[1]: [[1.0], [2.0], [3.0]]})
        assert sess.run([handle.output for handle in tower.towers]) == [[[6.0]], [[6.0]]]


def test_a_tower_with_a_variable_scope_has_its_own_variables():
    tower = TowerFunc(linear, SIGNATURE)
    for index in range(2):
        vs_name = f"tower{index}" if index else ""
        with TrainTowerContext(ns_name=f"tower{index}", vs_name=vs_name, index=index, total=2):
            tower(x())
    assert names(v1.trainable_variables()) == ["w:0", "tower1/w:0"]
    assert tower.towers[1].get_variable("w").name == "tower1/w:0"


def test_only_the_main_training_tower_shows_summaries_and_only_training_updates():
    tower = TowerFunc(linear, SIGNATURE)
    for index in range(2):
        with TrainTowerContext(ns_name=f"tower{index}", index=index, total=2):
            tower(x())
    with PredictTowerContext(ns_name="predict"):
        tower(x())
    (summary,) = v1.get_collection(v1.GraphKeys.SUMMARIES)
    assert summary.name.startswith("tower0/")
    # What updates shared variables runs once; it was made where they were.
    assert [op.name for op in v1.get_collection(v1.GraphKeys.UPDATE_OPS)] == ["tower0/update"]
    # The handle still finds the items that a tower added.
    assert [op.name for op in tower.towers["predict"].get_collection(v1.GraphKeys.UPDATE_OPS)] == ["predict/update"]


def test_a_tower_with_its_own_variables_updates_them():
    tower = TowerFunc(linear, SIGNATURE)
    for index in range(2):
        with TrainTowerContext(ns_name=f"tower{index}", vs_name=f"tower{index}" if index else "", index=index, total=2):
            tower(x())
    updates = [op.name for op in v1.get_collection(v1.GraphKeys.UPDATE_OPS)]
    assert updates == ["tower0/update", "tower1/update"]


def test_the_context_says_which_tower_is_being_built():
    seen = []

    def look(x):
        context = get_current_tower_context()
        seen.append((context.is_training, context.is_main_training_tower, context.index, context.has_own_variables))
        return x

    tower = TowerFunc(look, SIGNATURE)
    assert get_current_tower_context() is None
    with TrainTowerContext(total=2):
        tower(x())
    with TrainTowerContext(ns_name="tower1", index=1, total=2):
        tower(x())
    with PredictTowerContext(ns_name="predict"):
        tower(x())
    assert get_current_tower_context() is None
    assert seen == [(True, True, 0, True), (True, False, 1, False), (False, False, 0, False)]


def test_a_handle_finds_things_by_their_names_inside_the_tower():
    tower = TowerFunc(linear, SIGNATURE)
    with TrainTowerContext():
        tower(x())
    with PredictTowerContext(ns_name="predict"):
        fed = x()
        tower(fed)
    handle = tower.towers["predict"]
    assert handle.get_tensor("y").name == handle["y:0"].name == "predict/y:0"
    assert handle.get_tensor("x") is fed
    assert handle.get_variable("w") is handle.get_variables(["w:0"])[0]
    assert handle["w"].name == "w:0"
    assert handle.inputs == [fed]
    with pytest.raises(TowerError, match=r"no tensor 'yy'.*Nearest: 'y'"):
        handle.get_tensor("yy")
    with pytest.raises(TowerError, match=r"no variable 'ww'.*Nearest: 'w'"):
        handle.get_variable("ww")
    with pytest.raises(TowerError, match="no tower 'other'; towers built so far: '', 'predict'"):
        tower.towers["other"]


def test_a_handle_finds_local_variables_of_a_tower_that_shares_variables():
    def measured(x):
        return v1.metrics.mean(x, name="metric")[0]

    tower = TowerFunc(measured, SIGNATURE)
    for name_scope in ("tower0", "tower1"):
        with TrainTowerContext(ns_name=name_scope, index=int(name_scope[-1]), total=2):
            tower(x())
    for handle in tower.towers:
        assert handle.get_variable("metric/total").op.name == f"{handle.ns_name}/metric/total"


def test_an_average_of_a_tensor_cannot_be_shared():
    def averaged(x):
        v1.train.ExponentialMovingAverage(0.9).apply([tf.reduce_sum(x, name="cost")])

    tower = TowerFunc(averaged, SIGNATURE)
    with TrainTowerContext(ns_name="tower0", total=2):
        tower(x())
    with (
        pytest.raises(ValueError, match="tower1/cost/ExponentialMovingAverage") as caught,
        TrainTowerContext(ns_name="tower1", index=1, total=2),
    ):
        tower(x())
    assert "only if tpk.get_current_tower_context().is_main_training_tower" in caught.value.__notes__[0]


# The rules.


def test_a_variable_that_is_not_shared_is_an_error_that_names_it_and_the_rule():
    def broken(x):
        return x @ tf.Variable(tf.ones([3, 1]), name="mine")

    tower = TowerFunc(broken, SIGNATURE)
    with TrainTowerContext():
        tower(x())
    with (
        pytest.raises(TowerError, match=r"mine.*Rule: a tower function may be called several times.*get_variable"),
        PredictTowerContext(ns_name="predict"),
    ):
        tower(x())


def test_a_keras_layer_is_an_error_that_names_its_package():
    with (
        TrainTowerContext(),
        pytest.raises(TowerError, match=r"by itself in .*kernel.*pip install \"tpk-train\[keras\]"),
    ):
        TowerFunc(lambda x: tf.keras.layers.Dense(2)(x), SIGNATURE)(x())


def test_a_trainable_variable_outside_of_the_scope_is_an_error():
    def broken(x):
        with v1.variable_scope(root):
            return x @ v1.get_variable("mine", [3, 1])

    root = v1.get_variable_scope()
    tower = TowerFunc(broken, SIGNATURE)
    with (
        pytest.raises(TowerError, match=r"'mine'.*does not start with 'tower1/'"),
        TrainTowerContext(ns_name="tower1", vs_name="tower1", index=1, total=2),
    ):
        tower(x())


def test_a_scope_called_tower_is_an_error():
    def broken(x):
        with tf.name_scope("tower7"):
            return tf.identity(x)

    with pytest.raises(TowerError, match=r"'tower7/Identity'.*scope called 'tower…'"), TrainTowerContext():
        TowerFunc(broken, SIGNATURE)(x())


def test_a_scope_that_only_begins_like_a_tower_is_fine():
    def fine(x):
        with tf.name_scope("tower_of_babel"):
            return tf.identity(x)

    with TrainTowerContext(ns_name="tower0"):
        assert TowerFunc(fine, SIGNATURE)(x()).name == "tower0/tower_of_babel/Identity:0"


@pytest.mark.parametrize("optimizer", [v1.train.GradientDescentOptimizer, v1.train.AdamOptimizer])
def test_a_tower_function_that_minimizes_its_cost_is_an_error(optimizer):
    def minimizes(x):
        cost = tf.reduce_mean(linear(x))
        with tf.control_dependencies([optimizer(0.1).minimize(cost)]):
            return tf.identity(cost)

    with pytest.raises(TowerError, match=r"update of an optimizer.*Leave minimize\(\) out"), TrainTowerContext():
        TowerFunc(minimizes, SIGNATURE)(x())


def test_gradients_inside_of_a_tower_are_fine():
    def penalty(x):
        return tf.reduce_sum(tf.gradients(linear(x) ** 2, x)[0])

    with TrainTowerContext(ns_name="tower0", total=2):
        assert TowerFunc(penalty, SIGNATURE)(x()).name == "tower0/Sum:0"


@pytest.mark.tf2_only("there are eager tensors in eager mode only")
@pytest.mark.parametrize(
    ("build", "hint"),
    [
        (lambda x: x.numpy(), "a tensor has no value yet"),
        (lambda x: x if tf.reduce_mean(x) > 0 else -x, "Use ops such as tf.where, tf.cond"),
        (lambda x: [row + 1 for row in x], "tf.map_fn"),
        (lambda x: float(tf.reduce_mean(x)), "fetch the tensor in a callback"),
        (lambda x: np.mean(x), "tf.numpy_function for Python code"),
        (lambda x: tf.reshape(x, [3, x.shape[0]]), r"Use tf.shape\(tensor\)\[0\]"),
        (lambda x: x * EAGER, "created outside the tower function"),
        (lambda x: linear(linear(x)), "Give each layer another name"),
    ],
)
def test_an_error_of_tensorflow_gets_a_note_with_advice(build, hint):
    errors = (AttributeError, TypeError, ValueError, NotImplementedError, RuntimeError)
    with pytest.raises(errors) as caught, TrainTowerContext():
        TowerFunc(build, SIGNATURE)(x())
    (note,) = caught.value.__notes__
    assert re.search(hint, note)


def test_an_error_of_the_users_own_code_has_no_note():
    with pytest.raises(KeyError) as caught, TrainTowerContext():
        TowerFunc(lambda x: {}["no_such"], SIGNATURE)(x())
    assert not hasattr(caught.value, "__notes__")


def test_a_tower_outside_of_a_context_is_an_error():
    with pytest.raises(TowerError, match="outside of a tower"):
        TowerFunc(linear, SIGNATURE)(x())


def test_a_tower_inside_another_is_an_error():
    with (
        pytest.raises(TowerError, match="inside another one"),
        TrainTowerContext(),
        PredictTowerContext(ns_name="predict"),
    ):
        pass
    assert get_current_tower_context() is None


def test_a_context_is_used_once():
    context = TrainTowerContext()
    with context:
        pass
    with pytest.raises(TowerError, match="entered before"), context:
        pass


def test_an_invalid_scope_name_is_an_error():
    with pytest.raises(TowerError, match="ns_name='a b'"):
        TrainTowerContext(ns_name="a b")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (lambda: [], "with 0 inputs, its signature has 1: x"),
        (lambda: [tf.ones([2, 4])], r"input 'x' .* should be float32 of shape \(None, 3\), got float32 of shape"),
        (lambda: [tf.ones([2, 3], tf.int32)], "got int32"),
    ],
)
def test_inputs_that_do_not_fit_the_signature_are_an_error(inputs, message):
    with pytest.raises(TowerError, match=message), TrainTowerContext():
        TowerFunc(linear, SIGNATURE)(*inputs())


def test_a_signature_that_is_none_is_an_error():
    with pytest.raises(InputError, match=r"expected tf\.TensorSpec"):
        TowerFunc(linear, [tf.float32])
    with pytest.raises(TowerError, match="callable"):
        TowerFunc(3, SIGNATURE)
