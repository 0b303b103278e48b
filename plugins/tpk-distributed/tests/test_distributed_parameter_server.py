"""Workers that do not wait for each other."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from distributed_trainings import STRATEGIES, Model, batches, concatenated, train, v1

import tpk


def train_by_themselves(data, devices=1, average=True, **options):
    return train(
        STRATEGIES["parameter_server"]([f"/cpu:{index}" for index in range(devices)], average=average),
        data,
        **options,
    )


@pytest.mark.parametrize(("average", "ours", "theirs"), [(True, "adam", "adam"), (False, "half_sgd", "sgd")])
def test_one_worker_with_two_devices_equals_one_on_the_concatenation(launch, average, ours, theirs):
    data = batches(40)

    def run():
        return train_by_themselves(data, devices=2, average=average, model=Model(ours))

    running = launch(run, workers=1, servers=2)
    (returned,) = running.returned()
    assert [server.wait().status for server in running.servers] == [0, 0]
    kept = {}

    class Keep(tpk.Callback):
        def after_train(self, trainer):
            kept.update({each.op.name: trainer.sess.run(each) for each in v1.global_variables()})

    train("single", concatenated(data, 2), model=Model(theirs), callbacks=[Keep()])
    for name in returned["trained"]:
        np.testing.assert_allclose(returned["saved"][name], kept[name], rtol=2e-4, atol=2e-5, err_msg=name)
    assert returned["local"] == {}
    processes = {device.partition("/device")[0] for name, device in returned["devices"].items() if "dense" in name}
    assert processes == {"/job:ps/replica:0/task:0", "/job:ps/replica:0/task:1"}


class Counting(tpk.ModelDesc):
    """Each update subtracts 1 from the variable, whoever makes it."""

    def inputs(self):
        return [tf.TensorSpec([1], tf.float32, "x")]

    def build_graph(self, x):
        return v1.get_variable("w", [], initializer=v1.zeros_initializer()) + 0 * x[0]

    def optimizer(self):
        return v1.train.GradientDescentOptimizer(1.0)


def test_the_updates_of_all_workers_reach_one_variable_and_each_counts_its_own_steps(launch):
    data = [[np.zeros(1, np.float32)]] * 40

    def run():
        return train_by_themselves(data, model=Counting(), steps=10, epochs=2)

    running = launch(run, servers=1)
    for returned in running.returned():
        assert returned["saved"]["w"] == -40
        assert (returned["steps"], int(returned["saved"]["global_step"])) == (20, 20)
    assert running.servers[0].wait().status == 0


class Bounded(tpk.ModelDesc):
    """Each update subtracts 1 from each variable, and then it is kept above -2.5."""

    def inputs(self):
        return [tf.TensorSpec([1], tf.float32, "x")]

    def build_graph(self, x):
        zeros = v1.zeros_initializer()
        bounded = v1.get_variable("bounded", [], initializer=zeros, constraint=lambda value: tf.maximum(value, -2.5))
        return bounded + v1.get_variable("assigned", [], initializer=zeros) + 0 * x[0]

    def optimizer(self):
        sgd = v1.train.GradientDescentOptimizer(1.0)
        return tpk.graph.VariableAssignmentOptimizer(
            sgd, lambda variable: tf.maximum(variable, -2.5) if variable.op.name == "assigned" else None
        )


def test_what_is_made_of_a_variable_after_its_update_is_made_of_its_new_value(launch):
    data = [[np.zeros(1, np.float32)]] * 3
    running = launch(lambda: train_by_themselves(data, model=Bounded(), steps=3), workers=1, servers=1)
    (returned,) = running.returned()
    assert running.servers[0].wait().status == 0
    assert {name: returned["saved"][name] for name in returned["trained"]} == {"bounded": -2.5, "assigned": -2.5}
