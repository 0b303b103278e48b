"""A training in Jupyter: in a real kernel, which is started once for all of it."""

from __future__ import annotations

import asyncio
import base64
import re

import pytest

nbformat = pytest.importorskip("nbformat")
NotebookClient = pytest.importorskip("nbclient").NotebookClient

pytestmark = [pytest.mark.once, pytest.mark.timeout(600)]  # The first test runs all cells.

SETUP = """
import sys
import numpy as np
import tensorflow as tf
import tpk

%matplotlib inline
"""
DEFINITIONS = """
class Linear(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None, 1], tf.float32, "y")]

    def build_graph(self, x, y):
        return tf.reduce_mean((tpk.layers.dense(x, 1, name="out") - y) ** 2, name="cost")

    def optimizer(self):
        return tf.compat.v1.train.AdamOptimizer(0.01)


class StopAfter(tpk.Callback):
    def __init__(self, epochs):
        self.left = epochs

    def trigger_epoch(self, trainer):
        self.left -= 1
        if self.left == 0:
            trainer.request_stop("that will do")


x = np.random.default_rng(0).normal(size=[640, 3]).astype(np.float32)
points = list(zip(x, x.sum(axis=1, keepdims=True)))


def train(trainer, run_dir, *callbacks):
    flow = tpk.BatchData(tpk.DataFromList(points, shuffle=True), 4)
    config = tpk.TrainConfig(
        model=Linear(), dataflow=flow, callbacks=["ModelSaver", *callbacks], run_dir=run_dir, resume="auto", seed=1
    )
    return tpk.launch_train_with_config(config, trainer)
"""
WITHOUT_END = """
trainer = tpk.make_trainer("SimpleTrainer")
train(trainer, "first")
"""
CELLS = {
    "setup": SETUP,
    "definitions": DEFINITIONS,
    "interrupted": WITHOUT_END,
    "after the interruption": (
        "print(trainer.global_step, len(trainer.history['cost']), trainer.loop.failure is not None)"
    ),
    "interrupted again": WITHOUT_END,
    "gone on": "trainer = train('SimpleTrainer', 'first', StopAfter(2))",
    "history": "trainer.history",
    "plot": "trainer.history.plot('cost');",
    "definitions again": DEFINITIONS,
    "another": "other = train('SimpleTrainer', 'second', StopAfter(1))",
    "both": "print(trainer.global_step, other.global_step, trainer.graph is other.graph)",
    "eager": "print(tf.executing_eagerly(), float(tf.reduce_sum(tf.ones([2, 3]))))",
    "file": "print(open('first/config.toml').read())",
}


class Reader(NotebookClient):
    """Runs a notebook, and presses the button that interrupts the kernel as soon as an epoch is reported."""

    def process_message(self, msg, cell, cell_index):
        if cell.metadata.get("waits_for") and re.search(cell.metadata["waits_for"], msg["content"].get("text", "")):
            cell.metadata["waits_for"] = ""
            self.interruption = asyncio.ensure_future(self.km.interrupt_kernel())
        return super().process_message(msg, cell, cell_index)


class Notebook(dict):
    """The cells by their names, and the states of the widgets."""

    widgets: dict


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """The cells, by their names, with their outputs."""
    directory = tmp_path_factory.mktemp("notebook")
    cells = []
    for name, source in CELLS.items():
        cell = nbformat.v4.new_code_cell(source.strip())
        if name.startswith("interrupted"):
            cell.metadata |= {"waits_for": r"epoch \d+, step \d+ \|", "tags": ["raises-exception"]}
        cells.append(cell)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "MPLCONFIGDIR"):
            patch.setenv(name, str(directory / name))
        client = Reader(
            nbformat.v4.new_notebook(cells=cells),
            timeout=250,
            startup_timeout=250,
            kernel_name="python3",
            resources={"metadata": {"path": str(directory)}},
        )
        executed = client.execute()
    found = Notebook(zip(CELLS, executed.cells, strict=True))
    found.widgets = executed.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    return found


def shown(cell):
    """Return what a cell shows: the data of its outputs by type, with the text of streams as "stream"."""
    found = {"stream": ""}
    for output in cell.outputs:
        if output.output_type == "stream":
            found["stream"] += output.text
        found |= output.get("data", {})
    return found


def error_of(cell):
    (error,) = [output for output in cell.outputs if output.output_type == "error"]
    return error


def test_an_interrupted_cell_says_in_one_line_what_was_saved_and_how_to_go_on(notebook):
    error = error_of(notebook["interrupted"])
    assert error.ename == "KeyboardInterrupt"
    (line,) = error.traceback
    assert re.search(
        r"SIGINT ended the training in epoch \d+, .*saved first/model-\d+; to resume from it: run_dir=", line
    )


def test_the_trainer_of_an_interrupted_cell_has_its_history(notebook):
    step, values, is_interrupted = shown(notebook["after the interruption"])["stream"].split()
    assert int(step) >= 160 and int(values) >= 1 and is_interrupted == "True"


def test_the_same_cell_goes_on_where_it_was_interrupted(notebook):
    first, second = (error_of(notebook[name]).evalue for name in ("interrupted", "interrupted again"))
    saved = re.search(r"saved (first/model-(\d+));", first)
    text = shown(notebook["interrupted again"])["stream"]
    assert f"resuming from {saved[1]}: " in text and f"global step {saved[2]}" in text
    assert int(re.search(r"model-(\d+);", second)[1]) > int(saved[2])
    assert "that will do" in shown(notebook["gone on"])["stream"]


def test_there_is_one_bar_of_widgets_that_has_come_to_its_end(notebook):
    bars = [output for output in notebook["gone on"].outputs if output.output_type == "display_data"]
    (bar,) = [output.data["application/vnd.jupyter.widget-view+json"]["model_id"] for output in bars]
    children = notebook.widgets[bar]["state"]["children"]
    _, middle, text = [notebook.widgets[child.removeprefix("IPY_MODEL_")]["state"] for child in children]
    assert (middle["value"], middle["max"]) == (160, 160)
    assert "160/160" in text["value"] and "cost=" in text["value"]


def test_the_history_is_a_table_with_curves(notebook):
    page = shown(notebook["history"])["text/html"]
    assert page.startswith("<table>") and "<td>cost</td>" in page
    assert is_png(re.search('src="data:image/png;base64,([^"]+)"', page)[1])


def test_a_plot_is_a_figure_below_its_cell(notebook):
    assert is_png(shown(notebook["plot"])["image/png"])


def is_png(text):
    return base64.b64decode(text).startswith(b"\x89PNG")


def test_definitions_may_be_run_again_and_another_training_leaves_the_first_alone(notebook):
    first, second, has_same_graph = shown(notebook["both"])["stream"].split()
    assert int(first) >= 640 and int(second) == 160 and has_same_graph == "False"


def test_eager_code_is_as_it_was(notebook):
    assert shown(notebook["eager"])["stream"].split() == ["True", "6.0"]


def test_what_is_defined_in_a_notebook_cannot_be_repeated_from_a_file(notebook):
    assert "Linear, which is defined in a notebook" in shown(notebook["file"])["stream"]
