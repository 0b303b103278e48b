from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.callbacks.averaged_weights import WithAveragedWeights
from tpk.graph.optimizers.weight_averages import MovingAverageOptimizer

v1 = tf.compat.v1

AVERAGE = "w/ExponentialMovingAverage"


class Model(tpk.ModelDesc):
    """Its weight grows by the mean of x in each step, and is its output."""

    def __init__(self, averaged=True):
        self.averaged = averaged

    def inputs(self):
        return [tf.TensorSpec([None], tf.float32, "x")]

    def build_graph(self, x):
        w = v1.get_variable("w", initializer=0.0)
        tf.identity(w, name="weight")
        return tf.negative(tf.reduce_mean(x) * w, name="cost")

    def optimizer(self):
        optimizer = v1.train.GradientDescentOptimizer(1.0)
        return MovingAverageOptimizer(optimizer, 0.75) if self.averaged else optimizer


BATCHES = [[np.float32([k % 3 + 0.1])] for k in range(5)]


class Values(tpk.Callback):
    """The value of each variable at the end of each epoch."""

    def __init__(self):
        self.epochs = []

    @tpk.hookimpl(trylast=True)
    def trigger_epoch(self, trainer):
        variables = v1.global_variables()
        self.epochs.append(dict(zip([each.op.name for each in variables], trainer.sess.run(variables), strict=True)))
        self.history = trainer.monitors.get_history


def train(run_dir, *callbacks, model=None, **options):
    values = Values()
    config = tpk.TrainConfig(
        model=model or Model(),
        dataflow=BATCHES,
        callbacks=[*callbacks, values],
        run_dir=run_dir,
        **{"max_epoch": 3, **options},
    )
    with tf.Graph().as_default():
        tpk.launch_train_with_config(config)
    return values


def runner(**options):
    return tpk.InferenceRunner([BATCHES[0]], tpk.ScalarStats("weight", **options))


def test_an_evaluation_sees_the_averages_and_the_training_does_not_notice(tmp_path):
    plain = runner(prefix="plain")
    averaged = tpk.InferenceRunner([BATCHES[0]], tpk.ScalarStats("weight", prefix="averaged"), tower_name="Averaged")
    values = train(tmp_path / "a", WithAveragedWeights(averaged), plain)
    untouched = train(tmp_path / "b")
    for name in ("averaged", "plain"):
        key = AVERAGE if name == "averaged" else "w"
        assert [value for _, value in values.history(f"{name}_weight")] == [
            pytest.approx(epoch[key], rel=1e-6) for epoch in values.epochs
        ]
    assert values.epochs == untouched.epochs
    assert all(epoch["w"] != epoch[AVERAGE] for epoch in values.epochs)


def test_a_saver_saves_the_averages_in_the_place_of_the_variables(tmp_path):
    averaged = WithAveragedWeights(tpk.ModelSaver(checkpoint_dir=tmp_path / "averaged"))
    last = train(tmp_path / "run", tpk.ModelSaver(), averaged).epochs[-1]

    def saved(directory, name):
        return tf.train.load_checkpoint(str(directory)).get_tensor(name)

    assert saved(tmp_path / "run", "w") == last["w"]
    assert saved(tmp_path / "run", AVERAGE) == last[AVERAGE]
    assert saved(tmp_path / "averaged", "w") == saved(tmp_path / "averaged", AVERAGE) == last[AVERAGE]
    # A model without averages starts from it.
    stats = train(
        tmp_path / "c", runner(), model=Model(averaged=False), session_init=tmp_path / "averaged", max_epoch=1
    )
    assert stats.epochs[0]["w"] == pytest.approx(last[AVERAGE] + sum(x.item() for (x,) in BATCHES))


def test_a_resumed_training_goes_on_with_the_averages(tmp_path):
    whole = train(tmp_path / "whole", WithAveragedWeights(runner()))
    train(tmp_path / "first", "ModelSaver", WithAveragedWeights(runner()), max_epoch=2)
    resumed = train(tmp_path / "second", session_init=tpk.SaverRestore(tmp_path / "first"), starting_epoch=3)
    assert resumed.epochs[-1] == whole.epochs[-1]


def test_times_are_chosen_around_it(tmp_path):
    callback = tpk.PeriodicTrigger(WithAveragedWeights(runner()), every_k_epochs=2, before_train=True)
    values = train(tmp_path, callback)
    assert values.history("validation_weight") == [(0, 0.0), (10, pytest.approx(values.epochs[1][AVERAGE]))]


def test_it_takes_the_place_of_the_callback_in_the_order_of_calls(tmp_path):
    calls = []

    class Last(tpk.Callback):
        @tpk.hookimpl(trylast=True)
        def setup_graph(self, trainer):
            calls.append("setup last")

        @tpk.hookimpl(trylast=True)
        def trigger(self):
            calls.append("last")

    class First(tpk.Callback):
        def setup_graph(self, trainer):
            calls.append("setup first")

        def trigger(self):
            calls.append("first")

    train(tmp_path, WithAveragedWeights(Last), WithAveragedWeights(First()), max_epoch=1)
    assert calls == ["setup first", "setup last", "first", "last"]


def test_a_failing_callback_leaves_the_weights_as_they_were(tmp_path):
    class Fails(tpk.Callback):
        def trigger(self):
            raise ArithmeticError("evaluation failed")

        def after_train(self, trainer):
            self.values = [trainer.sess.run(variable) for variable in v1.trainable_variables()]

    fails = Fails()
    with pytest.raises(ArithmeticError):
        train(tmp_path, WithAveragedWeights(fails))
    assert fails.values == [pytest.approx(sum(x.item() for (x,) in BATCHES))]


def test_without_averages_there_is_an_error_before_the_first_step(tmp_path):
    class NoGraph(tpk.Callback):
        def trigger(self):
            raise AssertionError

    class Started(tpk.Callback):
        def before_train(self, trainer):
            raise AssertionError

    for callback in (runner(), NoGraph()):
        with pytest.raises(tpk.ConfigError, match="return MovingAverageOptimizer"):
            callbacks = [WithAveragedWeights(callback), Started()]
            train(tmp_path / type(callback).__name__, *callbacks, model=Model(averaged=False))


def test_around_another_proxy_is_an_error_that_says_the_order():
    with pytest.raises(tpk.ConfigError, match=r"PeriodicTrigger\(WithAveragedWeights\("):
        WithAveragedWeights(tpk.PeriodicTrigger(runner(), every_k_epochs=2))


@pytest.mark.parametrize("callback", ["ProgressBar", "MergeAllSummaries"])
def test_a_callback_without_a_plain_trigger_is_an_error(callback):
    with pytest.raises(tpk.HookError, match="Move the code that needs the averages to `trigger`"):
        WithAveragedWeights(callback).resolve_plugins()
