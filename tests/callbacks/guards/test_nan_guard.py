"""Bad numbers, made by bad data at a chosen step: noticed in that step, and kept out of checkpoints."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest
import tensorflow as tf
from guarded_trainings import (
    SIGNATURE,
    STRATEGIES,
    Requests,
    Values,
    assert_same,
    cost,
    data,
    momentum,
    skipping,
    train,
    train_two,
)

import tpk
from tpk.callbacks.guards.nan import NanGuard
from tpk.checkpoint.files import newest_complete
from tpk.errors import NonFiniteError

v1 = tf.compat.v1

# Stop.


@pytest.mark.parametrize("strategy", [*STRATEGIES, tpk.use("parameter_server", devices=2)], ids=str)
def test_a_bad_cost_stops_the_training_with_tensor_step_and_checkpoint(tmp_path, strategy):
    towers = 1 if strategy == "single" else 2
    tensor = "cost:0" if towers == 1 else "tower1/cost:0"
    with pytest.raises(NonFiniteError) as caught:
        train(NanGuard(), tmp_path, bad=[4 * towers - 1], strategy=strategy, steps_per_epoch=3, epochs=2)
    error = caught.value
    assert (error.tensors, error.epoch_num, error.local_step, error.global_step) == ((tensor,), 2, 0, 3)
    assert error.checkpoint == str(tmp_path / "model-2")
    numbers = "datapoint 3" if towers == 1 else "datapoints 6 to 7"
    assert str(error) == (
        f"{tensor} has 0 NaN, 1 Inf of 1, in epoch 2, step 1 (after global step 3), with {numbers} of FeedInput. "
        f"The last good checkpoint: {tmp_path / 'model-2'}"
    )
    assert newest_complete(tmp_path).name == "model-2"
    assert isinstance(error, FloatingPointError)
    assert isinstance(error.__cause__, tf.errors.InvalidArgumentError)


def test_the_checkpoint_is_named_without_reading_its_gigabytes(tmp_path):
    class Damage(tpk.Callback):
        def trigger_step(self):
            for path in tmp_path.glob("model-2.data-*"):
                path.write_bytes(bytes(path.stat().st_size))  # A reader would skip it.

    with pytest.raises(NonFiniteError) as caught:
        train(NanGuard(), tmp_path, bad=[3], callbacks=[Damage()])
    assert caught.value.checkpoint == str(tmp_path / "model-2")


# Which datapoints.

INPUTS = {
    "feed": tpk.FeedInput,
    "queue": tpk.QueueInput,
    "staged queue": lambda flow: tpk.StagingInput(tpk.QueueInput(flow), nr_stage=2),
    "remapped": lambda flow: tpk.remap_input_source(tpk.QueueInput(flow), ["x"]),
    "flow by tf.data": tpk.TFDatasetInput,
    "tf.data": lambda flow: tpk.TFDatasetInput(
        lambda: tf.data.Dataset.from_tensor_slices((np.float32([row for (row,) in flow]),))
    ),
}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("make_input", INPUTS.values(), ids=INPUTS)
def test_the_datapoints_of_the_step_are_named(make_input, strategy):
    towers = 1 if strategy == "single" else 2
    with pytest.raises(NonFiniteError) as caught:
        train(NanGuard(), flow=data([9]), strategy=strategy, make_input=make_input, epochs=2)
    error, first = caught.value, 9 // towers * towers
    assert error.datapoints == range(first, first + towers)
    assert error.local_step + 6 * (error.epoch_num - 1) == first // towers
    assert f", with {'datapoint 9' if towers == 1 else 'datapoints 8 to 9'} of " in str(error)


class BadOnce:
    """A flow of five datapoints, of which only the one with a certain number, over all passes, has an infinity."""

    def __init__(self, bad):
        self._numbers, self._bad = itertools.count(), bad

    def __len__(self):
        return 5

    def __iter__(self):
        for _ in range(5):
            yield [np.float32([1, np.inf if next(self._numbers) == self._bad else 2])]


@pytest.mark.parametrize("make_input", [tpk.FeedInput, tpk.QueueInput])
def test_datapoints_are_counted_over_all_passes(make_input):
    with pytest.raises(NonFiniteError, match="with datapoint 13 of"):
        train(NanGuard(), flow=BadOnce(13), make_input=make_input, epochs=3)


@pytest.mark.parametrize("make_input", [tpk.FeedInput, tpk.QueueInput])
def test_a_resumed_run_counts_on(tmp_path, make_input):
    options = {"make_input": make_input, "flow": data([9]), "run_dir": tmp_path, "resume": "auto"}
    train(NanGuard(), **options)
    with pytest.raises(NonFiniteError, match=r"in epoch 2, step 4 \(after global step 9\), with datapoint 9 of"):
        train(NanGuard(), epochs=2, **options)


def test_of_a_batch_that_the_graph_makes_all_datapoints_are_named():
    flow = [[np.float32(np.inf if number == 7 else number)] for number in range(20)]
    with pytest.raises(NonFiniteError, match=r"step 4 .* with datapoints 6 to 7 of BatchQueueInput"):
        train(NanGuard(), flow=flow, make_input=lambda flow: tpk.BatchQueueInput(flow, 2))


def test_updates_that_were_skipped_name_the_datapoints_of_the_last():
    with pytest.raises(NonFiniteError, match=r"2 updates in a row were skipped.* with datapoint 4 of FeedInput"):
        train(NanGuard(on_nan="skip", max_skips=2), bad=[3, 4], optimizer=skipping)


@pytest.mark.parametrize("kind", ["constants", "a queue that shuffles"])
def test_where_the_input_cannot_tell_nothing_is_said(kind):
    with tf.Graph().as_default():
        if kind == "constants":
            source = tpk.TensorInput(lambda: [tf.constant([1.0, np.inf])])
        else:
            source = tpk.QueueInput(data(range(12)), queue=tf.queue.RandomShuffleQueue(5, 1, [tf.float32]))
        trainer = tpk.SingleCostTrainer()
        trainer.setup_graph(SIGNATURE, source, cost, momentum)
        with pytest.raises(NonFiniteError, match=r"\(after global step 0\)\. The last good") as caught:
            trainer.train(callbacks=[NanGuard()], steps_per_epoch=2, max_epoch=1)
    assert not caught.value.datapoints


def test_of_towers_that_do_not_wait_nobody_knows_whose_turn_it_was():
    strategy = tpk.use("async", devices=2)
    with pytest.raises(NonFiniteError, match=r"\(after global step \d\)\. The last good"):
        train(NanGuard(), bad=range(12), make_input=tpk.QueueInput, strategy=strategy)


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
    assert not caught.value.datapoints
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
            trainer.train(callbacks=["tpk.callbacks.guards.nan:NanGuard"], steps_per_epoch=4, max_epoch=1)


def test_of_towers_that_do_not_wait_the_first_is_checked(caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    flow = [[np.float32([1, 1])]] * 3 + [[np.float32([1, np.nan])]] * 50
    with pytest.raises(NonFiniteError, match=r"^tower0/cost:0"):
        train(
            NanGuard(), flow=flow, strategy=tpk.use("async", devices=2), make_input=tpk.QueueInput, steps_per_epoch=50
        )
    assert "NanGuard: not computed in the runs of the steps, so not checked: tower1/cost:0" in caplog.messages


# What is asked for, and is not there.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_nan": "ignore"}, "on_nan must be one of 'stop', 'skip', 'rollback', not 'ignore'"),
        ({"tensors": []}, "nothing to check"),
        ({"max_skips": 0}, "max_skips must be an integer, 1 or more, not 0"),
        ({"max_rollbacks": 1.5}, "max_rollbacks must be .*, not 1.5"),
        ({"lr_factor": 0}, "lr_factor must be .*, not 0"),
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
    ],
)
def test_what_the_graph_does_not_have_is_told(guard, error, message):
    with pytest.raises(error, match=message):
        train(guard())


def test_a_rollback_that_lowers_the_learning_rate_needs_its_variable():
    def optimizer():
        return v1.train.GradientDescentOptimizer(0.1)

    with pytest.raises(tpk.ConfigError, match="no variable 'learning_rate'") as caught:
        train(NanGuard(on_nan="rollback"), optimizer=optimizer)
    assert "lr_factor=1 leaves it alone" in caught.value.__notes__[0]


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
