from __future__ import annotations

import logging

import pytest
import tensorflow as tf

import tpk
from tpk import layers
from tpk.errors import ConfigError
from tpk.graph.reports.flops import model_flops

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def image(shape=(None, 8, 8, 3), name="image"):
    return v1.placeholder(tf.float32, shape, name)


def dense(x, units, name):
    return tf.linalg.matmul(x, v1.get_variable(name, [x.shape[-1], units], use_resource=True))


def test_a_product_of_matrices_has_two_operations_for_each_weight():
    x = v1.placeholder(tf.float32, [None, 7], "x")
    flops = model_flops(dense(x, 5, "w"))
    assert flops.total == 2 * 7 * 5
    assert flops.by_type == {"MatMul": 70}
    assert flops.shapes == {"x:0": (1, 7)}
    assert not flops.not_counted and not flops.unknown_shapes


def test_a_network_has_what_its_layers_have():
    x = layers.conv2d(image(), 4, 3, padding="same", name="conv")
    x = layers.max_pooling2d(x, 2, 2)
    x = layers.dense(tf.reshape(x, [-1, 64]), 10, name="linear")
    flops = model_flops(tf.nn.softmax(x), batch_size=6)
    of_an_image = {
        "Conv2D": 2 * 8 * 8 * 4 * 3 * 3 * 3,
        "BiasAdd": 8 * 8 * 4 + 10,
        "MaxPool": 4 * 4 * 4 * 2 * 2,
        "MatMul": 2 * 64 * 10,
        "Softmax": 5 * 10,
    }
    assert flops.by_type == {name: 6 * count for name, count in of_an_image.items()}
    assert flops.total == 6 * sum(of_an_image.values())
    assert next(iter(flops.by_type)) == "Conv2D", "the greatest comes first"


def test_reference_variables_and_what_is_computed_from_the_batch_size_are_known():
    x = v1.placeholder(tf.float32, [None, 7], "x")
    w = v1.get_variable("w", [7, 5], use_resource=False)
    y = tf.reshape(tf.matmul(x, w), tf.stack([tf.shape(x)[0] * 5]))
    flops = model_flops(y + tf.ones(tf.shape(y)), batch_size=3)
    assert flops.by_type["MatMul"] == 3 * 70
    assert flops.by_type["AddV2"] == 15
    assert not flops.unknown_shapes


def test_only_the_forward_pass_to_the_outputs_is_counted():
    x = v1.placeholder(tf.float32, [None, 7], "x")
    hidden = dense(x, 5, "w")
    with tf.control_dependencies([dense(tf.ones([4, 7]), 9, "on_the_side")]):
        y = dense(hidden, 2, "v")
    v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(y))
    assert model_flops([y, hidden]).total == 2 * 7 * 5 + 2 * 5 * 2
    assert model_flops({"y": y}, [hidden]).total == 2 * 5 * 2, "it begins at the inputs"


def test_the_graph_stays_as_it_was(graph):
    y = dense(v1.placeholder(tf.float32, [None, 7], "x"), 5, "w")
    graph.finalize()
    before = graph.as_graph_def()
    model_flops(y)
    assert graph.as_graph_def() == before


def test_a_tower_of_a_trainer_is_counted_whatever_feeds_it():
    class Linear(tpk.ModelDesc):
        def inputs(self):
            return [tf.TensorSpec([None, 7], tf.float32, "x"), tf.TensorSpec([None], tf.float32, "y")]

        def build_graph(self, x, y):
            logits = tf.identity(dense(x, 5, "w"), name="logits")
            return tf.reduce_mean(tf.reduce_sum(logits, 1) - y, name="cost")

        def optimizer(self):
            return v1.train.GradientDescentOptimizer(0.1)

    model, trainer = Linear(), tpk.SingleCostTrainer(tpk.use("replicated", devices=2))
    source = tpk.QueueInput([[[0.0] * 7, 0.0]])
    trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
    tower = trainer.towers.training()[1]
    flops = model_flops(tower.get_tensor("logits"), tower.inputs, batch_size=4)
    assert flops.total == 4 * 70
    assert [*flops.shapes.values()] == [(4, 7)], "the labels are not needed"


def test_dimensions_that_the_graph_does_not_know_are_given():
    y = layers.conv2d(image([None, None, None, 3]), 4, 3, padding="same", use_bias=False)
    with pytest.raises(
        ConfigError, match=r"depends on the shape of 'image:0', which is \(None, None, None, 3\)\. Give"
    ):
        model_flops(y)
    flops = model_flops(y, shapes=[[None, 8, 8, 3]], batch_size=2)
    assert flops.shapes == {"image:0": (2, 8, 8, 3)}
    assert flops.total == 2 * 2 * 8 * 8 * 4 * 3 * 3 * 3


def test_a_shape_of_unknown_rank_is_given_too():
    x = v1.placeholder(tf.float32, None, "x")
    with pytest.raises(ConfigError, match="which is <unknown>"):
        model_flops(x * x)
    assert model_flops(x * x, shapes=[[None, 4]], batch_size=2).total == 8


def test_a_shape_that_contradicts_is_an_error_that_names_the_input():
    with pytest.raises(ConfigError, match=r"the shape \[1, 9, 9, 1\] for 'image:0', which has shape"):
        model_flops(image() * 2, shapes=[[1, 9, 9, 1]])


def test_shapes_of_other_inputs_are_an_error_that_lists_the_inputs():
    with pytest.raises(ConfigError, match=r"has 2 shapes; expected one for each input: image:0\."):
        model_flops(image() * 2, shapes=[None, None])


def test_what_the_profiler_cannot_count_is_told():
    x = v1.placeholder(tf.float32, [None, 4], "x")
    flops = model_flops(tf.exp(tf.einsum("ij,jk->ik", x, tf.ones([4, 3]))) * 2)
    assert flops.total == 3
    assert flops.not_counted == {"Einsum": 1, "Exp": 1}
    assert str(flops) == "3 floating-point operations (Mul 3) for x:0 (1, 4); not counted: 1 Einsum, 1 Exp"


def test_ops_of_unknown_shape_are_named_in_a_warning(caplog):
    x = v1.placeholder(tf.float32, [None, 4], "x")
    y = tf.multiply(tf.boolean_mask(x, x[:, 0] > 0), 2.0, name="twice")
    with caplog.at_level(logging.WARNING):
        flops = model_flops(y)
    assert "twice" in flops.unknown_shapes
    assert len(caplog.messages) == 1
    assert "ops are not among the floating-point operations, because their shapes" in caplog.text
    assert "twice" in caplog.text


def test_nothing_but_that_is_said(caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        model_flops(dense(v1.placeholder(tf.float32, [None, 7], "x"), 5, "w"))
    assert not caplog.messages
    assert capfd.readouterr() == ("", "")
