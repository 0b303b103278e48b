"""Optimizers around optimizers, and their copies for other towers."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.optimizers.accumulation import AccumGradOptimizer
from tpk.graph.optimizers.gradient_processors import (
    GlobalNormClip,
    MapGradient,
    ScaleGradient,
    apply_grad_processors,
)
from tpk.graph.optimizers.loss_scale import DynamicLossScaleOptimizer
from tpk.graph.optimizers.non_finite import SkipNonFiniteOptimizer
from tpk.graph.optimizers.proxy_optimizer import (
    PostProcessOptimizer,
    ProxyOptimizer,
    VariableAssignmentOptimizer,
    copies_of_optimizers,
)
from tpk.graph.optimizers.weight_averages import MovingAverageOptimizer

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def sgd(rate=1.0):
    return v1.train.GradientDescentOptimizer(rate)


def adam():
    return v1.train.AdamOptimizer(0.1)


def session():
    sess = v1.Session()
    sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    return sess


def after(op, steps=1):
    """The values of the trainable variables after some steps, by name."""
    with session() as sess:
        for _ in range(steps):
            sess.run(op)
        return {variable.op.name: sess.run(variable) for variable in v1.trainable_variables()}


WRAPPERS = {
    "proxy": ProxyOptimizer,
    "processors": lambda opt: apply_grad_processors(opt, []),
    "post": lambda opt: PostProcessOptimizer(opt, lambda var: None),
    "assignment": lambda opt: VariableAssignmentOptimizer(opt, lambda var: None),
    "accumulation": lambda opt: AccumGradOptimizer(opt, 1),
    "accumulation of 2": lambda opt: AccumGradOptimizer(opt, 2),
    "average": MovingAverageOptimizer,
}


def cost_of(*variables):
    return tf.add_n([tf.reduce_sum((variable - 1) ** 2) for variable in variables])


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_wrapper_is_an_optimizer_with_the_slots_of_the_wrapped_one(wrap):
    w = v1.get_variable("w", initializer=[1.0, 2.0])
    inner = adam()
    opt = wrap(inner)
    assert isinstance(opt, v1.train.Optimizer)
    pairs = opt.compute_gradients(cost_of(w), var_list=[w])
    assert [var for _, var in pairs] == [w]
    op = opt.apply_gradients(pairs, name="train")
    assert isinstance(op, tf.Operation)
    assert op.name == "train"
    assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [op]
    assert set(opt.get_slot_names()) >= {"m", "v"}
    assert opt.get_slot(w, "m") is inner.get_slot(w, "m")
    assert opt.get_slot(w, "nothing") is None
    assert {"w/Adam:0", "w/Adam_1:0", "beta1_power:0"} <= {variable.name for variable in opt.variables()}
    # Every variable that is not the model's is found, and goes into checkpoints.
    assert {variable.ref() for variable in opt.variables()} == {
        variable.ref() for variable in v1.global_variables() if variable is not w
    }


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("wrapped", WRAPPERS.values(), ids=WRAPPERS)
def test_wrappers_nest_and_still_train_as_the_innermost_does(wrap, wrapped):
    w = v1.get_variable("w", initializer=[1.0, 5.0])
    opt = wrap(wrapped(adam()))
    op = opt.minimize(cost_of(w), global_step=v1.train.get_or_create_global_step())
    runs_for_an_update = (2 if wrap is WRAPPERS["accumulation of 2"] else 1) * (
        2 if wrapped is WRAPPERS["accumulation of 2"] else 1
    )
    with session() as sess:
        for _ in range(3 * runs_for_an_update):
            sess.run(op)
        trained, steps = sess.run([w, v1.train.get_global_step()])
        names = {variable.op.name for variable in opt.variables()}
    assert steps == 3 * runs_for_an_update
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[1.0, 5.0])
        plain = adam()
        np.testing.assert_allclose(trained, after(plain.minimize(cost_of(w)), 3)["w"], rtol=1e-6, atol=1e-6)
        # So a checkpoint of one is read by the other.
        assert {variable.op.name for variable in plain.variables()} <= names


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("opt", [None, "AdamOptimizer", v1.train.AdamOptimizer])
def test_wrapping_something_other_than_a_graph_optimizer_is_an_error(wrap, opt):
    with pytest.raises(ConfigError, match=r"expected a tf\.compat\.v1\.train\.Optimizer"):
        wrap(opt)


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_no_gradient_at_all_is_an_error(wrap):
    w = v1.get_variable("w", initializer=1.0)
    with pytest.raises(ConfigError, match=r"no gradients|removed all gradients"):
        wrap(sgd()).apply_gradients([(None, w)])


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_variables_without_a_gradient_do_not_change(wrap):
    a = v1.get_variable("a", initializer=1.0)
    b = v1.get_variable("b", initializer=1.0)
    op = wrap(sgd()).apply_gradients([(tf.constant(0.25), a), (None, b)])
    assert after(op, 2) in ({"a": 0.5, "b": 1.0}, {"a": 0.75, "b": 1.0})


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_the_global_step_is_counted_after_the_update(wrap):
    w = v1.get_variable("w", initializer=1.0)
    step = v1.train.get_or_create_global_step()
    op = wrap(sgd()).apply_gradients([(tf.constant(0.5), w)], global_step=step)
    with session() as sess:
        for _ in range(4):
            sess.run(op)
        assert sess.run(step) == 4


@pytest.mark.parametrize("real", [float, np.float32, np.float64])
@pytest.mark.parametrize("integer", [int, np.int32, np.int64])
def test_numbers_of_numpy_are_numbers(real, integer):
    w = v1.get_variable("w", initializer=1.0)
    scaling = DynamicLossScaleOptimizer(sgd(), initial_scale=real(8), growth_interval=integer(1), factor=real(2))
    processors = [ScaleGradient(("w", real(0.5))), ScaleGradient(("w", integer(3))), GlobalNormClip(real(100))]
    op = AccumGradOptimizer(apply_grad_processors(scaling, processors), integer(2)).minimize(w)
    with session() as sess:
        for _ in range(2):
            sess.run(op)
        assert sess.run([w, scaling.loss_scale]) == [-0.5, 16]


CONDITIONAL = {
    "accumulation": lambda opt: AccumGradOptimizer(opt, 2),
    "skipping": SkipNonFiniteOptimizer,
    "loss scale": DynamicLossScaleOptimizer,
}


@pytest.mark.parametrize("wrap", CONDITIONAL.values(), ids=CONDITIONAL)
def test_reference_variables_cannot_be_updated_in_a_cond(wrap):
    resource = v1.get_variable("resource", initializer=1.0, use_resource=True)
    reference = v1.get_variable("reference", initializer=1.0, use_resource=False)
    opt = wrap(v1.train.RMSPropOptimizer(0.1))
    message = f"^{type(opt).__name__} cannot update the reference variable 'reference'.*use_resource=True"
    with pytest.raises(ConfigError, match=message):
        opt.minimize(resource + reference)


@pytest.mark.parametrize("wrap", CONDITIONAL.values(), ids=CONDITIONAL)
@pytest.mark.parametrize("use_resource", [True, False])
def test_with_the_control_flow_of_tensorflow_1_they_can(control_flow_v1, wrap, use_resource):
    w = v1.get_variable("w", initializer=1.0, use_resource=use_resource)
    table = v1.get_variable("table", initializer=[1.0, 1.0], use_resource=use_resource)
    grad = v1.placeholder_with_default(1.0, [])
    op = wrap(adam()).minimize(grad * (w + tf.reduce_sum(tf.gather(table, [0, 0]))))
    with session() as sess:
        for _ in range(2):
            sess.run(op)
        trained = sess.run([w, table])
        assert trained[0] < 0.95
        assert trained[1] == pytest.approx([trained[0], 1.0])
        if wrap is not CONDITIONAL["accumulation"]:
            sess.run(op, {grad: np.nan})
            assert sess.run(w) == trained[0]


def test_processors_come_in_order_before_the_update():
    a = v1.get_variable("a", initializer=0.0)
    b = v1.get_variable("b", initializer=0.0)
    processors = [ScaleGradient(("a", 3.0)), GlobalNormClip(5.0), MapGradient(tf.negative, "b")]
    opt = apply_grad_processors(sgd(), processors)
    op = opt.apply_gradients([(tf.constant(2.0), a), (tf.constant(8.0), b)], name="train")
    assert op.name == "train"
    assert after(op) == {"a": pytest.approx(-3.0), "b": pytest.approx(4.0)}


def test_clipping_inside_an_accumulation_clips_the_mean():
    w = v1.get_variable("w", initializer=0.0)
    grad = v1.placeholder_with_default(0.0, [])
    opt = AccumGradOptimizer(apply_grad_processors(sgd(), [GlobalNormClip(1.0)]), 2)
    op = opt.apply_gradients([(grad, w)])
    with session() as sess:
        sess.run(op, {grad: 100.0})
        sess.run(op, {grad: -99.0})  # the mean is 0.5
        assert sess.run(w) == pytest.approx(-0.5)


@pytest.mark.parametrize("processors", [GlobalNormClip(1.0), [GlobalNormClip], [tf.negative], None])
def test_an_invalid_list_of_processors_is_an_error(processors):
    with pytest.raises(ConfigError, match="apply_grad_processors takes"):
        apply_grad_processors(sgd(), processors)


def test_processors_that_leave_nothing_are_an_error():
    w = v1.get_variable("w", initializer=0.0)
    with pytest.raises(ConfigError, match=r"\(ScaleGradient\) removed all gradients"):
        apply_grad_processors(sgd(), [ScaleGradient((".*", 0))]).apply_gradients([(tf.constant(1.0), w)])


def test_post_processing_sees_all_variables_updated():
    a = v1.get_variable("a", initializer=0.0)
    b = v1.get_variable("b", initializer=0.0)
    seen = v1.get_variable("seen", initializer=0.0, trainable=False)
    opt = PostProcessOptimizer(sgd(), lambda var: seen.assign(a + b) if var is a else None)
    op = opt.apply_gradients([(tf.constant(1.0), a), (tf.constant(10.0), b)])
    with session() as sess:
        sess.run(op)
        assert sess.run(seen) == -11.0


@pytest.mark.parametrize("colocate", [True, False])
@pytest.mark.parametrize("use_resource", [True, False])
def test_a_new_value_is_assigned_after_the_update(colocate, use_resource):
    v1.get_variable("w", initializer=[0.0, 0.0], use_resource=use_resource)
    (w,) = v1.trainable_variables()
    opt = VariableAssignmentOptimizer(sgd(), lambda var: tf.clip_by_value(var, -0.5, 1.5), colocate=colocate)
    assert after(opt.apply_gradients([(tf.constant([1.0, -1.0]), w)]))["w"].tolist() == [-0.5, 1.0]


@pytest.mark.parametrize("caching_device", [None, "/cpu:0", "/cpu:1"])
@pytest.mark.parametrize(("use_resource", "accumulates"), [(True, False), (True, True), (False, False)])
def test_post_processing_reads_the_updated_values(use_resource, caching_device, accumulates):
    """Not from what a caching device keeps of the variable, which the cost has been computed from."""
    with v1.variable_scope("", use_resource=use_resource, caching_device=caching_device):
        w = v1.get_variable("w", initializer=[0.0, 0.0])
        other = v1.get_variable("other", initializer=[0.0, 0.0])
    seen = v1.get_variable("seen", initializer=[0.0, 0.0], trainable=False)

    def see(var):
        return seen.assign(var + w) if var is other else None

    opt = VariableAssignmentOptimizer(PostProcessOptimizer(sgd(0.5), see), lambda var: tf.clip_by_value(var, -0.5, 1.5))
    op = (AccumGradOptimizer(opt, 2) if accumulates else opt).minimize(cost_of(w * [1.0, -1.0], other))
    with v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as sess:
        sess.run(v1.global_variables_initializer())
        for _ in range(2 if accumulates else 1):
            sess.run(op)
        assert sess.run(w.read_value()).tolist() == [1.0, -0.5]
        assert sess.run(seen).tolist() == [2.0, 0.0]
        if caching_device:
            assert sess.run(tf.identity(w)).tolist() == [1.0, -0.5]  # what is kept is from this step


def test_post_processing_is_placed_on_the_device_of_the_variable():
    with tf.device("/cpu:1"):
        w = v1.get_variable("w", initializer=0.0)
    placed = {}

    def func(var):
        placed["op"] = tf.no_op()

    for colocate in (True, False):
        with tf.device("/cpu:0"):
            PostProcessOptimizer(sgd(), func, colocate=colocate).apply_gradients([(tf.constant(1.0), w)])
        assert placed["op"].device.lower().endswith("cpu:1" if colocate else "cpu:0")


def test_a_function_that_returns_no_op_is_an_error():
    w = v1.get_variable("w", initializer=0.0)
    with pytest.raises(ConfigError, match="the function returned 3 for the variable 'w'"):
        PostProcessOptimizer(sgd(), lambda var: 3).apply_gradients([(tf.constant(1.0), w)])


def test_a_copy_has_separate_slots_and_the_same_hyperparameters():
    rate = v1.get_variable("rate", initializer=0.1)
    adam = v1.train.AdamOptimizer(rate)
    (copy,) = copies_of_optimizers([adam])
    variables = [v1.get_variable(name, initializer=1.0) for name in ("a", "b")]
    ops = [
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        for optimizer, variable in zip((adam, copy), variables, strict=True)
    ]
    assert copy.get_slot(variables[0], "m") is None
    assert adam.get_slot(variables[1], "m") is None
    powers = [optimizer._get_beta_accumulators()[0] for optimizer in (adam, copy)]
    assert powers[0] is not powers[1]
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        sess.run(ops)
        # Each has taken one step, not two.
        np.testing.assert_allclose(sess.run(powers), [0.9**2] * 2, rtol=1e-6)
        np.testing.assert_array_equal(*sess.run(variables))


def test_wrapped_optimizers_are_copied_too():
    adam = v1.train.AdamOptimizer(0.1)
    wrapped = AccumGradOptimizer(apply_grad_processors(adam, [GlobalNormClip(1.0)]), 2)
    (copy,) = copies_of_optimizers([wrapped])
    assert type(copy) is AccumGradOptimizer
    variable = v1.get_variable("x", initializer=1.0)
    copy.apply_gradients([(tf.constant(1.0), variable)])
    assert copy.get_slot(variable, "m") is not None
    assert adam.get_slot(variable, "m") is None


def test_one_optimizer_of_two_objectives_is_one_in_the_copies():
    adam = v1.train.AdamOptimizer(0.1)
    first, second, wrapped = copies_of_optimizers([adam, adam, apply_grad_processors(adam, [GlobalNormClip(1.0)])])
    assert first is second
    variable = v1.get_variable("x", initializer=1.0)
    wrapped.apply_gradients([(tf.constant(1.0), variable)])
    assert first.get_slot(variable, "m") is not None
    assert adam.get_slot(variable, "m") is None


def test_only_the_first_optimizer_updates_shared_variables():
    optimizer = DynamicLossScaleOptimizer(v1.train.GradientDescentOptimizer(1.0), growth_interval=1)
    (copy,) = copies_of_optimizers([optimizer])
    assert copy.loss_scale is optimizer.loss_scale
    variables = [v1.get_variable(name, initializer=1.0) for name in ("a", "b")]
    ops = [
        each.apply_gradients([(tf.constant(1.0), variable)])
        for each, variable in zip((optimizer, copy), variables, strict=True)
    ]
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        sess.run(ops)
        assert sess.run(optimizer.loss_scale) == 2.0**16, "doubled once"


def test_copies_do_not_share_an_optimizers_containers():
    class Counting(v1.train.GradientDescentOptimizer):
        def __init__(self):
            super().__init__(0.1)
            self.seen = []

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            pairs = list(grads_and_vars)
            self.seen.extend(variable.name for _, variable in pairs)
            return super().apply_gradients(pairs, global_step, name)

    first = Counting()
    (second,) = copies_of_optimizers([first])
    second.apply_gradients([(tf.constant(1.0), v1.get_variable("w", initializer=1.0))])
    assert (first.seen, second.seen) == ([], ["w:0"])
