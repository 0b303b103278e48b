from __future__ import annotations

import json
import socket

import numpy as np
import PIL.Image
import pytest
from tpk_mlflow import MLflowMonitor
from tpk_mlflow.store import as_key

import tpk
from tpk.plugin import get_catalog
from tpk.testing import check_monitor


class Reporting(tpk.Callback):
    """Reports a scalar and an image after each step; optionally fails in one step."""

    def __init__(self, failing_step=None, failure=RuntimeError):
        self.failing_step = failing_step
        self.failure = failure

    def trigger_step(self):
        if self.global_step == self.failing_step:
            raise self.failure("no more")
        self.trainer.monitors.put_scalar("ten times/the step (%)", 10 * self.global_step)
        self.trainer.monitors.put_image("a/shade", np.full([2, 3], self.global_step, np.uint8))


class EachStep(tpk.ModelSaver):
    """Saves after each step."""

    def trigger_step(self, trainer):
        self.trigger(trainer)


@pytest.fixture
def unreachable():
    """The URL of a server that does not exist."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def curve(client, run_id, name="ten times/the step ___"):
    return sorted((metric.step, metric.value) for metric in client.get_metric_history(run_id, name))


def images(client, run_id):
    return sorted(
        int(file.path.split("+")[2]) for file in client.list_artifacts(run_id, "images") if file.path.endswith(".png")
    )


def test_a_training_run_is_recorded(store, descend, tmp_path):
    uri, client = store
    monitor = MLflowMonitor(
        uri, experiment="descents", tags={"team": "vision"}, checkpoint=True, clock=lambda: 1_700_000_000.0
    )
    run_dir = tmp_path / "runs" / "first"
    descend(
        callbacks=[Reporting(), tpk.ModelSaver(max_to_keep=2)],
        monitors=[tpk.JSONWriter(), monitor],
        run_dir=run_dir,
    )
    run = client.get_run(monitor.run_id)
    assert client.get_experiment(run.info.experiment_id).name == "descents"
    assert (run.info.run_name, run.info.status) == ("runs/first", "FINISHED")
    assert curve(client, monitor.run_id) == [(1, 10.0), (2, 20.0), (3, 30.0), (4, 40.0)]
    (last,) = [each for each in client.get_metric_history(monitor.run_id, "ten times/the step ___") if each.step == 4]
    assert last.timestamp == 1_700_000_000_000
    assert run.data.params["max_epoch"] == "2"
    assert run.data.params["callbacks"] == "Reporting, ModelSaver"
    assert run.data.params["callbacks.ModelSaver.max_to_keep"] == "2"
    assert run.data.tags["team"] == "vision"
    assert run.data.tags["tpk.run_dir"] == str(run_dir)

    assert images(client, monitor.run_id) == [1, 2, 3, 4]
    pictures = {file.path for file in client.list_artifacts(monitor.run_id, "images") if file.path.endswith(".png")}
    (second,) = [path for path in pictures if path.startswith("images/a~shade+step+2+")]
    with PIL.Image.open(client.download_artifacts(monitor.run_id, second, str(tmp_path))) as picture:
        np.testing.assert_array_equal(picture, np.full([2, 3], 2))

    kept = client.download_artifacts(monitor.run_id, "config.json", str(tmp_path))
    with open(kept) as file:
        assert json.load(file)["monitors"][1]["options"]["experiment"] == "descents"
    assert {file.path for file in client.list_artifacts(monitor.run_id)} >= {"stats.jsonl", "log.txt"}
    files = {file.path.removeprefix("checkpoint/") for file in client.list_artifacts(monitor.run_id, "checkpoint")}
    assert {"model-4.index", "state-4.json"} <= files
    assert not any("-2." in file for file in files)


def test_a_resumed_training_run_continues_the_same_run(store, descend, tmp_path):
    uri, client = store
    first, second = MLflowMonitor(uri), MLflowMonitor(uri)
    with pytest.raises(RuntimeError, match="no more"):
        # The checkpoints of steps 3 and 4 are removed below: these steps were recorded, and are repeated.
        descend(callbacks=[Reporting(5), EachStep()], steps=6, epochs=1, monitors=[first], run_dir=tmp_path / "run")
    assert client.get_run(first.run_id).info.status == "FAILED"
    for step in (3, 4):
        (tmp_path / "run" / f"state-{step}.json").unlink()
    descend(
        callbacks=[Reporting(), EachStep()],
        steps=6,
        epochs=1,
        monitors=[second],
        run_dir=tmp_path / "run",
        resume="must",
    )
    assert second.run_id == first.run_id
    assert client.get_run(first.run_id).info.status == "FINISHED"
    assert curve(client, first.run_id) == [(step, 10.0 * step) for step in range(1, 7)]
    assert images(client, first.run_id) == [1, 2, 3, 4, 5, 6]


def test_undelivered_reports_are_sent_after_resuming(store, descend, unreachable, tmp_path, caplog):
    uri, client = store
    away = MLflowMonitor(unreachable, timeout=1)
    descend(callbacks=[Reporting(), EachStep()], epochs=1, monitors=[away], run_dir=tmp_path / "run")
    assert f"MLflow at {unreachable} does not accept reports" in caplog.text
    assert "MLflow is missing the last" in caplog.text
    assert away.run_id is None
    back = MLflowMonitor(uri)
    descend(callbacks=[Reporting(), EachStep()], epochs=2, monitors=[back], run_dir=tmp_path / "run", resume="must")
    # The checkpoint of a step contains the reports of that step.
    assert curve(client, back.run_id) == [(1, 10.0), (2, 20.0), (3, 30.0), (4, 40.0)]
    assert images(client, back.run_id) == [1, 2, 3, 4]


def test_a_deleted_run_is_replaced_by_a_new_one(store, descend, tmp_path, caplog):
    uri, client = store
    first, second = MLflowMonitor(uri), MLflowMonitor(uri)
    descend(callbacks=["ModelSaver"], epochs=1, monitors=[first], run_dir=tmp_path / "run")
    client.delete_run(first.run_id)
    descend(callbacks=["ModelSaver", Reporting()], epochs=2, monitors=[second], run_dir=tmp_path / "run", resume="must")
    assert second.run_id != first.run_id
    assert f"no longer has the run {first.run_id}" in caplog.text
    assert curve(client, second.run_id) == [(3, 30.0), (4, 40.0)]


def test_the_status_of_an_interrupted_run_is_killed(store, descend):
    uri, client = store
    monitor = MLflowMonitor(uri)
    with pytest.raises(KeyboardInterrupt):
        descend(callbacks=[Reporting(2, KeyboardInterrupt)], monitors=[monitor])
    assert client.get_run(monitor.run_id).info.status == "KILLED"
    assert curve(client, monitor.run_id) == [(1, 10.0)]


def test_an_option_that_mlflow_rejects_is_an_error_before_training(store, descend):
    uri, client = store
    client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(tpk.ConfigError, match=r"MLflow cannot record this run.*experiment='gone'"):
        descend(monitors=[MLflowMonitor(uri, experiment="gone")])
    with pytest.raises(tpk.ConfigError, match=r"MLflow cannot record this run.*tracking_uri='htp://server'"):
        descend(monitors=[MLflowMonitor("htp://server")])


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("train/cost: 5-fold.x y", "train/cost_ 5-fold.x y"),
        ("höhe", "h_he"),
        ("/a//b/", "a/b"),
        ("../../a", "a"),
        ("..", "_"),
        ("x" * 300, "x" * 250),
    ],
)
def test_names_become_valid_mlflow_names(name, key):
    assert as_key(name) == key


@pytest.mark.parametrize(
    ("options", "message"),
    [({"artifacts": "*.png"}, r"expected a list of patterns, e.g. \['\*.png'\]"), ({"timeout": 0}, "timeout=0")],
)
def test_invalid_options_are_errors(options, message):
    with pytest.raises(tpk.ConfigError, match=message):
        MLflowMonitor(**options)


def test_follows_the_rules_of_monitors(store):
    uri, _ = store
    # MLflow keeps the connection to its store open until the process exits.
    check_monitor(lambda: MLflowMonitor(tracking_uri=uri), skip=["leaves-nothing-behind"])


def test_the_installed_package_is_found_by_name():
    monitor = get_catalog().resolve("monitor", tpk.use("mlflow", experiment="digits"))
    assert isinstance(monitor, MLflowMonitor)
    entry = get_catalog().find("monitor", "mlflow")
    assert (entry.distribution, entry.status) == ("tpk-mlflow", "loaded")
