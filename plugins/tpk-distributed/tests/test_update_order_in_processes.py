"""State that TensorFlow names by itself, and several costs for one variable: real processes against one process."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from distributed_trainings import STRATEGIES, Model, batches, concatenated, read, v1

import tpk

pytestmark = pytest.mark.once

STEPS = 12


def strategy_of(name):
    if name == "collective":
        return tpk.use(name, devices=["/cpu:0", "/cpu:1"])
    return STRATEGIES[name.removeprefix("distributed_")](2)


class Values(tpk.Callback):
    """Keeps the values of all variables at the end."""

    chief_only = False

    def after_train(self, trainer):
        if trainer.loop.failure is None:
            self.saved, self.local = (read(trainer.sess, each()) for each in (v1.global_variables, v1.local_variables))


def train(trainer, data, set_up):
    """Train; return the values of saved and of local variables, or None in a parameter server."""
    values = Values()
    set_up(tpk.FeedInput(data))
    if trainer.train_op is None:
        return None
    trainer.train(callbacks=["RunUpdateOps", values], steps_per_epoch=STEPS, max_epoch=1)
    return values.saved, values.local


class Measured(Model):
    """Has state that TensorFlow names after tensors and name scopes."""

    def build_graph(self, x, y):
        cost = super().build_graph(x, y)
        update = v1.metrics.mean(cost, name="mean_cost")[1].op
        averages = v1.train.ExponentialMovingAverage(0.9).apply(v1.trainable_variables()[-1:])
        for op in (update, averages):
            v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, op)
        return cost


def train_measured(strategy, data):
    model, trainer = Measured(), tpk.SingleCostTrainer(strategy)
    signature, optimizer = model.get_input_signature(), model.get_optimizer
    return train(trainer, data, lambda source: trainer.setup_graph(signature, source, model.build_graph, optimizer))


def costs_of_shared_variables(x, y):
    weight = v1.get_variable("weight", [5, 2], initializer=v1.glorot_uniform_initializer(seed=1))
    output = x @ weight
    return {"error": tf.reduce_mean((output - y) ** 2), "size": tf.reduce_mean(tf.abs(output))}


def clipped():
    momentum = v1.train.MomentumOptimizer(0.2, 0.9)
    return tpk.VariableAssignmentOptimizer(
        momentum, lambda variable: tf.clip_by_value(variable.read_value(), -0.3, 0.3)
    )


def train_two_costs(strategy, data):
    trainer = tpk.MultiObjectiveTrainer(strategy, update="together")
    objectives = [tpk.Objective(clipped, name=name) for name in ("error", "size")]
    signature = Model().get_input_signature()
    return train(
        trainer, data, lambda source: trainer.setup_graph(signature, source, costs_of_shared_variables, objectives)
    )


def trained_in_processes(launch, name, function, data):
    """What each worker has in the end, and how many towers there are in all of them."""
    workers = 1 if name == "distributed_parameter_server" else 2
    servers = 0 if name == "collective" else 1
    running = launch(lambda: function(strategy_of(name), data), workers=workers, servers=servers)
    returned = running.returned()
    assert [server.wait().status for server in running.servers] == [0] * servers
    return returned, 2 * workers


@pytest.mark.parametrize("name", ["collective", "distributed_replicated", "distributed_parameter_server"])
def test_metrics_and_averages_of_tensorflow(launch, name):
    data = batches(STEPS * 4)
    returned, towers = trained_in_processes(launch, name, train_measured, data)
    expected, local = train_measured("single", concatenated(data, towers))
    average = "dense_1/bias/ExponentialMovingAverage"
    for saved, own in returned:
        assert saved.keys() == expected.keys()
        np.testing.assert_allclose(saved[average], expected[average], rtol=2e-4, atol=2e-5)
        assert own["mean_cost/count"] == local["mean_cost/count"] == STEPS


@pytest.mark.parametrize("name", ["collective", "distributed_replicated", "distributed_parameter_server"])
def test_objectives_that_share_a_variable_update_it_in_the_order_of_the_list(launch, name):
    data = batches(STEPS * 4)
    returned, towers = trained_in_processes(launch, name, train_two_costs, data)
    expected, _ = train_two_costs("single", concatenated(data, towers))
    for saved, own in returned:
        for key, value in expected.items():
            np.testing.assert_allclose(saved[key], value, rtol=2e-4, atol=2e-5, err_msg=key)
        for key in {"weight", "tower0/weight", "tower1/weight"} & own.keys():
            np.testing.assert_array_equal(own[key], saved["weight"], err_msg=key)
