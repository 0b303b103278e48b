from __future__ import annotations

import socket
import urllib.error
import urllib.request

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tpk_prometheus import PrometheusMonitor

import tpk
from tpk.plugin import get_catalog
from tpk.testing import check_monitor


class Reporting(tpk.Callback):
    """Reports a scalar after each step, then calls `also`."""

    def __init__(self, also=lambda: None):
        self.also = also

    def trigger_step(self):
        self.trainer.monitors.put_scalar("ten times the step", 10 * self.global_step)
        self.also()


def samples_in(text):
    """Return the values of all metrics by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def fetch(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        return samples_in(response.read().decode())


def test_serves_the_latest_values_while_the_training_runs(run_steps):
    monitor = PrometheusMonitor(port=0)
    fetched = []
    run_steps(Reporting(lambda: fetched.append(fetch(monitor.port))), 2, epochs=2, monitors=[monitor])
    assert fetched == [
        {
            ("tpk_scalar", ("name", "ten times the step")): 10.0 * step,
            ("tpk_global_step",): step,
            ("tpk_epoch_num",): epoch,
        }
        for step, epoch in [(1, 1), (2, 1), (3, 2), (4, 2)]
    ]


def test_stops_serving_when_the_training_ends(run_steps):
    monitor = PrometheusMonitor(port=0)

    def fail():
        assert fetch(monitor.port)
        raise ValueError("the training fails")

    with pytest.raises(ValueError, match="the training fails"):
        run_steps(Reporting(fail), 1, monitors=[monitor])
    with pytest.raises(urllib.error.URLError):
        fetch(monitor.port)


def test_writes_a_file_at_the_end_of_each_epoch(run_steps, tmp_path):
    textfile = tmp_path / "training.prom"
    seen = []
    run_steps(
        Reporting(lambda: seen.append(textfile.exists() and samples_in(textfile.read_text())[("tpk_global_step",)])),
        2,
        epochs=2,
        monitors=[PrometheusMonitor(textfile=textfile)],
    )
    assert seen == [False, False, 2.0, 2.0]
    assert samples_in(textfile.read_text())[("tpk_scalar", ("name", "ten times the step"))] == 40.0


def test_the_file_is_replaced_atomically(run_steps, tmp_path):
    textfile = tmp_path / "training.prom"
    textfile.write_text("what a reader has open\n")
    with textfile.open() as reader:
        run_steps(Reporting(), 1, monitors=[PrometheusMonitor(textfile=textfile)])
        assert reader.read() == "what a reader has open\n"
    assert list(tmp_path.iterdir()) == [textfile]


def test_labels_are_on_every_metric(run_steps, tmp_path):
    textfile = tmp_path / "training.prom"
    run_steps(Reporting(), 1, monitors=[PrometheusMonitor(textfile=textfile, labels={"run": "baseline"})])
    assert set(samples_in(textfile.read_text())) == {
        ("tpk_scalar", ("name", "ten times the step"), ("run", "baseline")),
        ("tpk_global_step", ("run", "baseline")),
        ("tpk_epoch_num", ("run", "baseline")),
    }


def test_a_port_in_use_is_an_error_before_training(run_steps):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(tpk.ConfigError, match=f"cannot serve on 127.0.0.1:{port}"):
            run_steps(Reporting(), 1, monitors=[PrometheusMonitor(port=port)])


def test_the_address_is_logged(run_steps, caplog):
    caplog.set_level("INFO", logger="tpk")
    monitor = PrometheusMonitor(port=0)
    run_steps(Reporting(), 1, monitors=[monitor])
    assert f"metrics for Prometheus are at http://127.0.0.1:{monitor.port}/metrics" in caplog.text


def test_by_default_only_this_machine_can_reach_it(run_steps):
    monitor = PrometheusMonitor(port=0)
    addresses = set()

    def look():
        for connection in psutil.Process().net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == monitor.port:
                addresses.add(connection.laddr.ip)

    run_steps(Reporting(look), 1, monitors=[monitor])
    assert addresses == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Set at least one of port, textfile and pushgateway"),
        ({"port": 0, "labels": {"name": "x"}}, "contain 'name', which is reserved"),
        ({"pushgateway": "gateway:9091"}, "expected a URL such as 'http://gateway:9091'"),
        ({"pushgateway": "http://gateway", "job": ""}, r"job=''"),
        ({"pushgateway": "http://gateway", "push_secs": 0}, "push_secs=0"),
    ],
)
def test_invalid_options_are_errors(options, message):
    with pytest.raises(tpk.ConfigError, match=message):
        PrometheusMonitor(**options)


def test_follows_the_rules_of_monitors():
    check_monitor(lambda: PrometheusMonitor(port=0))


def test_the_installed_package_is_found_by_name():
    monitor = get_catalog().resolve("monitor", tpk.use("prometheus", port=0))
    assert isinstance(monitor, PrometheusMonitor)
    entry = get_catalog().find("monitor", "prometheus")
    assert (entry.distribution, entry.status) == ("tpk-prometheus", "loaded")
