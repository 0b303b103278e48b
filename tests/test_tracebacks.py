"""The traceback of an error that leaves tpk: it leads to the user's code, and loses nothing that finds a bug."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.cli.main import main

v1 = tf.compat.v1
TPK = str(Path(tpk.__file__).parent)


class Linear(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None], tf.float32, "x")]

    def build_graph(self, x):
        return tf.reduce_mean((v1.get_variable("w", [], initializer=v1.zeros_initializer()) - x) ** 2, name="cost")

    def optimizer(self):
        return v1.train.GradientDescentOptimizer(0.1)


class Calls(tpk.Callback):
    """Calls a function after the first step."""

    def __init__(self, function):
        self.function = function

    def trigger_step(self, trainer):
        self.function(trainer)


def look_for_nothing(trainer):
    looked_for = "nothing"
    trainer.monitors.get_latest(looked_for)


def launch(function, run_dir):
    data = [[np.ones(2, np.float32)]] * 4
    config = tpk.TrainConfig(
        model=Linear(), dataflow=data, callbacks=[Calls(function)], max_epoch=1, run_dir=run_dir, monitors=[]
    )
    tpk.launch_train_with_config(config)


def train_with_defaults(function, run_dir):
    trained(tpk.SimpleTrainer().train_with_defaults, function, run_dir)


def train(function, run_dir):
    trained(tpk.SimpleTrainer().train, function, run_dir)


def trained(train, function, run_dir):
    trainer, model = train.__self__, Linear()
    trainer.setup_graph(model.inputs(), tpk.FeedInput([[np.ones(2)]] * 4), model.build_graph, model.optimizer)
    train(callbacks=[Calls(function)], monitors=[], steps_per_epoch=4, max_epoch=1, run_dir=run_dir)


def error_of(way, function, run_dir):
    with pytest.raises(BaseException) as raised:
        way(function, run_dir)
    return raised.value


def frames_of(error):
    """Return the names of the functions of the traceback, and how many of them are in tpk."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.name for frame in frames], sum(frame.filename.startswith(TPK) for frame in frames)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.delenv("TPK_TRACEBACK", raising=False)


@pytest.mark.parametrize("way", [launch, train, train_with_defaults])
def test_an_error_of_tpk_shows_the_code_of_the_user(way, tmp_path):
    error = error_of(way, look_for_nothing, tmp_path)
    assert isinstance(error, tpk.UnknownScalarError)
    names, of_tpk = frames_of(error)
    assert names[0] == "error_of" and names[-2:] == ["trigger_step", "look_for_nothing"]
    assert of_tpk == 1, "the function that was called"
    assert error.__notes__ == ["in callback 'Calls', hook 'trigger_step'"]


@pytest.mark.parametrize("way", [launch, train, train_with_defaults])
def test_all_frames_are_in_the_log_and_on_request_in_the_traceback(way, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG, "tpk")
    error_of(way, look_for_nothing, tmp_path / "short")
    log = (tmp_path / "short" / "log.txt").read_text()
    assert "in trigger_step" in log and "in look_for_nothing" in log and f"{TPK}/monitors/history.py" in log
    monkeypatch.setenv("TPK_TRACEBACK", "1")
    names, of_tpk = frames_of(error_of(way, look_for_nothing, tmp_path / "whole"))
    assert {"trigger_step", "look_for_nothing", "run", "get_latest"} <= set(names)
    assert of_tpk > 5


def test_a_debugger_stands_in_the_code_of_the_user(tmp_path):
    frames = error_of(launch, look_for_nothing, tmp_path).__traceback__
    while frames.tb_next is not None:
        frames = frames.tb_next
    assert frames.tb_frame.f_locals["looked_for"] == "nothing"


def test_an_error_before_the_graph_is_built_shows_where_it_was_called(tmp_path):
    with pytest.raises(tpk.UnknownPluginError) as raised:
        tpk.launch_train_with_config(tpk.TrainConfig(model=Linear(), dataflow=[[1.0]]), "NoSuchTrainer")
    names, of_tpk = frames_of(raised.value)
    assert len(names) == 2 and of_tpk == 1


def fail_in_python(trainer):
    {}["no such key"]


def fail_in_tensorflow(trainer):
    trainer.sess.run("no_such_tensor:0")


@pytest.mark.parametrize("function", [fail_in_python, fail_in_tensorflow])
def test_another_error_keeps_all_its_frames(function, tmp_path):
    names, of_tpk = frames_of(error_of(launch, function, tmp_path))
    assert function.__name__ in names and of_tpk > 5


def test_causes_and_contexts_stay_with_the_frames_of_those_that_are_not_of_tpk(tmp_path):
    kept = {}

    def fail(trainer):
        try:
            try:
                kept["first"] = error = tpk.ConfigError("first")
                trainer.loop.stop.set_by_exception(error)
                raise error
            except tpk.ConfigError:
                look = {}
                look["no such key"]
        except KeyError as error:
            kept["second"] = error
            raise tpk.ConfigError("third") from error

    third = error_of(launch, fail, tmp_path)
    assert (third.args, third.__cause__, third.__suppress_context__) == (("third",), kept["second"], True)
    assert kept["second"].__context__ is kept["first"]
    shown = "".join(traceback.format_exception(third))
    assert shown.count("direct cause") == shown.count("During handling") == 1
    assert 'look["no such key"]' in shown


MODULE = """
import os, signal
import numpy as np
import tensorflow as tf
import tpk

class Model(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 2], tf.float32, "x")]

    def build_graph(self, x):
        return tf.reduce_mean(tpk.layers.dense(x, 1) ** 2, name="cost")

    def optimizer(self):
        return tf.compat.v1.train.GradientDescentOptimizer(0.1)

def data():
    return [[np.ones([3, 2], np.float32)]] * 4

class Refuses(tpk.Callback):
    def before_train(self, trainer):
        check_size()

def check_size():
    raise tpk.ConfigError("the size is too large")

class Looks(tpk.Callback):
    def trigger_step(self, trainer):
        trainer.monitors.get_latest("nothing")

class Interrupts(tpk.Callback):
    def trigger_step(self, trainer):
        os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.fixture
def run_command(tmp_path, monkeypatch, capsys):
    """Return a function that trains a run file with a callback by the command, and returns what it says."""
    (tmp_path / "module_of_tracebacks.py").write_text(MODULE)
    (tmp_path / "run.toml").write_text(
        'model = "module_of_tracebacks:Model"\ndataflow = "module_of_tracebacks:data"\nmonitors = []\nmax_epoch = 1\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(callback):
        status = main(["train", "run.toml", f'callbacks=["module_of_tracebacks:{callback}"]'])
        return status, capsys.readouterr().err

    yield run
    sys.modules.pop("module_of_tracebacks", None)


@pytest.mark.parametrize(
    ("callback", "lines", "last"),
    [
        ("Refuses", ["in before_train", "in check_size"], "tpk: the size is too large (in callback 'Refuses', hook"),
        ("Looks", ["in trigger_step"], "tpk.errors.UnknownScalarError: no scalar 'nothing'"),
    ],
)
def test_the_command_shows_the_code_of_the_user_above_the_message(run_command, callback, lines, last):
    status, said = run_command(callback)
    assert status == 1 and f"\n{last}" in said
    assert all(line in said for line in lines) and f'"{TPK}' not in said


def test_the_command_shows_all_frames_on_request(run_command, monkeypatch):
    monkeypatch.setenv("TPK_TRACEBACK", "1")
    with pytest.raises(tpk.ConfigError) as raised:
        run_command("Refuses")
    shown = "".join(traceback.format_exception(raised.value))
    assert "in check_size" in shown and f'"{TPK}/train/loop.py"' in shown
    status, said = run_command("Looks")
    assert status == 1 and "in trigger_step" in said and f'"{TPK}/train/loop.py"' in said


def test_the_command_says_once_how_to_go_on_after_ctrl_c(run_command):
    status, said = run_command("Interrupts")
    assert status == 130
    assert said.count("SIGINT ended the training in epoch 1") == 1
    assert said.startswith("tpk: SIGINT ended the training") and "Traceback" not in said


def test_ctrl_c_is_reported_once_by_a_script(tmp_path, capsys, caplog):
    caplog.set_level(logging.DEBUG, "tpk")
    error = error_of(launch, lambda trainer: os.kill(os.getpid(), signal.SIGINT), tmp_path)
    shown = capsys.readouterr().err + "".join(traceback.format_exception(error))
    assert shown.count("SIGINT ended the training in epoch 1") == 1
    assert "SIGINT ended the training in epoch 1" in (tmp_path / "log.txt").read_text()
