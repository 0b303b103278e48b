"""Training in two processes, compared with the same training in one process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("horovod", reason="build Horovod with `python -m tpk_horovod.build`")
sys.path.insert(0, str(Path(__file__).parent))

import trainings
from hosts import HERE, Processes

from tpk.checkpoint import newest_complete

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def processes(tmp_path):
    with Processes(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def many_ways(tmp_path_factory):
    """The results of `trainings.train_many_ways` in each of two processes."""
    with Processes(tmp_path_factory.mktemp("many_ways")) as started:
        yield started.start("train_many_ways").results()


def trained(values):
    """Return the variables that all replicas have."""
    return {name: value for name, value in values.items() if not name.startswith("tower")}


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Train in this process, in a new directory."""
    monkeypatch.chdir(tmp_path)
    return trainings.train


@pytest.mark.parametrize("name", [*trainings.OPTIMIZERS, "fp16", "sparse"])
def test_two_processes_with_two_devices_train_as_one_with_the_whole_batch(many_ways, alone, name):
    rows = name == "sparse"
    points = trainings.concatenated(trainings.datapoints(4 * trainings.STEPS, rows=rows), 4)
    optimizer = {"fp16": "sgd", "sparse": "momentum"}.get(name, name)
    expected = alone("QueueInputTrainer", points, optimizer, rows, steps_per_epoch=trainings.STEPS)
    values = trained(many_ways[0][name])
    assert values.keys() == expected.keys()
    tolerance = 2e-3 if name == "fp16" else 2e-6
    for variable, value in expected.items():
        np.testing.assert_allclose(values[variable], value, rtol=tolerance, atol=tolerance, err_msg=variable)
    assert not np.array_equal(values["output:0"], alone("QueueInputTrainer", points[:1], optimizer, rows)["output:0"])


@pytest.mark.parametrize("name", [*trainings.OPTIMIZERS, "fp16", "sparse"])
def test_all_replicas_of_all_processes_are_bit_identical(many_ways, name):
    first, second = (each[name] for each in many_ways)
    assert first.keys() == second.keys()
    for variable, value in first.items():
        assert second[variable].tobytes() == value.tobytes(), variable
        copy = first.get(f"tower1/{variable}")
        assert copy is None or copy.tobytes() == value.tobytes(), variable
    assert any(variable.startswith("tower1/") for variable in first)


def test_synchronized_batch_norm_has_the_statistics_of_all_towers_of_all_processes(many_ways, alone):
    points = trainings.concatenated(trainings.datapoints(4 * trainings.STEPS), 4)
    model = trainings.Normalized()
    expected = alone("QueueInputTrainer", points, model=model, steps_per_epoch=trainings.STEPS)
    first, second = (each["synchronized"] for each in many_ways)
    assert "norm/moving_variance:0" in expected
    for variable, value in expected.items():
        assert first[variable].tobytes() == second[variable].tobytes(), variable
        np.testing.assert_allclose(first[variable], value, rtol=1e-4, atol=1e-5, err_msg=variable)


def test_follows_the_rules_of_strategies_in_one_process(processes):
    (checked,) = processes.start("check_rules", count=1).results()
    assert "towers-equal-one" in checked


def test_several_steps_per_run_are_bit_identical(many_ways):
    for results in many_ways:
        alone, many = results["momentum"], results["many steps in a run"]
        assert alone.keys() == many.keys()
        for variable, value in alone.items():
            assert value.tobytes() == many[variable].tobytes(), variable


def test_two_objectives_train_as_in_one_process(many_ways, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    points = trainings.concatenated(trainings.datapoints(4 * trainings.STEPS), 4)
    expected = trainings.train_two_objectives("single", points)
    first, second = (each["objectives"] for each in many_ways)
    for variable, value in expected.items():
        np.testing.assert_allclose(first[variable], value, rtol=2e-6, atol=2e-6, err_msg=variable)
        assert first[variable].tobytes() == second[variable].tobytes()


def test_compressed_gradients_differ_from_full_precision(many_ways):
    results = many_ways[0]
    assert not np.array_equal(results["fp16"]["hidden:0"], results["sgd"]["hidden:0"])


def test_only_the_chief_has_a_run_dir(many_ways):
    assert many_ways[0]["files"]
    assert many_ways[1]["files"] == []


def test_training_resumes_with_another_number_of_processes(processes, tmp_path):
    shared = {"SHARED": str(tmp_path / "shared")}
    processes.start("train_to_checkpoint", 1, env=shared).results()
    (alone,) = processes.start("train_to_checkpoint", 2, count=1, env=shared).results()
    assert alone["global_step:0"] == 8
    first, second = processes.start("train_to_checkpoint", 3, env=shared).results()
    assert first["global_step:0"] == 12
    assert all(second[name].tobytes() == value.tobytes() for name, value in first.items())
    files = os.listdir(tmp_path / "shared")
    assert files.count("stats.jsonl") == 1
    assert len((tmp_path / "shared" / "stats.jsonl").read_text().splitlines()) == 3


def test_training_works_under_horovodrun(processes, tmp_path):
    script = [sys.executable, HERE / "trainings.py", "train_to_checkpoint", tmp_path / "result", 1]
    options = ["-np", 2, "--network-interface", "lo", "--start-timeout", 300]
    command = [sys.executable, "-m", "horovod.runner.launch", *options, *script]
    processes.command(map(str, command), 0, {"SHARED": str(tmp_path / "shared")})
    assert processes.wait(0, timeout=300) == 0, processes.log(0)
    assert newest_complete(tmp_path / "shared").state["run"]["world_size"] == 2


def test_horovod_that_the_user_initialized_is_not_shut_down(processes):
    env = {"HOROVOD_SIZE": "1", "HOROVOD_RANK": "0"}
    (result,) = processes.start("initialized_by_the_user", count=1, env=env).results()
    assert result["is_initialized"]
    assert result["size"] == 1
