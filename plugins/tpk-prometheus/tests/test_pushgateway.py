from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families
from tpk_prometheus import PrometheusMonitor

import tpk

SECONDS = 30


class Waiting(tpk.Callback):
    """Reports the step, and waits for the event in the first step."""

    def __init__(self, event=None):
        self.event = event

    def trigger_step(self):
        self.trainer.monitors.put_scalar("the step", self.global_step)
        if self.event is not None and self.global_step == 1:
            assert self.event.wait(SECONDS)


class Received:
    """A fake gateway: the pushes that it received, and its answers.

    Attributes:
        pushes: the path and the metrics of each push.
        answers: the status codes of the next answers; 200 after that.
        in_first_step: set when metrics arrive during the first step.
    """

    def __init__(self, *answers):
        self.pushes = []
        self.answers = list(answers)
        self.in_first_step = threading.Event()

    @contextmanager
    def gateway(self):
        """Run a server, and yield its URL."""
        received = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status = received.answers.pop(0) if received.answers else 200
                if status == 200:
                    samples = samples_in(text)
                    received.pushes.append((self.path, samples))
                    if samples[("tpk_global_step",)] == 1.0:
                        received.in_first_step.set()
                self.send_response(status)
                self.end_headers()

            def log_message(self, *arguments):
                """Do nothing: no access log."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()
            thread.join()


def samples_in(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_it_pushes_during_training_and_when_it_ends(run_steps):
    received = Received()
    with received.gateway() as address:
        monitor = PrometheusMonitor(pushgateway=address, job="baseline", push_secs=0.01)
        run_steps(Waiting(received.in_first_step), 3, monitors=[monitor])
    assert {path for path, _ in received.pushes} == {"/metrics/job/baseline"}
    assert 1.0 in [samples[("tpk_global_step",)] for _, samples in received.pushes]
    assert received.pushes[-1][1][("tpk_scalar", ("name", "the step"))] == 3.0
    assert received.pushes[-1][1][("tpk_global_step",)] == 3.0


def test_training_continues_when_the_gateway_fails_and_pushes_are_retried(run_steps, caplog):
    caplog.set_level("INFO")
    received = Received(503, 503, 503)
    with received.gateway() as address:
        monitor = PrometheusMonitor(pushgateway=address, push_secs=0.01)
        trainer = run_steps(Waiting(received.in_first_step), 3, monitors=[monitor])
    assert trainer.global_step == 3
    assert received.pushes[-1][1][("tpk_global_step",)] == 3.0
    assert caplog.text.count(f"cannot push to the Pushgateway at {address}: HTTP Error 503") == 1
    assert "accepts metrics again" in caplog.text


def test_an_unreachable_gateway_at_the_end_is_logged(run_steps, caplog):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    run_steps(Waiting(), 2, monitors=[PrometheusMonitor(pushgateway=f"http://127.0.0.1:{port}", push_secs=60)])
    assert "failed in after_train" in caplog.text
    assert "its records are incomplete" in caplog.text


@pytest.mark.skipif(shutil.which("prometheus-pushgateway") is None, reason="apt-get install prometheus-pushgateway")
def test_the_real_gateway_has_the_last_values(run_steps, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with (tmp_path / "log").open("w") as log:
        command = ["prometheus-pushgateway", f"--web.listen-address=127.0.0.1:{port}"]
        gateway = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
        try:
            every_half_second = urllib3.Retry(2 * SECONDS, backoff_factor=0.1, backoff_max=0.5)
            urllib3.request("GET", f"http://127.0.0.1:{port}/-/ready", retries=every_half_second, timeout=5)
            monitor = PrometheusMonitor(pushgateway=f"http://127.0.0.1:{port}", labels={"run": "baseline"})
            run_steps(Waiting(), 2, monitors=[monitor])
            text = urllib3.request("GET", f"http://127.0.0.1:{port}/metrics", timeout=5).data.decode()
        finally:
            gateway.kill()
            gateway.wait(SECONDS)
    labels = [("instance", ""), ("job", "tpk"), ("name", "the step"), ("run", "baseline")]
    assert samples_in(text)[("tpk_scalar", *labels)] == 2.0
