from __future__ import annotations

import datastore
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from tpk_wandb import WandbMonitor
from tpk_wandb.media import as_histogram

import tpk
from tpk.plugin import get_catalog
from tpk.testing import check_monitor


class Reporting(tpk.Callback):
    """Reports a scalar after each step; optionally fails in one step."""

    def __init__(self, failing_step=None):
        self.failing_step = failing_step

    def trigger_step(self):
        if self.global_step == self.failing_step:
            raise RuntimeError("no more")
        self.trainer.monitors.put_scalar("ten times/the step", 10 * self.global_step)


class EachStep(tpk.ModelSaver):
    """Saves after each step."""

    def trigger_step(self, trainer):
        self.trigger(trainer)


class Showing(tpk.Callback):
    """Reports an image and a histogram at the end of each epoch."""

    def trigger_epoch(self):
        self.trainer.monitors.put_image("shade", np.full([2, 3], 7, np.uint8))
        self.trainer.monitors.put_histogram("numbers", np.arange(60.0))


def files_in(run_dir):
    return sorted(run_dir.glob("wandb/offline-run-*/*.wandb"))


def curve(recorded):
    name = "ten times/the step"
    return {step: row[name] for step, row in recorded.history.items() if name in row}


def test_a_training_run_is_recorded_offline(descend, tmp_path):
    run_dir = tmp_path / "run"
    monitor = WandbMonitor("descents", tags=["short"], mode="offline")
    descend(callbacks=[Reporting(), Showing(), "ModelSaver"], monitors=[monitor], run_dir=run_dir)
    (file,) = files_in(run_dir)
    recorded = datastore.read(file)
    assert curve(recorded) == {1: 10, 2: 20, 3: 30, 4: 40}
    assert recorded.exit_code == 0
    assert recorded.config["max_epoch"] == 2
    assert recorded.config["callbacks"][2]["name"] == "ModelSaver"
    assert sum(recorded.history[4]["numbers"]["values"]) == 60
    assert recorded.history[4]["numbers"]["bins"][0] == 0
    assert recorded.history[4]["numbers"]["bins"][-1] == 59
    with PIL.Image.open(file.parent / "files" / recorded.history[2]["shade"]["path"]) as image:
        np.testing.assert_array_equal(image, np.full([2, 3], 7))
    assert monitor.run is None


def test_a_resumed_training_run_continues_the_same_run(descend, tmp_path):
    run_dir = tmp_path / "run"
    with pytest.raises(RuntimeError, match="no more"):
        descend(
            callbacks=[Reporting(4), EachStep()],
            steps=5,
            epochs=1,
            monitors=[WandbMonitor(mode="offline")],
            run_dir=run_dir,
        )
    (run_dir / "state-3.json").unlink()
    descend(
        callbacks=[Reporting(), EachStep()],
        steps=5,
        epochs=1,
        monitors=[WandbMonitor(mode="offline")],
        run_dir=run_dir,
        resume="must",
    )
    first, second = map(datastore.read, files_in(run_dir))
    assert first.run_id == second.run_id != ""
    assert (first.exit_code, second.exit_code) == (1, 0)
    assert curve(first) == {1: 10, 2: 20, 3: 30}
    # The checkpoint of a step contains the reports of that step, which W&B may have lost.
    assert curve(second) == {2: 20, 3: 30, 4: 40, 5: 50}


def test_without_a_server_it_records_offline_and_logs_it(logged_in, descend, tmp_path, caplog):
    descend(callbacks=[Reporting()], epochs=1, monitors=[WandbMonitor(timeout=1)], run_dir=tmp_path / "run")
    assert "wandb cannot reach its server" in caplog.text
    assert f"wandb sync {tmp_path}/run/wandb/offline-run-" in caplog.text
    (file,) = files_in(tmp_path / "run")
    assert curve(datastore.read(file)) == {1: 10, 2: 20}


def test_a_missing_key_is_an_error_not_a_prompt(descend):
    with pytest.raises(tpk.ConfigError, match=r"wandb has no API key.*wandb login.*mode='offline'"):
        descend(monitors=[WandbMonitor()])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "disabled"}, "expected 'online', 'offline' or None"),
        ({"tags": "x"}, r"expected a list of strings, e.g. \['x'\]"),
        ({"timeout": 0}, "timeout=0"),
    ],
)
def test_invalid_options_are_errors(options, message):
    with pytest.raises(tpk.ConfigError, match=message):
        WandbMonitor(**options)


def test_histograms_of_the_graph_have_finite_edges_and_few_bins():
    values = np.random.default_rng(0).lognormal(size=5000, sigma=30)
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        serialized = sess.run(tf.compat.v1.summary.histogram("numbers", values))
    (value,) = tf.compat.v1.Summary.FromString(serialized).value
    assert len(value.histo.bucket) > 512
    histogram = as_histogram(value.histo)
    assert len(histogram.histogram) == len(histogram.bins) - 1 <= 512
    assert sum(histogram.histogram) == 5000
    assert (histogram.bins[0], histogram.bins[-1]) == (values.min(), values.max())
    assert np.all(np.diff(histogram.bins) >= 0)


def test_follows_the_rules_of_monitors():
    # W&B itself keeps its service for the process.
    check_monitor(lambda: WandbMonitor(mode="offline"), skip=["leaves-nothing-behind"])


def test_the_installed_package_is_found_by_name():
    monitor = get_catalog().resolve("monitor", tpk.use("wandb", project="digits"))
    assert isinstance(monitor, WandbMonitor)
    entry = get_catalog().find("monitor", "wandb")
    assert (entry.distribution, entry.status) == ("tpk-wandb", "loaded")
