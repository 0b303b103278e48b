"""The truth of collective trainings: processes with devices equal one device on all that they were given."""

from __future__ import annotations

import collective_trainings as trainings
import numpy as np
import pytest

import tpk

STEPS = 20


def concatenated(data, count):
    """What all towers of all processes take in one step, as one batch."""
    return [
        [np.concatenate([batch[component] for batch in data[start : start + count]]) for component in (0, 1)]
        for start in range(0, len(data), count)
    ]


def assert_equal_to_one(returned, one):
    values, trained = one
    for name in trained:
        for ours, _ in returned:
            # Sums of float32 in another order.
            np.testing.assert_allclose(ours[name], values[name], rtol=2e-4, atol=2e-5, err_msg=name)


def assert_identical(returned):
    (first, trained), *others = returned
    for other, _ in others:
        assert other.keys() == first.keys()
        for name, value in first.items():
            assert other[name].tobytes() == value.tobytes(), name
    copies = [name for name in first if name.startswith("tower1/") and name.removeprefix("tower1/") in trained]
    for name in copies:
        assert first[name].tobytes() == first[name.removeprefix("tower1/")].tobytes(), name


def train(devices, optimizer, options):
    strategy = tpk.use("collective", devices=devices, **options)
    return trainings.train(trainings.batches(STEPS * 2 * devices), STEPS, optimizer, strategy=strategy)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_processes_with_devices_equal_one_on_the_concatenation(launch, optimizer, devices):
    returned = launch(train, args=(devices, optimizer, {})).returned()
    assert_identical(returned)
    data = concatenated(trainings.batches(STEPS * 2 * devices), 2 * devices)
    assert_equal_to_one(returned, trainings.train(data, STEPS, optimizer, strategy="single"))


@pytest.mark.parametrize("compression", [None, "bf16"])
def test_sums_are_those_of_all_towers_of_all_processes(launch, compression):
    returned = launch(train, args=(2, "slow_sgd", {"average": False, "compression": compression})).returned()
    assert_identical(returned)
    if compression is None:
        data = concatenated(trainings.batches(STEPS * 4), 4)
        assert_equal_to_one(returned, trainings.train(data, STEPS, "sgd", strategy="single"))


@pytest.mark.parametrize("pack_bytes", [0, 64])
def test_how_gradients_travel_changes_nothing(launch, pack_bytes):
    returned = launch(train, workers=3, args=(1, "adam", {"pack_bytes": pack_bytes, "shard_data": False})).returned()
    assert_identical(returned)
    # All three take the same data.
    data = concatenated(trainings.batches(STEPS * 2)[:STEPS], 1)
    assert_equal_to_one(returned, trainings.train(data, STEPS, "adam", strategy="single"))


def train_epochs(run_dir, epochs, resume):
    data = trainings.batches(STEPS * 2)
    strategy = tpk.use("collective", devices=["/cpu:0", "/cpu:1"])
    options = {"callbacks": [tpk.ModelSaver()], "run_dir": run_dir, "resume": resume, "epochs": epochs}
    return trainings.train(data, STEPS // 4, "adam", strategy=strategy, **options)


def test_all_go_on_from_the_checkpoint_of_the_chief(launch, tmp_path):
    whole = launch(train_epochs, args=(tmp_path / "whole", 2, "never")).returned()
    assert_identical(whole)
    launch(train_epochs, args=(tmp_path / "halves", 1, "never")).returned()
    halves = launch(train_epochs, args=(tmp_path / "halves", 2, "must")).returned()
    assert_identical([whole[0], *halves])
