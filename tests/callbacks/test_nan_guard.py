"""Bad numbers, made by bad data at a chosen step: noticed in that step, kept out of checkpoints, and got over."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.callbacks.nan_guard import NanGuard
from tpk.errors import NonFiniteError
from tpk.graph.non_finite import SkipNonFiniteOptimizer
from tpk.graph.objective import Objective
from tpk.session.checkpoint_files import newest_complete

v1 = tf.compat.v1
SIGNATURE = [tf.TensorSpec([2], tf.float32, "x")]
REPLICATED = tpk.use("replicated", devices=2)
STRATEGIES = ["single", REPLICATED]


def data(bad=(), count=12):
    """Datapoints with different numbers; those in `bad` have an infinity."""
    rows = np.random.default_rng(0).uniform(1, 2, size=(count, 2)).astype(np.float32)
    for index in bad:
        rows[index, 1] = np.inf
    return [[row] for row in rows]


def cost(x):
    w = v1.get_variable("w", initializer=0.5)
    distance = tf.square(w * x - 1, name="distance")
    tf.argmax(distance, name="worst")
    return tf.reduce_mean(distance, name="cost")


def momentum():
    rate = v1.get_variable("learning_rate", initializer=0.1, trainable=False)
    return v1.train.MomentumOptimizer(rate, 0.9)


def skipping():
    return SkipNonFiniteOptimizer(momentum())


class Values(tpk.Callback):
    """The variables after each step, and at the end."""

    def before_train(self, trainer):
        self.steps = []

    def trigger_step(self, trainer):
        self.steps.append(self._values(trainer))

    def after_train(self, trainer):
        self.final = self._values(trainer)
        self.final_step = trainer.global_step

    def _values(self, trainer):
        variables = v1.global_variables()
        return dict(zip([each.op.name for each in variables], trainer.sess.run(variables), strict=True))


def train(guard, run_dir=None, bad=(), strategy="single", *, func=cost, optimizer=momentum, epochs=1, **options):
    values = Values()
    source = options.pop("make_input", tpk.FeedInput)(options.pop("flow", None) or data(bad))
    saver = [tpk.ModelSaver(every_k_steps=2)] if run_dir is not None else []
    callbacks = [guard, *options.pop("callbacks", ()), values, *saver]
    with tf.Graph().as_default():
        trainer = tpk.SingleCostTrainer(strategy)
        trainer.setup_graph(SIGNATURE, source, func, optimizer)
        trainer.train(callbacks=callbacks, **{"steps_per_epoch": 6, "max_epoch": epochs, "run_dir": run_dir, **options})
    return values


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


# Stop.


@pytest.mark.parametrize("strategy", [*STRATEGIES, tpk.use("parameter_server", devices=2)], ids=str)
def test_a_bad_cost_stops_the_training_with_tensor_step_and_checkpoint(tmp_path, strategy):
    towers = 1 if strategy == "single" else 2
    tensor = "cost:0" if towers == 1 else "tower1/cost:0"
    with pytest.raises(NonFiniteError) as caught:
        train(NanGuard(), tmp_path, bad=[4 * towers - 1], strategy=strategy, steps_per_epoch=3, epochs=2)
    error = caught.value
    assert (error.tensors, error.epoch_num, error.local_step, error.global_step) == ((tensor,), 2, 1, 3)
    assert error.checkpoint == str(tmp_path / "model-2")
    assert str(error) == (
        f"{tensor} has 0 NaN, 1 Inf of 1, in epoch 2, step 1 (after global step 3). "
        f"The last good checkpoint: {tmp_path / 'model-2'}"
    )
    assert newest_complete(tmp_path).name == "model-2"
    assert isinstance(error, FloatingPointError)
    assert isinstance(error.__cause__, tf.errors.InvalidArgumentError)


def test_a_guard_that_is_wrapped_says_what_is_wrong_too(tmp_path):
    guard = tpk.EnableCallbackIf(NanGuard(), lambda callback: True)
    with pytest.raises(NonFiniteError, match="cost"):
        train(guard, tmp_path / "run", bad=[3])


def root(x):
    """The cost is fine, and its gradient infinite, where x is 0."""
    w = v1.get_variable("w", initializer=1.0)
    return tf.reduce_sum(tf.sqrt(w * x))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_all_gradients_can_be_checked(strategy):
    flow = data()
    flow[3][0][0] = 0
    # Without the guard the cost is bad one step later only.
    name, step = ("w", 4) if strategy == "single" else ("tower1/w", 2)
    with pytest.raises(
        NonFiniteError, match=rf"^the gradient of {name} \(.*gradients/.*:0\) has .*step {step} "
    ) as caught:
        train(NanGuard("gradients"), flow=flow, func=root, strategy=strategy)
    assert len(caught.value.tensors) == 1


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_chosen_tensors_are_checked_in_every_tower(strategy):
    tower = "" if strategy == "single" else "tower1/"
    with pytest.raises(NonFiniteError, match="has 0 NaN, 1 Inf of 2;") as caught:
        train(NanGuard(["distance", "x", "cost"]), bad=[3], strategy=strategy)
    assert caught.value.tensors == (f"{tower}distance:0", f"{tower}x:0", f"{tower}cost:0")


def test_a_tensor_that_no_update_needs_is_checked_without_taking_more_data():
    def func(x):
        tf.math.log(2 - tf.reduce_max(x), name="log")
        return cost(x)

    flow = data()
    flow[3][0][0] = 3
    with pytest.raises(NonFiniteError, match=r"^log:0 has 1 NaN, 0 Inf of 1, .* step 4 "):
        train(NanGuard("log"), flow=flow, func=func, make_input=tpk.QueueInput)


def test_a_tensor_itself_can_be_checked_in_a_trainer_that_knows_of_no_cost():
    with tf.Graph().as_default():
        trainer = tpk.Trainer()
        w = v1.get_variable("w", initializer=1.0)
        tensor = tf.math.log(w, name="log")
        trainer.train_op = w.assign_sub(0.6 + 0 * tensor)
        with pytest.raises(NonFiniteError, match=r"^log:0 has 1 NaN, 0 Inf of 1, in epoch 1, step 3 "):
            trainer.train(callbacks=[NanGuard(tensor)], steps_per_epoch=5, max_epoch=1)


def test_a_graph_without_numbers_to_save_is_guarded_too(tmp_path):
    with tf.Graph().as_default():
        trainer = tpk.Trainer()
        counter = v1.get_variable("counter", initializer=0)
        tensor = tf.math.log(2 - tf.cast(counter, tf.float32))
        with tf.control_dependencies([tensor]):
            trainer.train_op = counter.assign_add(1)
        with pytest.raises(NonFiniteError, match=r" has 0 NaN, 1 Inf of 1, .* step 3 "):
            guards = [NanGuard([tensor]), NanGuard(tensor)]
            trainer.train(callbacks=["ModelSaver", *guards], steps_per_epoch=5, max_epoch=1, run_dir=tmp_path)


def test_variables_that_went_bad_after_the_check_are_not_saved(tmp_path):
    """The update overflows: cost and gradients were fine."""

    def optimizer():
        return v1.train.GradientDescentOptimizer(tf.where(v1.train.get_or_create_global_step() < 3, 0.1, 1e38))

    with pytest.raises(
        NonFiniteError, match=r"^no checkpoint can be saved; the variable w has 0 NaN, 1 Inf of 1"
    ) as caught:
        train(NanGuard(), tmp_path, optimizer=optimizer, func=lambda x: 1e3 * cost(x))
    assert caught.value.checkpoint == str(tmp_path / "model-2")
    assert newest_complete(tmp_path).step == 2


def test_an_infinity_that_is_not_trained_may_be_saved_and_a_nan_not(tmp_path):
    class Best(tpk.Callback):
        def __init__(self, value):
            self.value = value

        def setup_graph(self, trainer):
            v1.get_variable("best", initializer=self.value, trainable=False)

    train(NanGuard(), tmp_path / "a", callbacks=[Best(np.inf)])
    assert newest_complete(tmp_path / "a").step == 6
    with pytest.raises(NonFiniteError, match="the variable best has 1 NaN, 0 Inf of 1"):
        train(NanGuard(), tmp_path / "b", callbacks=[Best(np.nan)])


class Requests(tpk.Callback):
    """What a guard asks for in each run."""

    def __init__(self, guard):
        self.guard, self.seen = guard, []

    def before_run(self, run_context):
        self.seen.append((run_context.original_args.fetches, self.guard.before_run(run_context)))


@pytest.mark.parametrize("guard", [NanGuard(), NanGuard("gradients", "rollback", lr_factor=1.0)])
def test_nothing_is_fetched_and_nothing_changes_while_all_is_well(guard):
    requests = Requests(guard)
    guarded = train(guard, callbacks=[requests])
    assert len({id(request) for _, request in requests.seen}) == 1
    assert isinstance(requests.seen[0][1], tf.Operation)
    plain = train(Values())
    for first, second in zip(guarded.steps, plain.steps, strict=True):
        assert_same(first, second)


# What belongs to which run.


def two_costs(x):
    first, second = (v1.get_variable(name, initializer=0.5) for name in ("first", "second"))
    return {
        "first": tf.reduce_mean(tf.square(first * x), name="cost_of_first"),
        "second": tf.reduce_mean(tf.square(second * x), name="cost_of_second"),
    }


def train_two(guard, update, optimizer=lambda name: v1.train.GradientDescentOptimizer(0.1), **options):
    with tf.Graph().as_default():
        trainer = tpk.MultiObjectiveTrainer(update=update)
        objectives = [
            Objective(lambda name=name: optimizer(name), name=name, variables=name, every=every)
            for name, every in (("first", 1), ("second", 2))
        ]
        trainer.setup_graph(SIGNATURE, tpk.FeedInput(data(**options)), two_costs, objectives)
        requests = Requests(guard)
        trainer.train(callbacks=[guard, requests], steps_per_epoch=4, max_epoch=1)
    return requests


def test_of_several_objectives_those_of_the_run_are_checked():
    # The runs are first, first, second, first, first, second.
    requests = train_two(NanGuard(), "in_turn")
    checks = {fetches.name: request.name for fetches, request in requests.seen}
    assert len(set(checks.values())) == 2
    with pytest.raises(NonFiniteError, match=r"^cost_of_second:0 has .* step 2 "):
        train_two(NanGuard(), "in_turn", bad=[2])
    with pytest.raises(NonFiniteError) as caught:
        train_two(NanGuard(), "together", bad=[1])
    assert caught.value.tensors == ("cost_of_first:0", "cost_of_second:0")
    with pytest.raises(NonFiniteError) as caught:
        train_two(NanGuard("gradients"), "together", bad=[2])
    assert [name.split()[3] for name in caught.value.tensors] == ["first"]


def test_a_list_that_is_new_in_each_step_is_checked_too():
    class Fetching(tpk.SingleCostTrainer):
        def run_step(self):
            self.hooked_sess.run([self.train_op, self.towers.training()[0].output])

    with tf.Graph().as_default():
        trainer = Fetching()
        trainer.setup_graph(SIGNATURE, tpk.FeedInput(data(bad=[2])), cost, momentum)
        with pytest.raises(NonFiniteError, match="step 3 "):
            trainer.train(callbacks=["tpk.callbacks.nan_guard:NanGuard"], steps_per_epoch=4, max_epoch=1)


def test_of_towers_that_do_not_wait_the_first_is_checked(caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    flow = [[np.float32([1, 1])]] * 3 + [[np.float32([1, np.nan])]] * 50
    with pytest.raises(NonFiniteError, match=r"^tower0/cost:0"):
        train(
            NanGuard(), flow=flow, strategy=tpk.use("async", devices=2), make_input=tpk.QueueInput, steps_per_epoch=50
        )
    assert "NanGuard: not computed in the runs of the steps, so not checked: tower1/cost:0" in caplog.messages


# Skip.


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_bad_updates_are_skipped_and_told(strategy, caplog):
    towers = 1 if strategy == "single" else 2
    flow = data(count=12)
    without = [row for index, row in enumerate(flow) if index // towers != 2]
    flow[3 * towers - 1][0][1] = np.nan
    guarded = train(NanGuard(on_nan="skip"), flow=flow, optimizer=skipping, strategy=strategy)
    plain = train(Values(), flow=without, optimizer=skipping, strategy=strategy, steps_per_epoch=5)
    for name in ("w", "w/Momentum"):
        np.testing.assert_array_equal(guarded.final[name], plain.final[name])
    assert guarded.final["SkipNonFinite/skipped"] == 1
    assert "epoch 1: 1 updates were skipped, 1 in all" in caplog.messages


def normalized(x):
    tpk.layers.batch_normalization(tf.reshape(x, [2, 1]), training=True, name="bn")
    value = cost(x)
    tpk.graph.summaries.add_moving_summary(value)
    return value


def test_moving_averages_are_not_spoiled_by_what_is_skipped():
    final = train(
        NanGuard(on_nan="skip"),
        bad=[2],
        func=normalized,
        optimizer=skipping,
        callbacks=["RunUpdateOps", "MovingAverageSummary"],
    ).final
    averages = {name: value for name, value in final.items() if "moving" in name or "sums" in name}
    assert len(averages) == 3
    without = [row for index, row in enumerate(data()) if index != 2]
    plain = train(
        Values(),
        flow=without,
        func=normalized,
        optimizer=skipping,
        callbacks=["RunUpdateOps", "MovingAverageSummary"],
        steps_per_epoch=5,
    ).final
    for name, value in averages.items():
        np.testing.assert_array_equal(value, plain[name], err_msg=name)


def test_too_many_skips_in_a_row_stop_the_training():
    bad = [1, 3, 4, 5, 6, 7, 8]
    values = train(NanGuard(on_nan="skip", max_skips=None), bad=bad, optimizer=skipping, steps_per_epoch=9)
    assert values.final["SkipNonFinite/skipped"] == 7
    with pytest.raises(NonFiniteError, match=r"^3 updates in a row were skipped; the gradient of w \(") as e:
        train(NanGuard(on_nan="skip", max_skips=3), bad=bad, optimizer=skipping, steps_per_epoch=9)
    assert e.value.local_step == 6


def test_skips_of_what_was_accumulated_stop_it_too():
    """The bad gradient is in the first of two steps, the skip in the second."""

    def optimizer():
        return tpk.graph.AccumGradOptimizer(skipping(), 2)

    with pytest.raises(NonFiniteError, match=r"^1 updates in a row were skipped, in epoch 1, step 4 "):
        train(NanGuard(on_nan="skip", max_skips=1), bad=[2], optimizer=optimizer)


def test_each_objective_may_skip():
    def optimizer(name):
        return SkipNonFiniteOptimizer(v1.train.GradientDescentOptimizer(0.1), name=f"{name}/Skip")

    for update in ("in_turn", "together"):
        train_two(NanGuard(on_nan="skip", max_skips=2), update, optimizer, bad=[1])
        with pytest.raises(NonFiniteError, match=r"^2 updates in a row"):
            train_two(NanGuard(on_nan="skip", max_skips=2), update, optimizer, bad=[0, 1, 2, 3, 4, 5])


def test_a_loss_scale_skips_too_and_stops_when_it_is_not_to_blame():
    guard = NanGuard(on_nan="skip", max_skips=2)
    with tf.Graph().as_default():
        trainer = tpk.SingleCostTrainer(precision="float16")
        trainer.setup_graph(SIGNATURE, tpk.FeedInput(data(bad=range(2, 40), count=40)), cost, momentum)
        with pytest.raises(NonFiniteError, match=r"^2 updates in a row") as caught:
            trainer.train(callbacks=[guard], steps_per_epoch=40, max_epoch=1)
    # From 2^15 it takes 15 steps until the scale is 1.
    assert caught.value.local_step == 2 + 15 + 2


# Roll back.


INPUTS = [tpk.FeedInput, tpk.QueueInput]


@pytest.mark.parametrize("make_input", INPUTS)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_it_goes_back_to_the_checkpoint_and_on_with_further_data(tmp_path, strategy, make_input, caplog):
    towers = 1 if strategy == "single" else 2
    flow = data(count=20)
    flow[4 * towers - 1][0][1] = np.nan
    guard = NanGuard(on_nan="rollback", lr_factor=0.25)
    values = train(guard, tmp_path / "a", flow=flow, strategy=strategy, make_input=make_input)
    assert guard.rollbacks == 1
    assert values.final_step == 6
    assert [step["global_step"] for step in values.steps] == [1, 2, 3, 4, 5, 6]
    # As a new training would go on from that checkpoint, with the data that follows and the lower rate.
    plain = train(
        tpk.ScheduledHyperParamSetter("learning_rate", [(0, 0.025)]),
        flow=flow[4 * towers :],
        strategy=strategy,
        session_init=str(tmp_path / "a" / "model-2"),
        steps_per_epoch=3,
    )
    for name in ("w", "w/Momentum", "learning_rate"):
        np.testing.assert_array_equal(values.final[name], plain.final[name])
    assert any(
        "go back to those of" in message and "(1 of 3 times); the learning rate is 0.025 now" in message
        for message in caplog.messages
    )


def test_it_goes_back_so_many_times_with_an_ever_lower_rate(tmp_path):
    guard, values = NanGuard(on_nan="rollback", max_rollbacks=2), Values()
    with pytest.raises(NonFiniteError, match="step 4 ") as caught:
        train(guard, tmp_path, bad=[3, 4, 5], callbacks=[values])
    assert caught.value.__notes__ == ["it has gone back 2 times already (max_rollbacks)"]
    assert guard.rollbacks == 2
    assert values.final["learning_rate"] == np.float32(0.025)


def test_without_a_checkpoint_there_is_nowhere_to_go_back_to():
    with pytest.raises(NonFiniteError) as caught:
        train(NanGuard(on_nan="rollback"), bad=[3])
    assert caught.value.__notes__ == ["there is no checkpoint yet that it could go back to"]


def test_it_goes_back_when_a_checkpoint_is_due_of_variables_that_went_bad(tmp_path):
    def optimizer():
        rate = v1.get_variable("rate", initializer=0.1, trainable=False)
        too_much = tf.equal(v1.train.get_or_create_global_step(), 3)
        return v1.train.GradientDescentOptimizer(rate * tf.where(too_much, 1e38, 1.0))

    guard = NanGuard(on_nan="rollback", learning_rate="rate")
    values = train(guard, tmp_path, optimizer=optimizer, func=lambda x: 1e3 * cost(x))
    assert guard.rollbacks == 1
    assert newest_complete(tmp_path).step == 6
    # The checkpoint of step 4 has the variables of that of step 2.
    reader = tf.train.load_checkpoint(str(tmp_path / "model-4"))
    assert reader.get_tensor("w") == values.steps[1]["w"]
    assert reader.get_tensor("rate") == np.float32(0.05)


class Kill(tpk.Callback):
    def __init__(self, step):
        self.step = step

    @tpk.hookimpl(trylast=True)
    def trigger_step(self, trainer):
        if trainer.global_step == self.step:
            raise KeyError("killed")


@pytest.mark.parametrize("step", [5, 8])
@pytest.mark.parametrize("make_input", INPUTS)
def test_a_training_that_went_back_resumes_exactly(tmp_path, step, make_input):
    """Killed between going back and the next checkpoint (5), or after that (8)."""

    def run(run_dir, *callbacks, resume="never"):
        guard = NanGuard(on_nan="rollback", max_rollbacks=2)
        options = {"bad": [4, 9], "make_input": make_input, "epochs": 2, "resume": resume, "callbacks": callbacks}
        return train(guard, run_dir, **options).final, guard.rollbacks

    expected = run(tmp_path / "whole")
    assert expected[1] == 2
    with pytest.raises(KeyError, match="killed"):
        run(tmp_path / "killed", Kill(step))
    final, rollbacks = run(tmp_path / "killed", resume="must")
    assert_same(final, expected[0])
    assert rollbacks == 2


# What is asked for, and is not there.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_nan": "ignore"}, "on_nan='ignore'.*'stop', 'skip', 'rollback'"),
        ({"tensors": []}, "nothing to check"),
        ({"max_skips": 0}, "max_skips=0"),
        ({"max_rollbacks": 1.5}, "max_rollbacks=1.5"),
        ({"lr_factor": 0}, "lr_factor=0"),
    ],
)
def test_wrong_options_are_told(options, message):
    with pytest.raises(tpk.ConfigError, match=message):
        NanGuard(**options)


@pytest.mark.parametrize(
    ("guard", "error", "message"),
    [
        (lambda: NanGuard(on_nan="skip"), tpk.ConfigError, r"Return tpk.graph.SkipNonFiniteOptimizer\(optimizer\)"),
        (lambda: NanGuard("distanse"), tpk.TowerError, "'distanse'.*distance"),
        (lambda: NanGuard(3), tpk.ConfigError, "expected names or tensors, got 3"),
        (lambda: NanGuard("worst"), tpk.ConfigError, "worst:0 is int64, which is always finite"),
        (lambda: NanGuard(on_nan="rollback", learning_rate="rate"), tpk.ConfigError, "no variable 'rate'"),
    ],
)
def test_what_the_graph_does_not_have_is_told(guard, error, message):
    with pytest.raises(error, match=message):
        train(guard())


def test_what_does_not_go_together_is_told():
    with pytest.raises(tpk.ConfigError, match="Leave `tensors` out"):
        train(NanGuard("gradients", "skip"), optimizer=skipping)
    with tf.Graph().as_default(), pytest.raises(tpk.ConfigError, match="Leave `tensors` out"):
        trainer = tpk.Trainer()
        skipping()
        trainer.train(callbacks=[NanGuard(tf.constant(1.0), "skip")], steps_per_epoch=1, max_epoch=1)
    with tf.Graph().as_default():
        trainer = tpk.SingleCostTrainer(precision="float16")
        trainer.setup_graph(SIGNATURE, tpk.FeedInput(data()), cost, momentum)
        with pytest.raises(tpk.ConfigError, match=r"DynamicLossScaleOptimizer.*Check the cost"):
            trainer.train(callbacks=[NanGuard("gradients")], steps_per_epoch=1, max_epoch=1)
    for tensors, what in (("cost", "cost"), ("gradients", "gradients"), ("other", "graph has no tensor 'other'")):
        with tf.Graph().as_default():
            trainer = tpk.Trainer()
            trainer.train_op = tf.no_op()
            with pytest.raises(tpk.ConfigError, match=what):
                trainer.train(callbacks=[NanGuard(tensors)], steps_per_epoch=1, max_epoch=1)
