"""Updates that change nothing unless a condition holds: to the bit, for each optimizer and strategy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.graph import SkipNonFiniteOptimizer
from tpk.graph.fetches import ops_run_for
from tpk.graph.optimizers.gradient_processors import (
    CheckGradient,
    FilterNoneGrad,
    GlobalNormClip,
    MapGradient,
    ScaleGradient,
    apply_grad_processors,
)
from tpk.graph.optimizers.loss_scale import DynamicLossScaleOptimizer
from tpk.graph.optimizers.weight_averages import MovingAverageOptimizer

v1 = tf.compat.v1
train = v1.train


class OwnMomentum(train.MomentumOptimizer):
    """A subclass may do anything."""


MASKED = {
    "sgd": lambda: train.GradientDescentOptimizer(0.1),
    "momentum": lambda: train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adam": lambda: train.AdamOptimizer(0.1),
    "adam without epsilon": lambda: train.AdamOptimizer(0.1, beta1=0.0, epsilon=0.0),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "adadelta": lambda: train.AdadeltaOptimizer(1.0),
    "variable learning rate": lambda: train.AdamOptimizer(v1.get_variable("rate", initializer=0.1, trainable=False)),
    "called learning rate": lambda: train.MomentumOptimizer(lambda: tf.constant(0.1), lambda: 0.5),
}
CONDITIONAL = {
    "processed": lambda: apply_grad_processors(
        train.MomentumOptimizer(0.1, 0.9),
        [FilterNoneGrad(), CheckGradient(), ScaleGradient((".*", 2.0)), GlobalNormClip(1.0)],
    ),
    "averaged": lambda: MovingAverageOptimizer(train.AdamOptimizer(0.1), decay=0.5),
    "rmsprop": lambda: train.RMSPropOptimizer(0.1, momentum=0.9),
    "centered rmsprop": lambda: train.RMSPropOptimizer(0.1, centered=True),
    "ftrl": lambda: train.FtrlOptimizer(0.1),
    "proximal sgd": lambda: train.ProximalGradientDescentOptimizer(0.1, l2_regularization_strength=0.1),
    "proximal adagrad": lambda: train.ProximalAdagradOptimizer(0.1, l1_regularization_strength=0.01),
    "subclass": lambda: OwnMomentum(0.1, 0.9),
    "mapped": lambda: apply_grad_processors(
        train.MomentumOptimizer(0.1, 0.9), [MapGradient(lambda grad: grad + 1, "w")]
    ),
    "accumulated": lambda: tpk.AccumGradOptimizer(train.AdamOptimizer(0.1), 2),
    "averaged rmsprop": lambda: MovingAverageOptimizer(train.RMSPropOptimizer(0.1)),
}
OPTIMIZERS = {**MASKED, **CONDITIONAL}
WRAPPERS = {"skip": SkipNonFiniteOptimizer, "scale": DynamicLossScaleOptimizer}
OWN = ("SkipNonFinite/", "LossScale/")

each_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
each_wrapper = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)


class Session:
    """A model of a vector, with dense gradients, and a table, with sparse ones; both are fed."""

    def __init__(self, make_optimizer):
        with tf.Graph().as_default() as self.graph:
            self.gradient = v1.placeholder(tf.float32, [3])
            w = v1.get_variable("w", initializer=[1.0, -2.0, 3.0])
            table = v1.get_variable("table", initializer=[[1.0], [-2.0], [3.0], [4.0]])
            cost = tf.reduce_sum(w * self.gradient) + tf.reduce_sum(tf.gather(table, [2, 0, 2]) * self.gradient)
            optimizer = make_optimizer()
            self.train_op = optimizer.minimize(cost, var_list=[w, table])
            self.variables = v1.global_variables()
            self.session = v1.Session()
            self.session.run(v1.global_variables_initializer())

    def step(self, gradient):
        self.session.run(self.train_op, {self.gradient: np.float32(gradient)})

    def bits(self):
        values = self.session.run({variable.op.name: variable for variable in self.variables})
        return {name: value.tobytes() for name, value in values.items() if not name.startswith(OWN)}


@each_optimizer
@each_wrapper
def test_a_bad_step_changes_no_bit_and_the_others_train_as_the_optimizer_alone(make, wrap):
    alone, skipping = Session(make), Session(lambda: wrap(make()))
    assert alone.bits().keys() == skipping.bits().keys()
    for number, gradient in enumerate(np.random.default_rng(0).normal(size=(5, 3))):
        before = skipping.bits()
        bad = [np.nan, np.inf][number % 2]
        skipping.step([[bad, 1, 1], [1, 1, -bad], [bad, bad, bad]][number % 3])
        assert skipping.bits() == before, f"in step {number}"
        alone.step(gradient)
        skipping.step(gradient)
        assert skipping.bits() == alone.bits() != before, f"in step {number}"


@each_wrapper
@pytest.mark.parametrize(
    ("make", "is_masked"),
    [*((make, True) for make in MASKED.values()), *((make, False) for make in CONDITIONAL.values())],
    ids=OPTIMIZERS,
)
def test_a_masked_update_needs_no_control_flow(make, is_masked, wrap):
    session = Session(lambda: wrap(make()))
    types = {op.type for op in ops_run_for(session.train_op)}
    assert (types.isdisjoint({"If", "StatelessIf", "Switch", "Merge"})) == is_masked


def test_finite_is_asked_of_small_gradients_together():
    with tf.Graph().as_default():
        variables = [v1.get_variable(f"w{index}", [size]) for index, size in enumerate((3, 100_000, 4, 5))]
        cost = tf.add_n([tf.reduce_sum(tf.square(variable)) for variable in variables])
        train_op = SkipNonFiniteOptimizer(train.AdamOptimizer()).minimize(cost)
        types = [op.type for op in ops_run_for(train_op)]
    assert types.count("IsFinite") == 2


def test_the_optimizer_is_left_as_it_was():
    with tf.Graph().as_default():
        optimizer = train.MomentumOptimizer(0.1, 0.9)
        w = v1.get_variable("w", initializer=1.0)
        nothing = SkipNonFiniteOptimizer(optimizer).apply_gradients([(tf.constant(np.nan), w)])
        something = optimizer.apply_gradients([(tf.constant(1.0), w)])
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            sess.run(nothing)
            assert sess.run(w) == 1
            sess.run(something)
            assert sess.run(w) == np.float32(0.9)


class Product(tpk.ModelDesc):
    """The gradient of each of its weights is the mean of the inputs."""

    def __init__(self, make):
        self._make = make

    def inputs(self):
        return [tf.TensorSpec([], tf.float32, "x")]

    def build_graph(self, x):
        w = v1.get_variable("w", [2], initializer=v1.ones_initializer())
        table = v1.get_variable("table", [3], initializer=v1.ones_initializer())
        return x * (tf.reduce_sum(w) + tf.reduce_sum(tf.gather(table, [0, 2, 0])))

    def optimizer(self):
        return SkipNonFiniteOptimizer(self._make())


class Bits(tpk.Callback):
    """Keeps the bits of all variables after each step."""

    def __init__(self):
        self.steps = []

    def setup_graph(self, trainer):
        variables = [*v1.global_variables(), *v1.local_variables()]
        self._variables = {each.op.name: each for each in variables if "SkipNonFinite" not in each.op.name}
        self._variables.pop("global_step", None)

    def trigger_step(self, trainer):
        values = trainer.sess.run(self._variables)
        self.steps.append({name: value.tobytes() for name, value in values.items()})


@pytest.mark.parametrize("strategy", ["single", "replicated", "parameter_server"])
@each_optimizer
def test_a_bad_step_of_one_tower_changes_no_bit_of_any(make, strategy):
    towers = 1 if strategy == "single" else 2
    data = [[np.float32(x)] for x in [0.5, -1.5, 1.0, np.inf, 0.5, 0.25][: 3 * towers]]
    if towers == 1:
        data = [data[0], [np.float32(np.nan)], data[2]]
    trainer = tpk.SingleCostTrainer(strategy if towers == 1 else tpk.use(strategy, devices=["/cpu:0", "/cpu:1"]))
    model, bits = Product(make), Bits()
    trainer.setup_graph(model.get_input_signature(), tpk.FeedInput(data), model.build_graph, model.get_optimizer)
    trainer.train(callbacks=[bits], steps_per_epoch=3, max_epoch=1)
    first, second, third = bits.steps
    assert first == second != third
    assert ("tower1/w" in first) == (strategy == "replicated")


@pytest.mark.parametrize("make", [MASKED["momentum"], CONDITIONAL["rmsprop"]], ids=["masked", "conditional"])
def test_many_steps_in_one_run_skip_the_same_ones(make, tmp_path):
    class Scaled(Product):
        def optimizer(self):
            return self._make()

    def train_with(steps_per_run):
        values = {}

        class Values(tpk.Callback):
            def trigger_epoch(self, trainer):
                values.update(trainer.sess.run({each.op.name: each for each in v1.global_variables()}))

        config = tpk.TrainConfig(
            model=Scaled(make),
            data=tpk.QueueInput([[np.float32(x)] for x in (0.5, np.nan, 0.25, -1, 2, np.inf, 1, 0.5)]),
            callbacks=[Values()],
            monitors=[],
            steps_per_epoch=8,
            max_epoch=1,
            steps_per_run=steps_per_run,
            run_dir=tmp_path / str(steps_per_run),
        )
        tpk.launch_train_with_config(config, tpk.SimpleTrainer(precision="float16"))
        assert values["LossScale/scale"] == 2.0**13
        return {name: value.tobytes() for name, value in values.items()}

    assert train_with(1) == train_with(4)
