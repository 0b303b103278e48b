"""Processes that accumulate gradients: each its own, which are all-reduced once per update; and killed in between."""

from __future__ import annotations

import os
import signal

import collective_trainings as trainings
import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.checkpoint import newest_complete

pytestmark = pytest.mark.once

v1 = tf.compat.v1

STEPS, NITER = 12, trainings.NITER


def concatenated(data, count):
    return [
        [np.concatenate([batch[component] for batch in data[start : start + count]]) for component in (0, 1)]
        for start in range(0, len(data), count)
    ]


def train(devices, optimizer):
    data = trainings.batches(STEPS * 2 * devices)
    strategy = tpk.use("collective", devices=devices)
    return trainings.train(data, STEPS, f"accumulating {optimizer}", strategy=strategy)


@pytest.mark.parametrize(("devices", "optimizer"), [(1, "momentum"), (2, "adam")])
def test_processes_that_accumulate_equal_one_on_all_that_they_were_given(launch, devices, optimizer):
    (first, trained), (second, _) = launch(train, args=(devices, optimizer)).returned()
    data = concatenated(trainings.batches(STEPS * 2 * devices), 2 * devices * NITER)
    one, _ = trainings.train(data, STEPS // NITER, optimizer, strategy="single")
    for name in trained:
        assert first[name].tobytes() == second[name].tobytes(), name
        # Sums of float32 in another order.
        np.testing.assert_allclose(first[name], one[name], rtol=3e-4, atol=2e-5, err_msg=name)


def train_epochs(run_dir, resume, killed=-1):
    """Train three epochs of four steps, so that the end of the first is in the middle of the second accumulation."""
    kill = trainings.Steps(killed, 1, lambda: trainer_epoch() == 2 and os.kill(os.getpid(), signal.SIGKILL))
    current = []

    class Epochs(tpk.Callback):
        chief_only = False

        def before_epoch(self, trainer):
            current[:] = [trainer.epoch_num]

    def trainer_epoch():
        return current[0]

    options = {"callbacks": [tpk.ModelSaver(), Epochs(), kill], "run_dir": run_dir, "resume": resume, "epochs": 3}
    strategy = tpk.use("collective", devices=2)
    return trainings.train(trainings.batches(24), 4, "accumulating adam", strategy=strategy, **options)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_training_that_is_killed_goes_on_in_the_middle_of_an_accumulation(launch, tmp_path, killed):
    whole = launch(train_epochs, args=(tmp_path / "whole", "never")).returned()
    running = launch(train_epochs, args=(tmp_path / "halves", "never", killed))
    assert running.wait()[killed].status == -signal.SIGKILL
    checkpoint = newest_complete(tmp_path / "halves")
    assert checkpoint.state["progress"]["global_step"] == 4
    # What the other process has accumulated, in both of its towers.
    ((kept,),) = [list(other["callbacks"]["CollectiveStrategy"]) for other in checkpoint.state["others"]]
    assert kept == "accumulated"
    halves = launch(train_epochs, args=(tmp_path / "halves", "must")).returned()
    for (ours, _), (expected, _) in zip(halves, whole, strict=True):
        assert ours.keys() == expected.keys()
        for name, value in expected.items():
            assert ours[name].tobytes() == value.tobytes(), name
    different = [name for name in whole[0][0] if whole[0][0][name].tobytes() != whole[1][0][name].tobytes()]
    assert not different


def test_nothing_but_variables_is_saved_between_two_accumulations(launch, tmp_path):
    def run():
        options = {"callbacks": [tpk.ModelSaver()], "run_dir": tmp_path / "run"}
        strategy = tpk.use("collective")
        trainings.train(trainings.batches(12), 2 * NITER, "accumulating adam", strategy=strategy, **options)

    launch(run).returned()
    (other,) = newest_complete(tmp_path / "run").state["others"]
    assert "CollectiveStrategy" not in other["callbacks"]
