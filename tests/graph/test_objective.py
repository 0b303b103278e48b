from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.errors import ConfigError, TowerError
from tpk.graph.objective import Objective

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def objective(name="", variables=""):
    return Objective(lambda: v1.train.GradientDescentOptimizer(0.1), name, variables)


def trainables(*names):
    return [v1.get_variable(name, []) for name in names]


def test_a_single_cost_is_the_output_of_the_tower_function():
    cost = tf.ones([])
    assert objective().cost_in(cost) is cost


def test_one_of_several_costs_is_found_by_its_name():
    costs = {"generator": tf.ones([]), "discriminator": tf.zeros([])}
    assert objective("discriminator").cost_in(costs) is costs["discriminator"]


@pytest.mark.parametrize("output", [None, 1.0, {"d": 1.0}, [1.0]])
def test_an_output_without_the_named_cost_is_an_error(output):
    with pytest.raises(TowerError, match=r"must return a dict of costs with 'g' in it; it returned "):
        objective("g").cost_in(output)


def test_several_costs_instead_of_one_are_an_error():
    with pytest.raises(TowerError, match=r"must return the cost, a scalar tensor; it returned {'g': "):
        objective().cost_in({"g": tf.ones([])})


@pytest.mark.parametrize("name", ["", "g"])
def test_the_cost_must_be_a_floating_point_scalar(name):
    for tensor, message in ((tf.ones([2]), r"has shape \(2,\); expected a scalar"), (tf.constant(1), "is int32")):
        with pytest.raises(TowerError, match=message):
            objective(name).cost_in({"g": tensor} if name else tensor)


def test_without_a_pattern_all_variables_are_trained():
    variables = trainables("g/w", "d/w")
    assert objective().select(variables) == variables


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [("g/", ["g/w", "g/b"]), ("g/w$", ["g/w"]), (".*w", ["g/w", "d/w", "dg/w"]), ("d", ["d/w", "dg/w"])],
)
def test_the_pattern_matches_names_from_their_beginning(pattern, chosen):
    variables = trainables("g/w", "g/b", "d/w", "dg/w")
    assert [each.op.name for each in objective("", pattern).select(variables)] == chosen


def test_names_are_those_inside_the_tower():
    variables = trainables("tower1/g/w", "tower1/d/w")
    assert objective("", "g/").select(variables, "tower1") == variables[:1]


def test_a_pattern_that_no_variable_matches_is_an_error_that_lists_them():
    message = r"'c' trains the variables that match 'x/', but none matches: g/w, d/w\."
    with pytest.raises(TowerError, match=message):
        objective("c", "x/").select(trainables("tower1/g/w", "tower1/d/w"), "tower1")


def test_selecting_from_no_variables_is_not_an_error():
    assert objective("", "x/").select([]) == []


@pytest.mark.parametrize("pattern", ["g/(", "*", None])
def test_an_invalid_regular_expression_is_an_error(pattern):
    with pytest.raises(ConfigError, match=r"Objective: .* is not a regular expression"):
        objective("", pattern)


@pytest.mark.parametrize("every", [0, -1, 1.5, True])
def test_every_must_be_a_positive_whole_number(every):
    with pytest.raises(ConfigError, match=r"Objective: every must be an integer, 1 or more"):
        Objective(lambda: None, every=every)
