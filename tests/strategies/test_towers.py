from __future__ import annotations

import pytest
import tensorflow as tf

import tpk
from tpk import layers
from tpk.errors import TowerError
from tpk.strategies.towers import build_on_multi_tower, check_gradients_alike, in_turn, variables_by_name
from tpk.tower.context import get_current_tower_context

v1 = tf.compat.v1
DEVICES = ["/device:CPU:0", "/device:CPU:1", "/device:CPU:2"]
KEYS = v1.GraphKeys


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def names(variables):
    return [variable.op.name for variable in variables]


def model():
    """A layer with updates, a summary, and a variable that is not trained."""
    hidden = layers.batch_normalization(layers.dense(tf.ones([2, 3]), 2, name="fc"), name="bn", training=True)
    v1.summary.scalar("level", tf.reduce_mean(hidden))
    seen = v1.get_variable("seen", [], trainable=False, initializer=v1.zeros_initializer())
    v1.add_to_collection(KEYS.UPDATE_OPS, seen.assign_add(1.0).op)
    return tf.reduce_sum(hidden, name="cost")


OWN = ["fc/kernel", "fc/bias", "bn/gamma", "bn/beta", "bn/moving_mean", "bn/moving_variance", "seen"]


def test_towers_share_the_variables_of_the_first_by_default(graph):
    towers = build_on_multi_tower(DEVICES, model)
    assert names(v1.global_variables()) == OWN
    assert [names(tower.created) for tower in towers] == [OWN, [], []]
    assert [names(tower.variables) for tower in towers] == [OWN[:4]] * 3
    assert [tower.output.name for tower in towers] == [f"tower{index}/cost:0" for index in range(3)]
    assert [tower.device for tower in towers] == DEVICES
    assert {tower.vs_name for tower in towers} == {""}


def test_a_tower_with_a_variable_scope_has_separate_variables():
    towers = build_on_multi_tower(DEVICES[:2], model, ["", "second"])
    assert names(towers[0].created) == OWN
    assert names(towers[1].created) == [f"second/{name}" for name in OWN]
    assert names(towers[1].variables) == [f"second/{name}" for name in OWN[:4]]


def test_towers_may_all_have_scopes():
    towers = build_on_multi_tower(DEVICES[:2], model, ["a", "b"])
    assert [names(tower.variables)[0] for tower in towers] == ["a/fc/kernel", "b/fc/kernel"]


def test_the_towers_ops_are_on_their_devices(graph):
    build_on_multi_tower(DEVICES, model, ["", "second", "third"])
    for index, device in enumerate(DEVICES):
        own = [op for op in graph.get_operations() if op.name.startswith(f"tower{index}/")]
        # TensorFlow itself puts the read of a variable to the variable.
        own = [op for op in own if op.type not in ("NoOp", "ReadVariableOp")]
        assert own
        assert {(op.type, op.name) for op in own if op.device != device} == set()


@pytest.mark.usefixtures("resource_variables")
def test_a_device_function_may_place_the_ops():
    def place(device):
        return lambda op: "/device:CPU:7" if op.type == "VarHandleOp" else device

    towers = build_on_multi_tower(DEVICES[:2], model, place=place)
    assert {variable.device for variable in towers[0].created} == {"/device:CPU:7"}
    assert [tower.output.device for tower in towers] == DEVICES[:2]


def test_the_function_knows_in_which_tower_it_is():
    contexts = []

    def build():
        contexts.append(get_current_tower_context())
        return v1.get_variable("w", [])

    build_on_multi_tower(DEVICES, build, ["", "", "own"])
    assert [(context.index, context.total, context.vs_name) for context in contexts] == [
        (0, 3, ""),
        (1, 3, ""),
        (2, 3, "own"),
    ]
    assert [context.has_own_variables for context in contexts] == [True, False, True]
    assert all(context.is_training for context in contexts)


def test_collections_of_shared_variables_hold_one_copy():
    build_on_multi_tower(DEVICES, model)
    assert len(v1.get_collection(KEYS.UPDATE_OPS)) == 3, "two averages and a counter, all of the first tower"
    assert all(op.name.startswith("tower0/") for op in v1.get_collection(KEYS.UPDATE_OPS))
    assert [summary.name for summary in v1.get_collection(KEYS.SUMMARIES)] == ["tower0/level:0"]
    assert names(v1.trainable_variables()) == OWN[:4]
    assert v1.local_variables() == []


def test_update_ops_of_towers_with_separate_variables_are_collected():
    build_on_multi_tower(DEVICES[:2], model, ["", "tower1"])
    updates = [op.name.split("/")[0] for op in v1.get_collection(KEYS.UPDATE_OPS)]
    assert updates == ["tower0"] * 3 + ["tower1"] * 3
    assert len(v1.get_collection(KEYS.SUMMARIES)) == 1


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_a_strategy_leaves_one_copy_in_the_global_collections(strategy):
    trainer = tpk.SingleCostTrainer(tpk.use(strategy, devices=3))
    trainer.setup_graph(
        [tf.TensorSpec([], tf.float32, "x")],
        tpk.TensorInput(lambda: [tf.ones([])]),
        lambda x: model() * x,
        lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    )
    with trainer.graph.as_default():
        momenta = [f"{name}/Momentum" for name in OWN[:4]]
        assert names(v1.global_variables()) == [*OWN, *momenta]
        assert names(v1.trainable_variables()) == OWN[:4]
        assert len(v1.get_collection(KEYS.SUMMARIES)) == 1
        towers_with_variables = 3 if strategy == "replicated" else 1
        assert len(v1.get_collection(KEYS.UPDATE_OPS)) == 3 * towers_with_variables
        copies = [f"tower{index}/{name}" for index in range(1, towers_with_variables) for name in [*OWN, *momenta]]
        assert sorted(names(v1.local_variables())) == sorted(copies)


def test_as_many_scopes_as_devices_are_needed():
    with pytest.raises(TowerError, match=r"3 devices need as many variable scopes, got \['', 'a'\]\."):
        build_on_multi_tower(DEVICES, model, ["", "a"])


def test_each_tower_takes_its_datapoint_after_the_one_before(graph):
    taken = iter(range(3))
    take = in_turn(lambda: [tf.constant(next(taken)), tf.constant(0)])
    first, second, third = take(), take(), take()
    assert first[0].op.control_inputs == []
    assert second[0].op.control_inputs == [tensor.op for tensor in first]
    assert third[0].op.control_inputs == [tensor.op for tensor in second]
    assert {tensor.device for row in (first, second, third) for tensor in row} == {"/device:CPU:0"}


def test_variables_go_by_their_names_inside_the_tower():
    def build():
        if get_current_tower_context().index == 0:
            v1.get_variable("average_of_a_summary", [], trainable=False)
            v1.get_variable("b", [])
        v1.get_variable("a", [])
        if get_current_tower_context().index == 1:
            v1.get_variable("b", [])

    main, other = variables_by_name(build_on_multi_tower(DEVICES[:2], build, ["", "tower1"]))
    assert {name: variable.op.name for name, variable in other.items()} == {"a": "tower1/a", "b": "tower1/b"}
    assert {name: variable.op.name for name, variable in main.items()} == {name: name for name in main}
    assert set(main) == {"average_of_a_summary", "a", "b"}


def test_no_variable_is_called_by_the_name_scope_of_its_tower():
    def build():
        weight = v1.get_variable("layer/weight", [])
        cost = tf.square(weight, name="cost")
        with tf.name_scope("deep"):
            tf.Variable(0.0, trainable=False, name="count")
        v1.metrics.mean(cost, name="metric")
        v1.train.ExponentialMovingAverage(0.9).apply([weight, cost])

    expected = ["layer/weight", "deep/count", "metric/total", "metric/count"]
    expected += [f"{name}/ExponentialMovingAverage" for name in ("layer/weight", "cost")]
    main, other = build_on_multi_tower(DEVICES[:2], build, ["", "tower1"])
    assert names(main.created) == expected
    assert names(other.created) == [f"tower1/{name}" for name in expected]
    assert [list(own) for own in variables_by_name([main, other])] == [expected, expected]


def test_untrained_variables_have_no_scope_in_the_first_tower():
    def build():
        v1.get_variable("weight", [])
        v1.get_variable("seen", [], trainable=False)
        v1.metrics.mean(1.0, name="metric")

    main, other = build_on_multi_tower(DEVICES[:2], build, ["tower0", "tower1"])
    assert names(main.created) == ["tower0/weight", "seen", "metric/total", "metric/count"]
    assert names(other.created) == [f"tower1/{name}" for name in ("weight", "seen", "metric/total", "metric/count")]


@pytest.mark.parametrize(("of_first", "of_second"), [(["a", "b"], ["a", "c"]), (["a", "b", "c"], ["a"])])
def test_towers_with_other_variables_are_an_error(of_first, of_second):
    def build():
        for name in (of_first, of_second)[get_current_tower_context().index]:
            v1.get_variable(name, [])

    towers = build_on_multi_tower(DEVICES[:2], build, ["", "tower1"])
    with pytest.raises(
        TowerError, match=r"'tower1' did not create the same variables as the first one: b, c\. A tower"
    ):
        variables_by_name(towers)


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_towers_whose_costs_depend_on_different_variables_are_an_error(strategy):
    def build(x):
        a, b, c = [v1.get_variable(name, [], initializer=v1.ones_initializer()) for name in "abc"]
        return a * x * (b if get_current_tower_context().index == 0 else c)

    trainer = tpk.SingleCostTrainer(tpk.use(strategy, devices=2))
    with pytest.raises(TowerError, match=r"0 and 1 have gradients of different variables, or in another order: b, c\."):
        trainer.setup_graph(
            [tf.TensorSpec([], tf.float32, "x")],
            tpk.TensorInput(lambda: [tf.ones([])]),
            build,
            lambda: v1.train.GradientDescentOptimizer(0.1),
        )


def test_gradients_of_variables_with_the_same_names_are_alike():
    towers = build_on_multi_tower(DEVICES[:2], lambda: v1.get_variable("w", []), ["", "tower1"])
    check_gradients_alike(towers, [[(None, tower.variables[0])] for tower in towers])


def test_gradients_in_another_order_are_an_error():
    def build():
        return [v1.get_variable(name, []) for name in ("ab", "ba")[get_current_tower_context().index]]

    towers = build_on_multi_tower(DEVICES[:2], build, ["", "tower1"])
    with pytest.raises(TowerError, match=r"in another order: b, a\."):
        check_gradients_alike(towers, [[(None, variable) for variable in tower.variables] for tower in towers])
