"""`InjectShell`, with a terminal of the system for standard input."""

from __future__ import annotations

import logging
import os
import pty
import signal
import subprocess
import sys

import pytest

import tpk
from tpk.errors import ConfigError, PluginImportError


@pytest.fixture
def terminal(monkeypatch):
    """Return a function by which somebody types into standard input, which is a terminal."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield lambda text: os.write(ours, text.encode())
    os.close(ours)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "INJECT_SHELL.tmp"


def records(caplog, level=logging.WARNING):
    return [each.getMessage() for each in caplog.records if each.levelno == level]


class TouchAt(tpk.Callback):
    """Somebody asks for a shell in the middle of a training."""

    def __init__(self, file, step):
        self.file, self.step = file, step

    def trigger_step(self, trainer):
        if trainer.global_step == self.step:
            self.file.touch()


def test_a_file_opens_pdb_in_the_training_once(run_steps, file, terminal, capsys):
    terminal("p 'at', trainer.global_step, sess.graph is graph, monitors is trainer.monitors\nc\n")
    trainer = run_steps([tpk.InjectShell(file, "pdb"), TouchAt(file, 4)], 3, epochs=3)
    assert trainer.global_step == 9
    assert capsys.readouterr().out.count("('at', 6, True, True)") == 1
    assert not file.exists()


def test_what_is_done_in_it_is_done_in_the_training(run_steps, file, terminal, capsys):
    terminal("trainer.request_stop('seen enough')\nc\n")
    shell = tpk.InjectShell(file, "pdb", when=tpk.Every(steps=2))
    assert run_steps([shell, TouchAt(file, 3)], 10).global_step == 4


def test_q_in_pdb_ends_the_training_in_good_order(run_steps, file, terminal, capsys, hook_recorder):
    recorder = hook_recorder()
    terminal("q\n")
    trainer = run_steps([tpk.InjectShell(file, "pdb"), TouchAt(file, 1), recorder], 2, epochs=3)
    assert trainer.epoch_num == 1 and trainer.loop.failure is None
    assert str(trainer.loop.ended_by) == "the shell was left by q"
    assert recorder.hooks[-1] == "after_train"


def test_ctrl_c_in_the_shell_is_not_for_the_training(run_steps, file, terminal, capsys):
    terminal("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\np 'still', 'here'\nc\n")
    before = signal.getsignal(signal.SIGINT)
    trainer = run_steps([tpk.InjectShell(file, "pdb"), TouchAt(file, 1)], 2, epochs=2)
    assert trainer.global_step == 4
    assert "('still', 'here')" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGINT) == before


IN_IPYTHON = """
import sys
from types import SimpleNamespace
from tpk.callbacks.debugging import InjectShell

shell = InjectShell(sys.argv[1], "ipython")
loop = SimpleNamespace(progress="epoch 3, step 2")
shell.trainer = SimpleNamespace(loop=loop, sess="the session", graph="the graph", monitors="some")
shell.trigger(shell.trainer)
print("went on:", shell.trainer.sess)
"""


def test_ipython_opens_and_what_is_done_in_it_stays(file, tmp_path, terminal):
    """In its own process, since IPython changes much of one; and without a training, which this is not about."""
    pytest.importorskip("IPython")
    file.touch()
    terminal("print('at', trainer.loop.progress, sess, graph, monitors)\ntrainer.sess = 'changed'\nexit\n")
    result = subprocess.run(
        [sys.executable, "-c", IN_IPYTHON, str(file)],
        stdin=sys.stdin,
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython"), "IPY_TEST_SIMPLE_PROMPT": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert result.returncode == 0, result.stderr
    assert "at epoch 3, step 2 the session the graph some" in result.stdout
    assert "went on: changed" in result.stdout
    assert not file.exists()


def test_without_a_terminal_there_is_a_line_in_the_log_and_no_hang(run_steps, file, monkeypatch, caplog):
    with open(os.devnull) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        trainer = run_steps([tpk.InjectShell(file), TouchAt(file, 1)], 2, epochs=3)
    assert trainer.global_step == 6
    assert records(caplog) == ["no shell is opened, because standard input is not a terminal"]
    assert not file.exists()


def test_the_log_says_how_to_open_it(run_steps, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.chdir(tmp_path)
    run_steps("InjectShell", 1)
    assert f"to open a shell in this training: touch {tmp_path}/INJECT_SHELL.tmp" in records(caplog, logging.INFO)


def test_ipython_that_is_wanted_and_not_installed_is_an_error(run_steps, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.delitem(sys.modules, "IPython")
    monkeypatch.setattr(sys, "path", [each for each in sys.path if "site-packages" not in each])
    with pytest.raises(PluginImportError, match=r"InjectShell\(shell='ipython'\) needs IPython.* shell='pdb'"):
        run_steps(tpk.InjectShell(shell="ipython"), 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shell": "bash"}, "shell must be one of None, 'ipython', 'pdb', not 'bash'"),
        ({"when": 5}, r"InjectShell\(when=5\): expected a tpk.Every"),
    ],
)
def test_options_that_make_no_sense_are_errors(options, message):
    with pytest.raises(ConfigError, match=message):
        tpk.InjectShell(**options)
