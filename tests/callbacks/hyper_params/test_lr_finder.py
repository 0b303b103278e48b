from __future__ import annotations

import csv
import sys

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError, NonFiniteError, PluginImportError, TrainerStateError

v1 = tf.compat.v1

CURVATURE = np.float32([1.0, 4.0])
"""Of the cost: with a learning rate of more than 2 / 4, gradient descent diverges."""


def cost(x):
    w = v1.get_variable("w", initializer=np.float32([3.0, -2.0]))
    return tf.reduce_mean(x) * tf.reduce_sum(CURVATURE * w**2) / 2 + 0.01


def optimizer():
    rate = v1.get_variable("learning_rate", initializer=0.125, trainable=False)
    return v1.train.MomentumOptimizer(rate, 0.5)


class Look(tpk.Callback):
    """The variables before and after the training, and the learning rate of each step."""

    def before_train(self, trainer):
        self.before, self.rates = self._values(), []

    def trigger_step(self, trainer):
        pass

    def before_run(self, run_context):
        rate = self.trainer.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
        (rate,) = [each for each in rate if each.op.name == "learning_rate"]
        self.rates.append(self.trainer.sess.run(rate))

    def after_train(self, trainer):
        self.after = self._values()

    def _values(self):
        variables = [*v1.global_variables(), *self.trainer.strategy.replicate_variables()]
        return self.trainer.sess.run({each.name: each for each in variables if each.op.name != "global_step"})


def search(finder, *callbacks, strategy="single", run_dir=None, max_epoch=10, steps_per_run=1, **options):
    devices = {} if strategy == "single" else {"devices": 2}
    trainer = tpk.SingleCostTrainer(tpk.use(strategy, **devices), steps_per_run=steps_per_run)
    source = tpk.TensorInput(lambda: [tf.ones([2])])
    trainer.setup_graph([tf.TensorSpec([2], tf.float32, "x")], source, cost, optimizer)
    trainer.train(
        callbacks=[finder, *callbacks],
        monitors=[],
        steps_per_epoch=20,
        max_epoch=max_epoch,
        run_dir=run_dir,
        **options,
    )
    return trainer


@pytest.mark.parametrize("strategy", ["single", "replicated", "parameter_server"])
def test_it_tries_rising_rates_until_the_cost_diverges_and_puts_all_back(tmp_path, strategy):
    finder, look = tpk.LRFinder(start=1e-4, end=100, steps=60), Look()
    trainer = search(finder, look, strategy=strategy, run_dir=tmp_path)
    count = len(finder.rates)
    assert trainer.global_step == count < 60
    np.testing.assert_allclose(finder.rates, np.geomspace(1e-4, 100, 60)[:count], rtol=1e-9)
    np.testing.assert_allclose(look.rates, finder.rates, rtol=1e-6)
    # It ends when the cost is much more than it was, which takes more than the rate from which on it rises.
    assert finder.rates[-1] > 2 / CURVATURE.max()
    assert finder.smoothed_costs[-1] > 4 * min(finder.smoothed_costs)
    assert finder.costs[0] == pytest.approx(0.5 * (9 + 4 * 4) + 0.01)
    assert 1e-3 < finder.suggestion < 2 / CURVATURE.max()
    assert look.before.keys() == look.after.keys()
    for name, value in look.before.items():
        np.testing.assert_array_equal(look.after[name], value, err_msg=name)
    assert f"the suggestion is {finder.suggestion:.3g}" in str(trainer.loop.ended_by)
    with (tmp_path / "lr_finder.csv").open() as file:
        header, *rows = csv.reader(file)
    assert header == ["learning_rate", "cost", "smoothed_cost"]
    written = zip(finder.rates, finder.costs, finder.smoothed_costs, strict=True)
    assert [tuple(map(float, row)) for row in rows] == list(written)


def test_the_smoothed_cost_is_an_unbiased_moving_average():
    finder = tpk.LRFinder(start=1e-4, end=1e-3, steps=20)
    search(finder)
    costs = np.array(finder.costs)
    for count in (1, 5, 20):
        weights = 0.9 ** np.arange(count)[::-1]
        assert finder.smoothed_costs[count - 1] == pytest.approx(np.average(costs[:count], weights=weights), rel=1e-6)


def test_what_does_not_diverge_ends_after_its_steps():
    finder = tpk.LRFinder(start=1e-5, end=1e-2, steps=30)
    assert search(finder).global_step == 30
    assert finder.rates[-1] == pytest.approx(1e-2)


def test_a_cost_that_is_not_finite_ends_it():
    finder = tpk.LRFinder(ChosenCost(), 1e-6, 1.0, 100, cost="chosen")
    finder.param.costs = [*np.linspace(2, 1, 50), float("nan"), *[0.5] * 49]
    finder.param.train(finder)
    assert len(finder.rates) == 51
    assert finder.suggestion in finder.rates[:50]


def test_a_search_that_fails_leaves_the_variables_as_they_were():
    finder, look = tpk.LRFinder(start=1e25, end=1e30, steps=10), Look()
    with pytest.raises(NonFiniteError):
        search(finder, look, "NanGuard")
    for name, value in look.before.items():
        np.testing.assert_array_equal(look.after[name], value, err_msg=name)


def test_the_suggestion_is_where_a_cost_falls_fastest_though_its_average_comes_late():
    finder = tpk.LRFinder(ChosenCost(), 1e-6, 1.0, 100, cost="chosen")
    # It falls in the middle, and leaps near the end, from where it falls faster than anywhere else.
    fall = 2 - 1 / (1 + np.exp(-(np.arange(85) - 50) / 6))
    finder.param.costs = [*fall, 3.9, 3.9, 3.9, *[1.5] * 12]
    finder.param.train(finder)
    assert len(finder.rates) == 100
    assert abs(finder.rates.index(finder.suggestion) - 50) <= 4
    assert np.diff(finder.smoothed_costs).argmin() > 85


class ChosenCost(tpk.HyperParam):
    """A learning rate that has no effect: costs come as they are told."""

    readable_name = "rate"
    value = 0.1

    def get_value(self):
        return self.value

    def set_value(self, value):
        self.value = value

    def train(self, finder):
        costs = iter(self.costs)

        class Chosen(tpk.Trainer):
            def __init__(self):
                super().__init__()
                with self.graph.as_default():
                    self.cost = v1.placeholder(tf.float32, [], "chosen")

            def run_step(self):
                self.hooked_sess.run(self.cost, {self.cost: next(costs)})

        Chosen().train(callbacks=[finder], monitors=[], steps_per_epoch=100, max_epoch=1)


def test_nothing_is_suggested_where_the_cost_does_not_fall():
    assert tpk.LRFinder().suggestion is None
    finder = tpk.LRFinder(start=10, end=100, steps=20)
    trainer = search(finder)
    assert finder.suggestion is None
    assert "the cost did not fall" in str(trainer.loop.ended_by)


def test_the_cost_may_be_another_tensor_and_the_rate_an_attribute():
    class Plain(tpk.Trainer):
        def __init__(self):
            super().__init__()
            self.rate = 0.5
            with self.graph.as_default():
                self.placeholder = v1.placeholder(tf.float32, [])
                value = cost(tf.ones([2]))
                tf.identity(value, name="my_cost")
                self.train_op = v1.train.GradientDescentOptimizer(self.placeholder).minimize(value)

        def run_step(self):
            self.hooked_sess.run(self.train_op, {self.placeholder: self.rate})

    trainer = Plain()
    finder = tpk.LRFinder(tpk.ObjAttrParam(trainer, "rate"), 1e-4, 100, 60, cost="my_cost")
    trainer.train(callbacks=[finder], monitors=[], steps_per_epoch=60, max_epoch=1)
    assert trainer.rate == 0.5
    assert 1e-3 < finder.suggestion < 1

    for wanted, message in [
        (None, "needs one cost, which a Plain does not have"),
        ("no_cost", "graph has no tensor 'no_cost'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            Plain().train(
                callbacks=[tpk.LRFinder(tpk.ObjAttrParam(trainer, "rate"), cost=wanted)],
                monitors=[],
                steps_per_epoch=100,
                max_epoch=1,
            )


def test_no_checkpoint_is_taken_of_a_search(tmp_path):
    finder = tpk.LRFinder(start=1e-5, end=1e-2, steps=30)
    with pytest.raises(ConfigError, match="a checkpoint during the search would be useless"):
        search(finder, "ModelSaver", run_dir=tmp_path)
    assert not list(tmp_path.glob("model-*"))


def test_where_it_cannot_work_it_says_so():
    with pytest.raises(ConfigError, match="the towers of AsyncStrategy are in different steps"):
        search(tpk.LRFinder(), strategy="async")
    with pytest.raises(ConfigError, match="a run makes 4 steps"):
        search(tpk.LRFinder(), steps_per_run=4)
    with pytest.raises(ConfigError, match=r"LRFinder\(steps=100\): this training only has 40 steps"):
        search(tpk.LRFinder(), max_epoch=2)


def test_a_step_without_a_hooked_run_is_an_error():
    class Raw(tpk.Trainer):
        def __init__(self):
            super().__init__()
            self.rate = 1.0
            with self.graph.as_default():
                self.cost = tf.ones([], name="cost")

        def run_step(self):
            self.sess.run(self.cost)

    trainer = Raw()
    finder = tpk.LRFinder(tpk.ObjAttrParam(trainer, "rate"), cost="cost")
    with pytest.raises(TrainerStateError, match=r"had no run by trainer.hooked_sess"):
        trainer.train(callbacks=[finder], monitors=[], steps_per_epoch=100, max_epoch=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": 0}, "start and end must be positive, and end greater"),
        ({"start": 1, "end": 0.1}, "start and end must be positive, and end greater"),
        ({"steps": 9}, "steps must be an integer, 10 or more, not 9"),
        ({"steps": 20.0}, "steps must be an integer, 10 or more"),
        ({"param": 0.1}, r"expected a HyperParam or the name of a variable, but got 0.1"),
    ],
)
def test_what_cannot_be_is_an_error(options, message):
    with pytest.raises(ConfigError, match=message):
        tpk.LRFinder(**options)


def test_a_picture_shows_the_curve_and_the_suggestion(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    finder = tpk.LRFinder(start=1e-4, end=100, steps=60)
    with pytest.raises(TrainerStateError, match="LRFinder has no costs yet"):
        finder.plot()
    search(finder)
    axes = finder.plot()
    curve, suggestion = axes.lines
    np.testing.assert_array_equal(curve.get_xdata(), finder.rates)
    np.testing.assert_array_equal(curve.get_ydata(), finder.smoothed_costs)
    assert suggestion.get_xdata()[0] == finder.suggestion
    assert axes.get_xscale() == "log"
    matplotlib.pyplot.close(axes.figure)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(PluginImportError, match=r"LRFinder.plot\(\) needs matplotlib"):
        finder.plot()
