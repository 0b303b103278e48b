from __future__ import annotations

import json

import pytest
from tpk_estimator import RunConfig

CLUSTER = {"chief": ["host0:1"], "ps": ["host1:1", "host2:1"], "worker": ["host3:1", "host4:1"]}


@pytest.fixture
def in_cluster(monkeypatch):
    def set_task(job, index, cluster=CLUSTER):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}))

    return set_task


def test_checkpoints_are_saved_every_ten_minutes_unless_steps_are_given():
    assert (RunConfig().save_checkpoints_steps, RunConfig().save_checkpoints_secs) == (None, 600)
    assert RunConfig(save_checkpoints_steps=7).save_checkpoints_secs is None
    assert RunConfig(save_checkpoints_secs=None).save_checkpoints_steps is None
    with pytest.raises(ValueError, match="cannot both be given"):
        RunConfig(save_checkpoints_steps=7, save_checkpoints_secs=7)


def test_replace_returns_a_copy_and_keeps_one_way_to_save():
    config = RunConfig(save_checkpoints_steps=7, model_dir="one")
    other = config.replace(save_checkpoints_secs=60, model_dir="two")
    assert (other.save_checkpoints_steps, other.save_checkpoints_secs, other.model_dir) == (None, 60, "two")
    assert (config.save_checkpoints_steps, config.model_dir) == (7, "one")
    assert config.replace(save_checkpoints_secs=None).save_checkpoints_steps == 7
    with pytest.raises(ValueError, match="no option 'modeldir'"):
        config.replace(modeldir="three")


@pytest.mark.parametrize(
    "options",
    [
        {"model_dir": ""},
        {"save_summary_steps": -1},
        {"save_checkpoints_steps": -1},
        {"keep_checkpoint_max": -1},
        {"keep_checkpoint_every_n_hours": 0},
        {"log_step_count_steps": 0},
        {"session_creation_timeout_secs": 0},
        {"protocol": "http"},
        {"device_fn": lambda node: "/cpu:0"},
        {"tf_random_seed": "one"},
        {"session_config": {}},
    ],
)
def test_an_invalid_option_is_named(options):
    (name,) = options
    with pytest.raises((ValueError, TypeError), match=name):
        RunConfig(**options)


@pytest.mark.parametrize(
    ("job", "index", "is_chief", "master", "global_id"),
    [("chief", 0, True, "host0:1", 0), ("worker", 1, False, "host4:1", 2), ("ps", 0, False, "host1:1", 3)],
)
def test_tf_config_says_the_place_in_a_cluster(in_cluster, job, index, is_chief, master, global_id):
    in_cluster(job, index)
    config = RunConfig()
    assert (config.task_type, config.task_id, config.is_chief) == (job, index, is_chief)
    assert (config.master, config.global_id_in_cluster) == (f"grpc://{master}", global_id)
    assert (config.num_ps_replicas, config.num_worker_replicas) == (2, 3)
    assert config.cluster_spec.as_dict() == CLUSTER


def test_an_evaluator_is_outside_of_the_cluster(in_cluster):
    in_cluster("evaluator", 0)
    config = RunConfig()
    assert (config.master, config.is_chief, config.num_worker_replicas, config.global_id_in_cluster) == (
        "",
        False,
        0,
        None,
    )
    assert not config.cluster_spec


@pytest.mark.parametrize(
    ("job", "index", "cluster", "message"),
    [
        ("worker", 0, {"worker": ["host:1"], "ps": ["host:2"]}, "must have one chief"),
        ("worker", 2, CLUSTER, "worker 2, but the cluster has 2"),
        ("reader", 0, CLUSTER, "reader 0, but the cluster has 0"),
        (None, None, CLUSTER, "not the place of this process"),
        ("chief", 0, {}, "no cluster, so its task must be worker 0"),
    ],
)
def test_a_contradictory_tf_config_is_an_error(in_cluster, job, index, cluster, message):
    in_cluster(job, index, cluster)
    with pytest.raises(ValueError, match=message):
        RunConfig()


def test_model_dir_may_come_from_tf_config(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"model_dir": "here"}))
    assert RunConfig().model_dir == "here"
    with pytest.raises(ValueError, match="give it once"):
        RunConfig(model_dir="there")


def test_a_setting_without_effect_is_logged(caplog):
    RunConfig(experimental_max_worker_delay_secs=3)
    assert "experimental_max_worker_delay_secs of RunConfig is ignored" in caplog.text
