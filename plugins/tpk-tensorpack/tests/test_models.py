"""tensorpack's layers: cases without an oracle, and custom layers. `oracle/` compares all layers."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tpk_tensorpack.models import (
    BatchNorm,
    BatchRenorm,
    BNReLU,
    Conv2D,
    Dropout,
    FullyConnected,
    LinearWrap,
    Maxout,
    l2_regularizer,
    layer_register,
    registry,
    regularize_cost,
    regularize_cost_from_collection,
)
from tpk_tensorpack.models.tflayer import convert_to_tflayer_args
from tpk_tensorpack.tfutils import TowerContext, argscope, enable_argscope_for_function

v1 = tf.compat.v1
IMAGES = np.random.default_rng(0).normal(size=[4, 6, 6, 4]).astype(np.float32)


@pytest.fixture(autouse=True)
def graph(monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    with tf.Graph().as_default() as graph:
        yield graph


def run(*fetches):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(fetches)


def names():
    return [variable.name for variable in v1.trainable_variables()]


def test_a_layer_has_its_scope_its_variables_and_the_arguments_of_the_argscope():
    with argscope([Conv2D, FullyConnected], activation=tf.nn.relu), argscope(Conv2D, kernel_size=5, filters=3):
        x = Conv2D("conv0", IMAGES)
        x = Conv2D("conv1", x, 6, kernel_size=3)
        with argscope(FullyConnected, use_bias=False):
            y = FullyConnected("fc", x, 2)
    assert names() == ["conv0/W:0", "conv0/b:0", "conv1/W:0", "conv1/b:0", "fc/W:0"]
    assert x.variables.W.shape.as_list() == [3, 3, 3, 6]
    assert y.name == "fc/output:0"
    assert run(y)[0].min() >= 0


def test_a_convolution_in_groups_is_that_of_each_group():
    y = Conv2D("c", tf.constant(IMAGES), 6, 3, split=2, use_bias=False)
    kernel = y.variables.W
    halves = [tf.nn.conv2d(IMAGES[..., 2 * n : 2 * n + 2], kernel[..., 3 * n : 3 * n + 3], 1, "SAME") for n in (0, 1)]
    gradient = tf.gradients(y, kernel)[0]
    ours, theirs, _ = run(y, tf.concat(halves, 3), gradient)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    with pytest.raises(ValueError, match="split=3 has to divide both 4 channels and 6 filters"):
        Conv2D("d", tf.constant(IMAGES), 6, 3, split=3)


def test_a_convolution_in_groups_has_the_options_of_others():
    one = tf.ones_initializer()
    double = tf.constant(IMAGES, tf.float64)
    y = Conv2D(
        "c", double, 6, 3, split=2, activation=tf.nn.relu, bias_initializer=one, kernel_regularizer=tf.nn.l2_loss
    )
    bare = Conv2D("d", double, 6, 3, split=2, use_bias=False)
    assert names() == ["c/W:0", "c/b:0", "d/W:0"]
    assert y.name == "c/output:0"
    assert len(v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)) == 1
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(bare.variables.W.assign(y.variables.W))
        ours, linear = session.run([y, bare])
    np.testing.assert_allclose(ours, np.maximum(linear + 1, 0), atol=1e-12)


def test_maxout_takes_the_greatest_of_each_group():
    (y,) = run(Maxout(tf.constant(IMAGES), 2))
    np.testing.assert_array_equal(y, IMAGES.reshape(4, 6, 6, 2, 2).max(-1))
    with pytest.raises(ValueError, match="num_unit=3 does not divide the 4 channels"):
        Maxout(tf.constant(IMAGES), 3)


def test_batch_norm_uses_the_averages_outside_of_training():
    with TowerContext("", is_training=True) as context:
        BatchNorm("bn", tf.constant(IMAGES), momentum=0.5)
    assert context.name == ""
    updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
    with v1.variable_scope("", reuse=True), TowerContext("inference", is_training=False):
        y = BatchNorm("bn", tf.constant(IMAGES), epsilon=0.0)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(updates)
        mean, variance, outputs = session.run([y.variables.mean, y.variables.variance, y])
    np.testing.assert_allclose(mean, IMAGES.mean((0, 1, 2)) / 2, atol=1e-5)
    np.testing.assert_allclose(outputs, (IMAGES - mean) / np.sqrt(variance), atol=1e-4)
    assert {variable.name for variable in v1.global_variables()} == {
        *("bn/beta:0", "bn/gamma:0", "bn/mean/EMA:0", "bn/variance/EMA:0")
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ema_update": "often"}, "ema_update='often': expected one of"),
        ({"sync_statistics": "mpi"}, "sync_statistics='mpi': expected None"),
        ({"sync_statistics": "nccl", "virtual_batch_size": 2}, "drop one of them"),
    ],
)
def test_batch_norm_refuses_what_it_does_not_know(arguments, message):
    with pytest.raises(ValueError, match=message):
        BatchNorm("bn", tf.constant(IMAGES), training=True, **arguments)


def test_batch_norm_takes_the_older_form_of_what_moves_its_averages():
    x = tf.constant(IMAGES)
    with TowerContext("", is_training=True), argscope(BatchNorm, internal_update=True):
        BatchNorm("a", x)
        assert not v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        BatchNorm("b", x, internal_update=False)
        assert v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        with pytest.raises(TypeError, match="both ema_update and internal_update"):
            BatchNorm("c", x, ema_update="skip")


def test_dropout_knows_the_tower_and_the_old_argument():
    x = tf.ones([1000])
    with TowerContext("", is_training=True):
        kept = Dropout(x, 0.9)
    assert 800 < np.count_nonzero(run(kept)[0]) < 980
    with TowerContext("inference", is_training=False):
        np.testing.assert_array_equal(run(Dropout(x, rate=0.9))[0], np.ones(1000))
    with pytest.raises(ValueError, match="both keep_prob and rate"):
        Dropout(x, keep_prob=0.5, rate=0.5)


def test_linear_wrap_finds_layers_functions_of_tensorflow_and_others():
    @layer_register(use_scope=None)
    def Twice(x, times=2):
        return x * times

    chain = LinearWrap(tf.constant(IMAGES)).Twice().Twice("scope", times=3).tf.nn.relu().apply(tf.reduce_sum, axis=3)
    np.testing.assert_allclose(run(chain())[0], np.maximum(IMAGES * 6, 0).sum(3), rtol=1e-5)
    with pytest.raises(AttributeError, match="no layer 'Thrice'"):
        chain.Thrice()
    with pytest.raises(ValueError, match="FullyConnected takes the name of its scope first"):
        chain.FullyConnected(3)


def test_layers_of_ones_own_are_registered_once_and_called_with_a_name():
    @layer_register(log_shape=True)
    def Shift(x, by=1.0):
        return x + v1.get_variable("shift", [], initializer=v1.constant_initializer(by))

    with argscope(Shift, by=3.0):
        shifted = Shift("s", tf.zeros([2]))
    np.testing.assert_array_equal(run(shifted)[0], [3, 3])
    with pytest.raises(ValueError, match="Shift takes the name of its scope first"):
        Shift(tf.zeros([2]))
    with pytest.raises(ValueError, match="a layer called Shift is already registered"):
        layer_register()(Shift.f)
    with pytest.raises(ValueError, match="does not take arguments from a scope"), argscope(tf.nn.relu, name="x"):
        pass


def test_a_layer_of_ones_own_takes_arguments_of_the_past():
    @layer_register(log_shape=False)
    @convert_to_tflayer_args(args_names=["filters"], name_mapping={"out_channel": "filters"})
    def Taken(inputs, filters, activation=None, kernel_initializer=None, data_format="channels_last"):
        return filters, activation, kernel_initializer, data_format

    assert Taken("a", IMAGES, 3, nl="relu", data_format="NCHW") == (3, "relu", None, "channels_first")
    assert Taken("b", IMAGES, out_channel=4, W_init="zeros") == (4, None, "zeros", "channels_last")
    with pytest.raises(ValueError, match="takes filters by position after the inputs; pass the other 1 by name"):
        Taken("c", IMAGES, 3, 4)
    with pytest.raises(TypeError, match="'filters' twice, once as 'out_channel'"):
        Taken("d", IMAGES, 3, out_channel=4)


def test_any_function_takes_arguments_of_a_scope_once_that_is_enabled():
    @enable_argscope_for_function
    def scale(x, factor=1.0, name=None):
        return x * factor

    with argscope(scale, factor=4.0):
        np.testing.assert_array_equal(run(scale(tf.ones([])), scale(tf.ones([]), 2.0)), [4, 2])


def test_costs_of_weights_are_those_of_the_names_that_match():
    with TowerContext("", is_training=True):
        x = FullyConnected("fc0", tf.ones([1, 3]), 4, kernel_regularizer=l2_regularizer(0.5))
        FullyConnected("other", x, 2)
        cost = regularize_cost("fc.*/W", l2_regularizer(0.5))
        collected = regularize_cost_from_collection()
        nothing = regularize_cost("nothing", tf.nn.l2_loss)
    by_name, by_collection, zero, weights = run(cost, collected, nothing, x.variables.W)
    np.testing.assert_allclose([by_name, by_collection], (weights**2).sum() / 4, rtol=1e-5)
    assert zero == 0
    with TowerContext("inference", is_training=False):
        assert run(regularize_cost(".*", tf.nn.l2_loss))[0] == 0


def test_bnrelu_calls_its_normalization_bn():
    with TowerContext("", is_training=True):
        BNReLU(tf.constant(IMAGES))
        BNReLU("inner", tf.constant(IMAGES))
    assert names() == ["bn/gamma:0", "bn/beta:0", "inner/bn/gamma:0", "inner/bn/beta:0"]


def test_batch_renorm_uses_the_averages_outside_of_training():
    x = tf.constant(np.random.RandomState(0).randn(8, 3) + 5, tf.float32)
    with TowerContext("", is_training=False):
        y = BatchRenorm("bn", x, rmax=2.0, dmax=1.0)
    np.testing.assert_allclose(*run(y, x / np.sqrt(1 + 1e-5)), rtol=1e-5)
    with pytest.raises(ValueError, match="BatchRenorm: the input has shape"):
        BatchRenorm("other", tf.ones([2, 3, 4]), rmax=2.0, dmax=1.0)


def test_weights_of_convolutions_are_drawn_from_a_normal_distribution():
    x = tf.constant(IMAGES)
    Conv2D("conv", x, 2, 3)
    drawn = {op.type for op in x.graph.get_operations() if op.name.startswith("conv/W/Initializer/")}
    assert "RandomStandardNormal" in drawn
    assert "TruncatedNormal" not in drawn
