"""The op in which a bad number arises: the first one in the order of computation, on every strategy."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf
from guarded_trainings import REPLICATED, SIGNATURE, assert_same, cost, data, momentum, train, two_costs

import tpk
from tpk.callbacks import CheckNumerics
from tpk.errors import ConfigError, NonFiniteError
from tpk.graph.objective import Objective

v1 = tf.compat.v1


def with_root(x):
    """Where x is 0, all is well but the gradient: that of the root is infinite."""
    w = v1.get_variable("w", initializer=1.0)
    hidden = tf.multiply(w, x, name="hidden")
    root = tf.sqrt(hidden, name="root")
    return tf.reduce_sum(tf.tanh(root), name="cost")


def with_log(x):
    """Where x is 3, the logarithm is NaN; that of a constant is infinite, and not to be told."""
    w = v1.get_variable("w", initializer=1.0)
    never = tf.constant(np.inf, name="never")
    log = tf.math.log(tf.subtract(2.5, w * x, name="difference"), name="log")
    return tf.reduce_sum(tf.minimum(tf.nn.relu(log), never), name="cost")


def still():
    """Variables stay what they are, whatever the gradients of rows are that are not bad."""
    return v1.train.GradientDescentOptimizer(0.0)


def rows(bad, value):
    flow = data()
    for index in bad:
        flow[index][0][0] = value
    return flow


@pytest.mark.parametrize("strategy", ["single", REPLICATED, tpk.use("parameter_server", devices=2)], ids=str)
@pytest.mark.parametrize("make_input", [tpk.FeedInput, tpk.QueueInput])
def test_the_first_op_that_computed_a_bad_number_is_named(tmp_path, strategy, make_input):
    towers = 1 if strategy == "single" else 2
    scope = "" if towers == 1 else "tower1/"
    with pytest.raises(NonFiniteError) as caught:
        options = {"flow": rows([4 * towers - 1], 3), "make_input": make_input}
        train(CheckNumerics(), tmp_path, strategy=strategy, func=with_log, optimizer=still, **options)
    error = caught.value
    assert str(error).startswith(
        f"the first op that computed a bad number is '{scope}log' (Log); {scope}log:0 has 1 NaN, 0 Inf of 2; "
    )
    assert (error.tensors[0], error.global_step, error.local_step) == (f"{scope}log:0", 3, 3)
    assert error.datapoints == range(3 * towers, 4 * towers)
    assert error.checkpoint == str(tmp_path / "model-2")


def test_of_the_towers_that_do_not_wait_the_first_is_checked():
    with pytest.raises(NonFiniteError, match=r"'log' \(Log\)|'tower0/log' \(Log\)"):
        train(
            CheckNumerics(),
            flow=rows(range(12), 3),
            strategy=tpk.use("async", devices=2),
            make_input=tpk.QueueInput,
            func=with_log,
        )


def test_an_op_of_the_gradients_is_named():
    with pytest.raises(NonFiniteError, match=r"number is 'gradients/root_grad/SqrtGrad' \(SqrtGrad\)"):
        train(CheckNumerics(), flow=rows([2], 0), func=with_root)


@pytest.mark.parametrize("share", [tf.identity, lambda w: tf.reshape(w, [-1, 16])], ids=["read", "reshape"])
def test_what_was_read_before_the_update_is_not_blamed_for_it(share):
    """The update changes the last row in place, before the check has seen all rows that were read."""

    def func(x):
        w = v1.get_variable("w", [1_000_000, 16], initializer=v1.zeros_initializer(), use_resource=False)
        root = tf.sqrt(tf.gather(share(w), [999_999]), name="root")
        return tf.reduce_sum(root) * tf.reduce_sum(x)

    with pytest.raises(NonFiniteError, match=r"number is 'gradients/root_grad/SqrtGrad'") as caught:
        train(CheckNumerics(), func=func)
    assert not {"w/read:0", "Identity:0", "Reshape:0"} & set(caught.value.tensors)


def test_a_reference_variable_that_was_bad_before_the_step_is_named():
    def func(x):
        w = v1.get_variable("w", initializer=np.float32([1, np.inf]), use_resource=False)
        return tf.reduce_sum(w * x)

    with pytest.raises(NonFiniteError, match=r"^before the step; the variable w has 0 NaN, 1 Inf of 2, in epoch 1"):
        train(CheckNumerics(), func=func)


def test_a_training_in_which_all_is_well_stays_the_same():
    def func(x):
        return cost(
            tpk.layers.batch_normalization(tf.tile(x[:, None, None, None], [1, 3, 3, 4]), training=True)[:, 0, 0, 0]
        )

    plain = train(tpk.CallbackFactory(before_train=lambda self: None), func=func, make_input=tpk.QueueInput)
    checked = train(CheckNumerics(), func=func, make_input=tpk.QueueInput)
    assert_same(plain.final, checked.final)


def test_what_is_in_a_loop_is_checked_where_it_comes_out():
    def func(x):
        w = v1.get_variable("w", initializer=1.0)
        condition, body = lambda i, _: i < 3, lambda i, value: (i + 1, value / (i - 1))
        _, ratio = tf.while_loop(condition, body, [tf.constant(0.0), x], name="loop")
        return tf.add(tf.reduce_sum(ratio), w, name="cost")

    # The cost alone needs it, and no gradient.
    with pytest.raises(NonFiniteError, match=r"the first op that computed a bad number is 'loop.*; cost:0 has 0 NaN"):
        train(CheckNumerics(), func=func)


def test_what_is_in_a_loop_of_the_old_kind_is_left_out(caplog, resource_variables):
    caplog.set_level(logging.INFO, "tpk")

    def func(x):
        w = v1.get_variable("w", initializer=1.0)
        return tf.math.log(w - tf.cast(v1.train.get_or_create_global_step(), tf.float32), name="log") * tf.reduce_sum(x)

    was_new = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:

        def with_loop(x):
            _, looped = tf.while_loop(lambda i, _: i < 2, lambda i, value: (i + 1, value * 2), [tf.constant(0), x])
            return func(looped)

        with pytest.raises(NonFiniteError, match=r"'log' \(Log\).*step 2 "):
            train(CheckNumerics(), func=with_loop, optimizer=still)
    finally:
        if was_new:
            v1.enable_control_flow_v2()
    assert "ops are inside of loops" in caplog.text


@pytest.mark.parametrize("update", ["in_turn", "together"])
def test_several_objectives_are_checked_each_in_its_turn(update):
    """The cost of the second one is infinite from the beginning; its turn is in the second step."""

    def costs(x):
        made = two_costs(x)
        return {**made, "second": tf.divide(made["second"], 0.0, name="second_cost")}

    with tf.Graph().as_default():
        trainer = tpk.MultiObjectiveTrainer(update=update)
        objectives = [
            Objective(still, name=name, variables=name, every=every) for name, every in (("first", 1), ("second", 2))
        ]
        trainer.setup_graph(SIGNATURE, tpk.QueueInput(data()), costs, objectives)
        with pytest.raises(NonFiniteError, match=r"bad number is '[^']*second[^']*'.* in epoch 1, step 2 "):
            trainer.train(callbacks=[CheckNumerics()], steps_per_epoch=4, max_epoch=1)


def test_it_can_be_enabled_for_some_steps_only():
    gate = tpk.EnableCallbackIf(CheckNumerics(), lambda self: self.global_step >= 4)
    values = train(gate, flow=rows([2], 3), func=with_log, optimizer=still)
    assert values.final_step == 6
    with pytest.raises(NonFiniteError, match="after global step 4"):
        train(
            tpk.EnableCallbackIf(CheckNumerics(), lambda self: self.global_step >= 4),
            flow=rows([2, 4], 3),
            func=with_log,
            optimizer=still,
        )


def test_several_steps_in_a_run_are_all_checked():
    with tf.Graph().as_default():
        trainer = tpk.SingleCostTrainer(steps_per_run=3)
        trainer.setup_graph(SIGNATURE, tpk.QueueInput(rows([4], 3)), with_log, still)
        with pytest.raises(NonFiniteError, match=r"'log' \(Log\).*after global step 4"):
            trainer.train(callbacks=[CheckNumerics()], steps_per_epoch=6, max_epoch=1)


def test_a_dynamic_loss_scale_is_refused():
    with tf.Graph().as_default():
        trainer = tpk.SingleCostTrainer(precision="float16")
        trainer.setup_graph(SIGNATURE, tpk.FeedInput(data()), cost, momentum)
        with pytest.raises(ConfigError, match=r"CheckNumerics: with a DynamicLossScaleOptimizer.*precision='float32'"):
            trainer.train(callbacks=[CheckNumerics()], steps_per_epoch=1, max_epoch=1)


def test_a_trainer_of_which_nobody_knows_what_it_computes_is_told():
    class Runs(tpk.Trainer):
        def run_step(self):
            self.hooked_sess.run("nothing")

    with tf.Graph().as_default():
        tf.no_op("nothing")
        with pytest.raises(ConfigError, match=r"CheckNumerics does not know what a step of a Runs computes"):
            Runs().train(callbacks=[CheckNumerics()], steps_per_epoch=1, max_epoch=1)
