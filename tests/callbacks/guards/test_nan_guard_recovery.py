"""Bad numbers, made by bad data at a chosen step: their update is skipped, or the training goes back."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from guarded_trainings import (
    SIGNATURE,
    STRATEGIES,
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
from tpk.graph.optimizers.non_finite import SkipNonFiniteOptimizer

v1 = tf.compat.v1

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
    tpk.graph.reports.summary_ops.add_moving_summary(value)
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
    assert e.value.local_step == 5


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
    assert caught.value.local_step == 2 + 15 + 1


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
        session_init=tpk.SaverRestore(tmp_path / "a" / "model-2"),
        steps_per_epoch=3,
    )
    for name in ("w", "w/Momentum", "learning_rate"):
        np.testing.assert_array_equal(values.final[name], plain.final[name])
    assert any(
        "are restored from" in message and "(rollback 1 of 3); the learning rate is now 0.025" in message
        for message in caplog.messages
    )


def test_it_goes_back_so_many_times_with_an_ever_lower_rate(tmp_path):
    guard, values = NanGuard(on_nan="rollback", max_rollbacks=2), Values()
    with pytest.raises(NonFiniteError, match="step 4 ") as caught:
        train(guard, tmp_path, bad=[3, 4, 5], callbacks=[values])
    assert caught.value.__notes__ == ["it has been rolled back 2 times already (max_rollbacks)"]
    assert guard.rollbacks == 2
    assert values.final["learning_rate"] == np.float32(0.025)


def test_without_a_checkpoint_there_is_nowhere_to_go_back_to():
    with pytest.raises(NonFiniteError) as caught:
        train(NanGuard(on_nan="rollback"), bad=[3])
    assert caught.value.__notes__ == ["it cannot be rolled back, because there is no checkpoint yet"]


def test_it_goes_back_when_a_checkpoint_is_due_of_variables_that_went_bad(tmp_path):
    def optimizer():
        rate = v1.get_variable("learning_rate", initializer=0.1, trainable=False)
        too_much = tf.equal(v1.train.get_or_create_global_step(), 3)
        return v1.train.GradientDescentOptimizer(rate * tf.where(too_much, 1e38, 1.0))

    guard = NanGuard(on_nan="rollback")
    values = train(guard, tmp_path, optimizer=optimizer, func=lambda x: 1e3 * cost(x))
    assert guard.rollbacks == 1
    assert newest_complete(tmp_path).step == 6
    # The checkpoint of step 4 has the variables of that of step 2.
    reader = tf.train.load_checkpoint(str(tmp_path / "model-4"))
    assert reader.get_tensor("w") == values.steps[1]["w"]
    assert reader.get_tensor("learning_rate") == np.float32(0.05)


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
