"""The web pages of TensorBoard and MLflow for a training run, in a browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import urllib3
from mlflow import MlflowClient
from playwright.sync_api import sync_playwright
from tensorboard import program
from tpk_mlflow import MLflowMonitor

import tpk

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
SECONDS = 90
"""The time limit for starting a server and for loading a page."""

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs a browser: apt-get install chromium-headless-shell"),
    pytest.mark.timeout(300),
]


class Shades(tpk.ModelDesc):
    """Estimates the brightness of a picture."""

    def inputs(self):
        return [tf.TensorSpec([4, 6, 6, 1], tf.float32, "picture"), tf.TensorSpec([4, 1], tf.float32, "brightness")]

    def build_graph(self, picture, brightness):
        tf.compat.v1.summary.image("pictures", picture, max_outputs=2)
        x = tpk.layers.conv2d(picture, 2, 3, name="convolution")
        x = tpk.layers.dense(tpk.layers.flatten(x), 1, name="answer")
        tpk.add_param_summary((".*/kernel", ["histogram"]))
        return tf.reduce_mean(tf.square(x - brightness), name="cost")

    def optimizer(self):
        return tf.compat.v1.train.GradientDescentOptimizer(0.01)


@pytest.fixture(scope="module")
def server(empty_store, tmp_path_factory):
    """The URL of an MLflow server, which is killed afterwards."""
    directory = tmp_path_factory.mktemp("server")
    shutil.copy(empty_store, directory / "mlflow.db")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", f"{port}", "--workers", "1"]
    options = [
        "--backend-store-uri",
        f"sqlite:///{directory}/mlflow.db",
        "--artifacts-destination",
        f"{directory}/files",
    ]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, *options],
            cwd=directory,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", directory / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(SECONDS)


def _wait_for(address, log):
    every_half_second = urllib3.Retry(2 * SECONDS, backoff_factor=0.1, backoff_max=0.5)
    try:
        urllib3.request("GET", address, retries=every_half_second, timeout=5)
    except urllib3.exceptions.HTTPError:
        pytest.fail(f"MLflow's server does not answer at {address}:\n{log.read_text()}")


@pytest.fixture(scope="module")
def trained(server, tmp_path_factory):
    """A trainer after training, and the monitor that recorded the run on the MLflow server."""
    rng = np.random.default_rng(0)
    pictures = rng.uniform(size=(5, 4, 6, 6, 1)).astype(np.float32)
    monitor = MLflowMonitor(server, experiment="shades")
    config = tpk.TrainConfig(
        model=Shades(),
        dataflow=[(batch, batch.mean(axis=(1, 2))) for batch in pictures],
        monitors=["TFEventWriter", "JSONWriter", monitor],
        max_epoch=3,
        run_dir=tmp_path_factory.mktemp("runs") / "shades",
        seed=0,
    )
    return tpk.launch_train_with_config(config, "SimpleTrainer"), monitor


@pytest.fixture(scope="module")
def board(trained):
    """The URL of TensorBoard, in this process; it reads the run once.

    A reloading thread would still run in C++ while Python exits, which aborts the process.
    """
    trainer, _ = trained
    tensorboard = program.TensorBoard()
    read_once = ("--load_fast=false", "--reload_interval=0")
    tensorboard.configure(
        argv=[None, "--logdir", str(trainer.run_dir), "--host", "127.0.0.1", "--port", "0", *read_once]
    )
    return tensorboard.launch().rstrip("/")


@pytest.fixture(scope="module")
def page():
    """One page for all tests, so that TensorBoard and MLflow are loaded only once."""
    with sync_playwright() as playwright:
        # Chromium's sandbox does not work for root, which runs the tests in containers.
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=SECONDS * 1000)
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        context.set_default_timeout(SECONDS * 1000)
        ours = ("http://127.0.0.1:", "data:", "blob:")
        context.route(lambda url: not url.startswith(ours), lambda route: route.abort())
        yield context.new_page()
        browser.close()


@pytest.fixture
def show(page, tmp_path):
    """Return a context manager that opens a page, takes a screenshot, and checks for JavaScript errors."""

    @contextmanager
    def show(address, name):
        failures = []

        def note(error):
            failures.append(error)

        page.on("pageerror", note)
        page.goto(address)
        try:
            yield page
        finally:
            page.screenshot(path=Path(os.environ.get("TPK_SCREENSHOTS", tmp_path), f"{name}.png"))
            page.remove_listener("pageerror", note)
        assert failures == []

    return show


def test_tensorboard_shows_the_scalars(trained, board, show):
    trainer, _ = trained
    with show(f"{board}/#timeseries", "tensorboard-scalars") as page:
        card = page.locator("scalar-card").filter(has_text="cost")
        card.get_by_text("15", exact=True).first.wait_for()
        assert f"{trainer.history.latest('cost'):.4f}"[:5] in card.inner_text()


def test_tensorboard_shows_the_images(board, show):
    with show(f"{board}/#images", "tensorboard-images") as page:
        page.get_by_text("pictures/image/1").first.wait_for()
        images = page.locator("tf-image-loader img")
        images.nth(1).wait_for()
        assert images.evaluate_all("images => images.map(image => image.naturalWidth)") == [6, 6]


def test_tensorboard_shows_the_graph(board, show):
    with show(f"{board}/#graphs", "tensorboard-graph") as page:
        for name in ("convolution", "answer", "cost", "picture", "train_op"):
            page.locator(f'tf-graph-scene g.node[data-name="{name}"]').first.wait_for()


def test_mlflow_shows_the_run_among_others(trained, server, show):
    _, monitor = trained
    experiment = MlflowClient(server).get_run(monitor.run_id).info.experiment_id
    with show(f"{server}/#/experiments/{experiment}/runs", "mlflow-runs") as page:
        page.get_by_role("link", name="shades").last.wait_for()


def test_mlflow_shows_parameters_values_images_and_files(trained, server, show):
    _, monitor = trained
    experiment = MlflowClient(server).get_run(monitor.run_id).info.experiment_id
    run = f"{server}/#/experiments/{experiment}/runs/{monitor.run_id}"
    with show(run, "mlflow-run") as page:
        page.get_by_text("Finished").first.wait_for()
        page.get_by_text("max_epoch").first.wait_for()
    with show(f"{run}/model-metrics", "mlflow-values") as page:
        page.get_by_text("cost").first.wait_for()
        page.locator(".js-plotly-plot").first.wait_for()
        page.get_by_text("pictures/image/1").first.wait_for()
        page.get_by_role("slider").first.press("ArrowRight")  # Step 0 has no image.
        image = page.locator('img[src*="get-artifact"]').first
        image.wait_for(state="attached")
        page.wait_for_function("image => image.naturalWidth > 0", arg=image.element_handle())
    with show(f"{run}/artifacts", "mlflow-files") as page:
        page.get_by_text("stats.jsonl").first.click()
        page.get_by_text("global_step").first.wait_for()
        page.get_by_text("images", exact=True).first.click()
        page.get_by_text(re.compile(r"pictures~image~0\+step\+15.*\.png")).first.click()
        page.wait_for_function("() => [...document.images].some(image => image.naturalWidth === 6)")
