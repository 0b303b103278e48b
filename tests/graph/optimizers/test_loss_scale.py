from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.graph.objective import Objective
from tpk.graph.optimizers.accumulation import AccumGradOptimizer
from tpk.graph.optimizers.gradient_processors import CheckGradient, SummaryGradient, apply_grad_processors
from tpk.graph.optimizers.loss_scale import DynamicLossScaleOptimizer, with_loss_scale

v1 = tf.compat.v1


class Session:
    """A model of one variable, whose gradient is fed, and its optimizer."""

    def __init__(self, make_optimizer, shape=(2,), func=None):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.gradient = v1.placeholder(tf.float32, shape)
            self.variable = v1.get_variable("w", shape, initializer=v1.ones_initializer())
            cost = func(self.variable, self.gradient) if func else tf.reduce_sum(self.variable * self.gradient)
            self.optimizer = make_optimizer()
            pairs = self.optimizer.compute_gradients(cost)
            self.train_op = self.optimizer.apply_gradients(pairs)
            self.gradients = [gradient for gradient, _ in pairs]
            self.session = v1.Session()
            self.session.run(v1.global_variables_initializer())

    def step(self, *gradient):
        self.session.run(self.train_op, {self.gradient: np.float32(gradient)})

    def values(self):
        with self.graph.as_default():
            return {variable.op.name: self.session.run(variable) for variable in v1.global_variables()}

    def scale(self):
        return float(self.session.run(self.optimizer.loss_scale))


def sgd():
    return v1.train.GradientDescentOptimizer(0.1)


def adam():
    return v1.train.AdamOptimizer(0.1)


def without_scale(values):
    return {name: value for name, value in values.items() if not name.startswith("LossScale/")}


@pytest.mark.parametrize("make_optimizer", [sgd, adam])
@pytest.mark.parametrize("overflow", [np.inf, -np.inf, np.nan, 3e38])
def test_a_step_that_overflows_changes_nothing_but_the_scale(make_optimizer, overflow):
    session = Session(lambda: DynamicLossScaleOptimizer(make_optimizer(), initial_scale=1024))
    session.step(1, 2)
    before = session.values()
    session.step(1, overflow)
    after = session.values()
    assert without_scale(after).keys() == without_scale(before).keys()
    for name, value in without_scale(before).items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    assert (before["LossScale/scale"], before["LossScale/good_steps"]) == (1024, 1)
    assert (after["LossScale/scale"], after["LossScale/good_steps"]) == (512, 0)
    session.step(1, 2)
    assert not np.array_equal(session.values()["w"], before["w"])


@pytest.mark.parametrize("make_optimizer", [sgd, adam])
def test_without_overflow_it_trains_as_the_optimizer_alone_bit_by_bit(make_optimizer):
    alone = Session(make_optimizer)
    scaled = Session(lambda: DynamicLossScaleOptimizer(make_optimizer(), growth_interval=2))
    for gradient in np.random.default_rng(0).normal(size=(10, 2)):
        alone.step(*gradient)
        scaled.step(*gradient)
    assert scaled.scale() == 2**20
    values = scaled.values()
    for name, value in alone.values().items():
        np.testing.assert_array_equal(values[name], value, err_msg=name)


def test_the_scale_grows_after_an_interval_without_overflow():
    session = Session(lambda: DynamicLossScaleOptimizer(sgd(), initial_scale=8, growth_interval=3, factor=4))
    scales = []
    for gradient in (1, 1, np.inf, 1, 1, 1, 1, 1, np.nan):
        session.step(gradient, 0)
        scales.append(session.scale())
    assert scales == [8, 8, 2, 2, 2, 8, 8, 8, 2]


def test_the_scale_stays_within_bounds():
    session = Session(lambda: DynamicLossScaleOptimizer(sgd(), initial_scale=2, growth_interval=1))
    for _ in range(3):
        session.step(np.inf, 0)
    assert session.scale() == 1
    session = Session(lambda: DynamicLossScaleOptimizer(sgd(), initial_scale=2.0**125, growth_interval=1))
    for _ in range(3):
        session.step(1, 0)
    assert session.scale() == 2.0**126
    np.testing.assert_allclose(session.values()["w"], [0.7, 1], rtol=1e-6)


def test_it_counts_the_steps_for_which_the_scale_is_not_to_blame():
    session = Session(lambda: DynamicLossScaleOptimizer(sgd(), initial_scale=4))
    counts = []
    for gradient in (np.inf, np.inf, np.inf, np.inf, 1, np.nan):
        session.step(gradient, 0)
        counts.append(int(session.session.run(session.optimizer.skipped_in_a_row)))
    assert counts == [0, 0, 1, 2, 0, 1]


def test_small_gradients_of_float16_are_kept():
    """The gradient, 1e-9, is zero in float16."""

    def func(variable, _):
        half = tf.cast(variable, tf.float16)
        return tf.cast(tf.reduce_sum(half), tf.float32) * 1e-9

    def gradient(make_optimizer):
        session = Session(make_optimizer, func=func)
        (gradient,) = session.session.run(session.gradients)
        return gradient

    np.testing.assert_array_equal(gradient(sgd), 0)
    scaled = gradient(lambda: DynamicLossScaleOptimizer(sgd()))
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, 1e-9, rtol=1e-2)


def trained(dtype, initial_scale, steps=3, rows=None, cost_dtype=tf.float32):
    """Train a variable of this type, and return it and the scale after each step."""
    with tf.Graph().as_default(), v1.Session() as sess:
        variable = v1.get_variable("w", initializer=tf.constant([1.0, -2.0, 0.5], dtype))
        weights = tf.constant([0.25, -0.003, 0.0001], tf.float32)
        values = variable if rows is None else tf.gather(variable, rows)
        weights = weights if rows is None else tf.gather(weights, rows)
        cost = tf.reduce_sum(tf.cast(tf.cast(values, tf.float32) * weights, cost_dtype))
        optimizer = DynamicLossScaleOptimizer(v1.train.GradientDescentOptimizer(2.0), initial_scale)
        train_op = optimizer.minimize(cost, var_list=[variable])
        sess.run(v1.global_variables_initializer())
        scales = []
        for _ in range(steps):
            sess.run(train_op)
            scales.append(float(sess.run(optimizer.loss_scale)))
        return sess.run(tf.cast(variable, tf.float32)), scales


@pytest.mark.parametrize("rows", [None, [0, 1]], ids=["dense", "sparse"])
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("scale", [2.0**15, 2.0**16, 2.0**17, 100_000.0])
def test_variables_of_16_bits_train_as_those_of_32(dtype, rows, scale):
    found, scales = trained(dtype, scale, rows=rows)
    expected, _ = trained(tf.float32, scale, rows=rows)
    assert scales == [scale] * 3  # no step is skipped
    np.testing.assert_allclose(found, expected, rtol=0.01)
    assert abs(expected[0] - 1) > 1


def test_a_cost_of_float16_limits_the_scale():
    """Its gradient is the scale, which is infinite in float16 from 65,520 on."""
    found, scales = trained(tf.float16, 2.0**17, steps=5, cost_dtype=tf.float16)
    assert scales == [2.0**16, 2.0**15, 2.0**15, 2.0**15, 2.0**15]
    expected, _ = trained(tf.float32, 1.0, steps=3)
    np.testing.assert_allclose(found, expected, rtol=0.01)


def test_sparse_gradients_stay_sparse():
    def func(variable, gradient):
        return tf.reduce_sum(tf.gather(variable, [1]) * gradient)

    session = Session(lambda: DynamicLossScaleOptimizer(sgd(), initial_scale=64), (3,), func)
    assert isinstance(session.gradients[0], tf.IndexedSlices)
    session.step(1, 1, 1)
    np.testing.assert_allclose(session.values()["w"], [1, 0.7, 1], rtol=1e-6)
    session.step(np.inf, 0, 0)
    np.testing.assert_allclose(session.values()["w"], [1, 0.7, 1], rtol=1e-6)
    assert session.scale() == 32


def test_variables_without_a_gradient_stay_without():
    with tf.Graph().as_default():
        used, unused = (v1.get_variable(name, []) for name in ("used", "unused"))
        pairs = DynamicLossScaleOptimizer(sgd()).compute_gradients(used * 2, var_list=[used, unused])
    assert [gradient is None for gradient, _ in pairs] == [False, True]


def test_skipped_steps_are_not_accumulated():
    session = Session(lambda: DynamicLossScaleOptimizer(AccumGradOptimizer(sgd(), niter=2)))
    for gradient in (1, np.inf, 3):
        session.step(gradient, 0)
    np.testing.assert_allclose(session.values()["w"], [1 - 0.1 * 2, 1], rtol=1e-6)


def test_processors_inside_see_no_overflow_and_those_around_see_it():
    def check(optimizer):
        return apply_grad_processors(optimizer, [CheckGradient()])

    session = Session(lambda: DynamicLossScaleOptimizer(check(sgd())))
    session.step(np.nan, 0)
    np.testing.assert_array_equal(session.values()["w"], 1)
    session = Session(lambda: check(DynamicLossScaleOptimizer(sgd())))
    with pytest.raises(tf.errors.InvalidArgumentError, match="CheckGradient"):
        session.step(np.nan, 0)


def test_an_optimizer_that_scales_is_not_wrapped_again():
    with tf.Graph().as_default():
        scaling = DynamicLossScaleOptimizer(adam())
        around = AccumGradOptimizer(scaling, niter=2)
        assert with_loss_scale(scaling) is scaling
        assert with_loss_scale(around) is around
        assert isinstance(with_loss_scale(adam(), name="other"), DynamicLossScaleOptimizer)


def test_its_variables_are_among_those_of_the_optimizer():
    with tf.Graph().as_default():
        optimizer = DynamicLossScaleOptimizer(adam(), name="generator/LossScale")
        names = [variable.op.name for variable in optimizer.variables()]
        assert names == [f"generator/LossScale/{name}" for name in ("good_steps", "scale", "skipped_in_a_row")]
        assert v1.trainable_variables() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial_scale": 0.5}, r"initial_scale must be 1 to 2\*\*126, not 0\.5"),
        ({"initial_scale": 2.0**127}, r"initial_scale .* not 1\.7\d*e\+38"),
        ({"initial_scale": float("inf")}, "initial_scale .* not inf"),
        ({"initial_scale": "many"}, "initial_scale .* not 'many'"),
        ({"growth_interval": 0}, "growth_interval must be an integer, 1 or more, not 0"),
        ({"growth_interval": 2.5}, r"growth_interval .* not 2\.5"),
        ({"growth_interval": True}, "growth_interval .* not True"),
        ({"factor": 1}, "factor must be greater than 1, not 1"),
    ],
)
def test_numbers_out_of_range_are_errors(options, message):
    with tf.Graph().as_default(), pytest.raises(tpk.ConfigError, match=message):
        DynamicLossScaleOptimizer(sgd(), **options)


def test_an_invalid_optimizer_is_an_error():
    with tf.Graph().as_default(), pytest.raises(tpk.ConfigError, match="the optimizer is 'adam'"):
        DynamicLossScaleOptimizer("adam")


def test_a_second_one_of_the_same_name_is_an_error():
    with tf.Graph().as_default():
        DynamicLossScaleOptimizer(sgd())
        with pytest.raises(tpk.ConfigError, match=r"'LossScale' in this graph already.*name="):
            DynamicLossScaleOptimizer(sgd())


def test_eager_execution_is_an_error():
    with pytest.raises(tpk.ConfigError, match="executes eagerly"):
        DynamicLossScaleOptimizer(sgd())


class Product(tpk.ModelDesc):
    """The gradient of its one weight is the mean of the inputs."""

    def inputs(self):
        return [tf.TensorSpec([], tf.float32, "x")]

    def build_graph(self, x):
        return x * v1.get_variable("w", [], initializer=v1.ones_initializer())

    def optimizer(self):
        return v1.train.MomentumOptimizer(0.1, 0.9)


class Values(tpk.Callback):
    """Keeps all variables after each step."""

    def __init__(self):
        self.steps = []

    def setup_graph(self, trainer):
        variables = [*v1.global_variables(), *v1.local_variables()]
        self._variables = {variable.op.name: variable for variable in variables}
        self.summaries = v1.get_collection(v1.GraphKeys.SUMMARIES)

    def trigger_step(self, trainer):
        self.steps.append(trainer.sess.run(self._variables))

    def of(self, name):
        return [float(values[name]) for values in self.steps]


def train(data, steps, *, strategy="single", precision="float16", callbacks=(), model=None, **options):
    model, values = model or Product(), Values()
    trainer = tpk.SingleCostTrainer(strategy, precision=precision)
    source = [[np.float32(x)] for x in data]
    source = tpk.QueueInput(source) if strategy_name(strategy) == "async" else tpk.FeedInput(source)
    trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
    trainer.train(callbacks=[*callbacks, values], steps_per_epoch=steps, max_epoch=1, **options)
    return values


def strategy_name(strategy):
    return strategy if isinstance(strategy, str) else strategy.name


TOO_LARGE = 60000.0
"""Times the scale, it is infinite in float16."""


def test_float16_scales_the_cost_and_skips_overflows():
    values = train([1, TOO_LARGE, 1, TOO_LARGE, 1], 5)
    assert values.of("LossScale/scale") == [2.0**exponent for exponent in (15, 14, 14, 13, 13)]
    weights = values.of("w")
    assert weights[0] == weights[1] != weights[2] == weights[3] != weights[4]
    np.testing.assert_allclose(weights[0], 0.9, rtol=1e-3)
    assert any("LossScale/scale" in summary.name for summary in values.summaries)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_other_precisions_need_no_scale(precision):
    assert not [name for name in train([1], 1, precision=precision).steps[0] if "LossScale" in name]


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
@pytest.mark.parametrize("bad_tower", [0, 1])
def test_all_towers_skip_when_one_overflows(strategy, bad_tower):
    bad = [1.0, 1.0]
    bad[bad_tower] = TOO_LARGE
    values = train([0.5, 1.5, *bad, 0.5, 1.5], 3, strategy=tpk.use(strategy, devices=2))
    assert values.of("LossScale/scale") == [2.0**15, 2.0**14, 2.0**14]
    assert values.of("LossScale/good_steps") == [1, 0, 1]
    np.testing.assert_allclose(values.of("w"), [0.9, 0.9, 0.9 - 0.1 - 0.09], rtol=1e-3)
    if strategy == "replicated":
        assert values.of("tower1/w") == values.of("w")
        assert values.of("tower1/w/Momentum") == values.of("w/Momentum")
        assert not [name for name in values.steps[0] if "LossScale" in name and "tower1" in name]


def test_asynchronous_towers_skip_by_themselves():
    values = train([np.inf], 4, strategy=tpk.use("async", devices=2))
    assert values.of("w") == [1.0] * 4
    assert values.of("LossScale/scale")[-1] <= 2.0**11


def test_the_scale_is_restored(tmp_path):
    train([1, TOO_LARGE, 1], 3, callbacks=["ModelSaver"], run_dir=tmp_path)
    values = train([1], 1, session_init=tpk.SaverRestore(tmp_path))
    assert values.of("LossScale/scale") == [2.0**14]
    assert values.of("LossScale/good_steps") == [2]


def test_the_users_own_scale_is_taken():
    class Own(Product):
        def optimizer(self):
            return DynamicLossScaleOptimizer(super().optimizer(), initial_scale=4, name="own")

    values = train([1], 1, model=Own())
    assert values.of("own/scale") == [4]
    assert "LossScale/scale" not in values.steps[0]


def test_gradients_are_summarized_around_the_scale():
    class Summarized(Product):
        def __init__(self, make_optimizer):
            self._make_optimizer = make_optimizer

        def optimizer(self):
            return apply_grad_processors(self._make_optimizer(), [SummaryGradient()])

    values = train([1], 1, model=Summarized(lambda: DynamicLossScaleOptimizer(sgd())))
    assert any("SummaryGradient/w-grad" in summary.name for summary in values.summaries)
    with pytest.raises(tpk.ConfigError, match="Put it around"):
        train([1], 1, model=Summarized(sgd))


def test_each_objective_has_its_own_scale():
    trainer = tpk.TowerTrainer(precision="float16")
    with tf.Graph().as_default():
        for name in ("generator", "discriminator"):
            trainer.scale_loss(Objective(sgd, name=name)).get_optimizer()
        names = {variable.op.name for variable in v1.global_variables()}
    assert {"generator/LossScale/scale", "discriminator/LossScale/scale"} <= names
