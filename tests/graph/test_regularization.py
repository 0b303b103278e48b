from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def evaluate(value):
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        return sess.run(value)


def weights(*names):
    return [v1.get_variable(name, initializer=np.float32([[1, -2], [3, -4]])) for name in names]


def test_penalties_are_those_of_their_formulas():
    (w,) = weights("w")
    assert evaluate(tpk.l2_regularizer(0.1)(w)) == pytest.approx(0.1 * 30 / 2)
    assert evaluate(tpk.l1_regularizer(0.1)(w)) == pytest.approx(0.1 * 10)
    (gradient,) = tf.gradients(tpk.l2_regularizer(0.1)(w), [w])
    np.testing.assert_allclose(evaluate(gradient), 0.1 * np.float32([[1, -2], [3, -4]]), rtol=1e-6)


def test_those_are_regularized_whose_whole_name_matches(caplog):
    weights("a/kernel", "a/kernel_of", "b/kernel")
    v1.get_variable("c/kernel", initializer=1.0, trainable=False)
    with caplog.at_level(logging.INFO, "tpk"):
        cost = tpk.regularize_cost(".*/kernel", tpk.l2_regularizer(0.1))
    assert evaluate(cost) == pytest.approx(2 * 0.1 * 15)
    assert cost.op.name == "regularize_cost"
    assert caplog.messages == ["regularize_cost: a/kernel, b/kernel"]


def test_in_a_scope_of_the_model_all_of_the_model_is_regularized():
    weights("a/kernel")
    with v1.variable_scope("losses"):
        assert evaluate(tpk.regularize_cost("a/.*", tpk.l1_regularizer(1))) == 10


def test_a_name_of_nothing_is_a_warning_and_a_zero(caplog):
    weights("a/kernel")
    assert evaluate(tpk.regularize_cost("kernel", tpk.l2_regularizer(0.1))) == 0
    assert "'kernel' does not match the whole name of any variable (a/kernel)" in caplog.text


def test_collected_penalties_of_layers_are_added(caplog):
    assert evaluate(tpk.regularize_cost_from_collection()) == 0
    assert "no layer has a regularizer" in caplog.text
    ones = v1.ones_initializer()
    x = tpk.layers.dense(tf.ones([1, 4]), 3, kernel_initializer=ones, kernel_regularizer=tpk.l2_regularizer(0.5))
    tpk.layers.dense(x, 2, kernel_initializer=ones, kernel_regularizer=tpk.l1_regularizer(0.5), name="out")
    assert evaluate(tpk.regularize_cost_from_collection("penalty")) == pytest.approx(0.5 * 12 / 2 + 0.5 * 6)
    assert evaluate("penalty:0") == evaluate(v1.losses.get_regularization_loss())


@pytest.mark.parametrize("strategy", ["single", "replicated", "parameter_server"])
@pytest.mark.parametrize("how", ["by name", "from the collection"])
def test_each_tower_adds_the_penalty_of_its_own_weights_once(strategy, how):
    penalties = []

    def cost(x):
        regularizer = tpk.l2_regularizer(0.5)
        y = tpk.layers.dense(
            x,
            3,
            kernel_initializer=v1.ones_initializer(),
            kernel_regularizer=regularizer if how == "from the collection" else None,
        )
        if how == "by name":
            penalties.append(tpk.regularize_cost(".*/kernel", regularizer))
        else:
            penalties.append(tpk.regularize_cost_from_collection())
        return tf.reduce_mean(y) + penalties[-1]

    class Look(tpk.Callback):
        def before_train(self, trainer):
            self.values = trainer.sess.run(penalties)

    devices = {} if strategy == "single" else {"devices": 2}
    trainer, look = tpk.SingleCostTrainer(tpk.use(strategy, **devices)), Look()
    source = tpk.TensorInput(lambda: [tf.ones([1, 4])])
    trainer.setup_graph(
        [tf.TensorSpec([1, 4], tf.float32, "x")], source, cost, lambda: v1.train.GradientDescentOptimizer(0.1)
    )
    trainer.train(callbacks=[look], monitors=[], steps_per_epoch=1, max_epoch=1)
    assert look.values == [pytest.approx(0.5 * 12 / 2)] * (1 if strategy == "single" else 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tpk.l2_regularizer(-1), "l2_regularizer: scale must be a number that is not negative, not -1"),
        (lambda: tpk.l1_regularizer("x"), "l1_regularizer: scale .* not 'x'"),
        (lambda: tpk.l1_regularizer(float("nan")), "l1_regularizer: scale .* not nan"),
        (lambda: tpk.regularize_cost("(", tpk.l2_regularizer(1)), r"regularize_cost: '\(' is not a regular expression"),
        (lambda: tpk.regularize_cost(".*", 0.1), "takes a function of a variable, such as .* got 0.1"),
        (lambda: tpk.regularize_cost(".*", tf.abs), "for 'w', the function returned .* expected a scalar tensor"),
    ],
)
def test_what_cannot_be_is_an_error(make, message):
    weights("w")
    with pytest.raises(ConfigError, match=message):
        make()
