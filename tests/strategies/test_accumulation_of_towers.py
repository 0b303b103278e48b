"""Towers that accumulate gradients: each its own, which are all-reduced once per update."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk

v1 = tf.compat.v1

STEPS, NITER = 12, 3

OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.05, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
    "clipped": lambda: tpk.apply_grad_processors(v1.train.AdamOptimizer(0.01), [tpk.GlobalNormClip(0.05)]),
}


class Model(tpk.ModelDesc):
    """A dense layer and an embedding, whose gradient is sparse."""

    def __init__(self, get_optimizer):
        self._get_optimizer = get_optimizer

    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None], tf.int32, "row")]

    def build_graph(self, x, row):
        table = v1.get_variable("table", [6, 2], initializer=v1.random_normal_initializer(seed=1))
        x = tpk.layers.dense(x, 2, kernel_initializer=v1.glorot_uniform_initializer(seed=2))
        return tf.reduce_mean((tf.tanh(x) * tf.gather(table, row) - 1.0) ** 2, name="cost")

    def optimizer(self):
        return self._get_optimizer()


def accumulating(optimizer, niter=NITER):
    return Model(lambda: tpk.AccumGradOptimizer(OPTIMIZERS[optimizer](), niter))


def batches(count):
    rng = np.random.default_rng(0)
    # The last row never occurs.
    return [[rng.normal(size=(4, 3)).astype(np.float32), rng.integers(0, 5, 4).astype(np.int32)] for _ in range(count)]


def concatenated(data, count):
    return [
        [np.concatenate(component) for component in zip(*data[start : start + count], strict=True)]
        for start in range(0, len(data), count)
    ]


class Variables(tpk.Callback):
    """Keeps the values of all variables after each step."""

    def __init__(self):
        self.steps = []

    def trigger_step(self, trainer):
        variables = [*v1.global_variables(), *v1.local_variables()]
        self.steps.append(dict(zip([each.op.name for each in variables], trainer.sess.run(variables), strict=True)))
        self.trained = [each.op.name for each in v1.trainable_variables()]
        self.saved = [each.op.name for each in v1.global_variables()]


def train(strategy, data, model, steps=STEPS, epochs=1, **options):
    variables = Variables()
    trainer = tpk.SingleCostTrainer(strategy)
    trainer.setup_graph(model.get_input_signature(), tpk.FeedInput(data), model.build_graph, model.get_optimizer)
    callbacks = [variables, *options.pop("callbacks", [])]
    trainer.train(callbacks=callbacks, steps_per_epoch=steps, max_epoch=epochs, **options)
    variables.ops = [op.name for op in trainer.graph.get_operations()]
    return variables


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_towers_that_accumulate_equal_one_on_all_that_they_were_given(optimizer, count):
    data = batches(STEPS * count)
    many = train(tpk.use("replicated", devices=count), data, accumulating(optimizer))
    one = train("single", concatenated(data, count * NITER), Model(OPTIMIZERS[optimizer]), STEPS // NITER)
    for update, expected in enumerate(one.steps):
        values = many.steps[(update + 1) * NITER - 1]
        # The state of the optimizer is compared, too: only the sums change in between.
        for name in one.saved:
            if name != "global_step":
                np.testing.assert_allclose(values[name], expected[name], rtol=3e-4, atol=2e-6, err_msg=name)
    np.testing.assert_array_equal(many.steps[-1]["table"][5], many.steps[0]["table"][5])


@pytest.mark.parametrize("mode", ["copy", "cpu"])
def test_each_tower_accumulates_its_own_and_all_apply_the_same_bits(mode):
    variables = train(tpk.use("replicated", devices=3, mode=mode), batches(STEPS * 3), accumulating("adam"))
    for step, values in enumerate(variables.steps, start=1):
        for name in values:
            if not name.startswith("tower"):
                continue
            plain = name.split("/", 1)[1]
            if "AccumGrad" not in name:
                assert values[name].tobytes() == values[plain].tobytes(), (step, name)
            elif step % NITER == 0:
                assert not np.any(values[name]), (step, name)
            elif "kernel" in name:
                assert np.any(values[name] != values[plain]), (step, name)
    assert {"tower2/dense/kernel/AccumGrad", "tower1/table/AccumGrad/touched"} <= variables.steps[0].keys()


@pytest.mark.tf2_only("in TensorFlow 1, the ops of a branch are ops of the graph")
def test_nothing_is_all_reduced_but_in_an_update():
    def ops_of(model):
        ops = train(tpk.use("replicated", devices=2), batches(4), model, steps=1).ops
        return [name for name in ops if "all_reduce" in name]

    assert ops_of(Model(OPTIMIZERS["sgd"]))
    # The ops in a branch of a tf.cond are not ops of the graph.
    assert not ops_of(accumulating("sgd"))


def test_a_wrapper_around_accumulation_sees_all_gradients_in_each_step():
    def optimizer():
        inner = tpk.AccumGradOptimizer(OPTIMIZERS["momentum"](), NITER)
        return tpk.apply_grad_processors(inner, [tpk.GlobalNormClip(0.05)])

    data = batches(STEPS * 2)
    many = train(tpk.use("replicated", devices=2), data, Model(optimizer))
    one = train("single", concatenated(data, 2), Model(optimizer))
    for name in one.saved:
        np.testing.assert_allclose(many.steps[-1][name], one.steps[-1][name], rtol=2e-4, atol=2e-6, err_msg=name)
    for values in many.steps:
        np.testing.assert_array_equal(values["tower1/dense/kernel/AccumGrad"], values["dense/kernel/AccumGrad"])


@pytest.mark.parametrize("average", [True, False])
def test_means_or_sums(average):
    data = batches(STEPS * 2)
    strategy = tpk.use("replicated", devices=2, average=average)
    rate = 0.1 if average else 0.05
    many = train(strategy, data, Model(lambda: tpk.AccumGradOptimizer(v1.train.GradientDescentOptimizer(rate), NITER)))
    one = train("single", concatenated(data, 2 * NITER), Model(OPTIMIZERS["sgd"]), STEPS // NITER)
    for name in one.trained:
        np.testing.assert_allclose(many.steps[-1][name], one.steps[-1][name], rtol=2e-4, atol=2e-6, err_msg=name)


def test_a_training_resumes_in_the_middle_of_an_accumulation(tmp_path):
    """An epoch has four steps, so its end is in the middle of the second accumulation of three."""

    def run(epochs, run_dir, resume):
        options = {"callbacks": ["ModelSaver"], "run_dir": tmp_path / run_dir, "resume": resume}
        with tf.Graph().as_default():
            return train(
                tpk.use("replicated", devices=2),
                batches(24),
                accumulating("adam"),
                STEPS // 3,
                epochs,
                **options,
            ).steps

    whole = run(3, "whole", "never")
    first = run(1, "halves", "never")
    assert np.any(first[-1]["tower1/dense/kernel/AccumGrad"] != first[-1]["dense/kernel/AccumGrad"])
    rest = run(3, "halves", "must")
    assert len(rest) == 8
    for name, value in whole[-1].items():
        assert rest[-1][name].tobytes() == value.tobytes(), name


class AtTheStart(tpk.Callback):
    """Keeps the values of all variables before the first step."""

    def before_epoch(self, trainer):
        if not hasattr(self, "values"):
            variables = [*v1.global_variables(), *v1.local_variables()]
            self.values = dict(zip([each.op.name for each in variables], trainer.sess.run(variables), strict=True))


def test_other_towers_continue_with_the_accumulation_of_the_first(tmp_path):
    def run(devices, epochs, resume):
        begun = AtTheStart()
        options = {"callbacks": ["ModelSaver", begun], "run_dir": tmp_path / "run", "resume": resume}
        with tf.Graph().as_default():
            model = accumulating("sgd", niter=100)
            steps = train(tpk.use("replicated", devices=devices), batches(24), model, 4, epochs, **options).steps
            return begun.values, steps[-1]

    _, saved = run(1, 1, "never")
    begun, _ = run(2, 2, "must")
    sums = saved["dense/kernel/AccumGrad"]
    assert np.any(sums)
    np.testing.assert_array_equal(begun["dense/kernel/AccumGrad"], sums)
    np.testing.assert_array_equal(begun["tower1/dense/kernel/AccumGrad"], sums)


@pytest.mark.parametrize("optimizer", ["momentum", "clipped"])
def test_several_objectives_accumulate_in_one_step(optimizer):
    """A group of two objectives that train different variables."""
    from tpk.graph.objective import Objective
    from tpk.strategies import ReplicatedStrategy, SingleStrategy, get_post_init_ops

    def build(x):
        a, b = (v1.get_variable(name, [3], initializer=v1.ones_initializer()) for name in "ab")
        return {"first": tf.reduce_mean((x * a - 1.0) ** 2), "second": tf.reduce_mean((x * b * a + 1.0) ** 2)}

    def run(strategy, count, niter):
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float32, [None, 3])
            parts = iter(tf.split(x, count))
            objectives = [
                Objective(lambda: tpk.AccumGradOptimizer(OPTIMIZERS[optimizer](), niter), cost, variables)
                for cost, variables in (("first", "a"), ("second", "b"))
            ]
            (op,) = strategy.build(build, lambda: [next(parts)], objectives, [(0, 1)])
            with v1.Session(config=strategy.session_config(tpk.default_session_config())) as sess:
                sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
                sess.run(get_post_init_ops())
                data = np.random.default_rng(0).normal(size=(8, 2, 3)).astype(np.float32)
                for batch in data if niter > 1 else concatenate_pairs(data):
                    sess.run(op, {x: batch})
                return sess.run(v1.trainable_variables())

    def concatenate_pairs(data):
        return data.reshape(4, 4, 3)

    for ours, expected in zip(run(ReplicatedStrategy(2), 2, 2), run(SingleStrategy(), 1, 1), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=2e-6)
