from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import tensorflow as tf

import tpk
from tpk.cli.main import main
from tpk.cli.runs.board import link_runs
from tpk.cli.runs.run import find_runs


def write_run(directory, value):
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "stats.jsonl").write_text('{"epoch_num": 1, "global_step": 1, "time": 0, "cost": 1}\n')
    with tf.summary.create_file_writer(str(directory)).as_default():
        tf.summary.scalar("cost", value, step=1)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a", 1.0)
    write_run(tmp_path / "runs" / "deep" / "b", 2.0)
    return tmp_path


def test_runs_go_by_what_tells_them_apart(runs, tmp_path):
    write_run(runs / "runs" / "a" / "kept", 3.0)
    directory = tmp_path / "links"
    link_runs(find_runs([runs / "runs", runs / "runs" / "a" / "kept"]), directory)
    assert {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_symlink()} == {"a", "deep/b"}
    assert (directory / "deep" / "b").resolve() == runs / "runs" / "deep" / "b"


def test_tensorboard_shows_them_on_this_host_and_leaves_nothing_behind(runs, tmp_path):
    try:
        import tensorboard.default  # noqa: F401
    except ImportError as error:
        pytest.skip(f"TensorBoard cannot be imported: {error}")
    command = [sys.executable, "-c", "import sys; from tpk.cli.main import main; sys.exit(main())", "board", "runs"]
    places = {"TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [*command, "--port", "0"], stderr=subprocess.PIPE, text=True, env={**os.environ, **places}
    ) as process:
        try:
            lines = iter(process.stderr.readline, "")
            url = next(match[1] for match in map(re.compile(r".* at (http://localhost:\d+/)").match, lines) if match)
            names = []
            # It reads them in the background, and answers soon with what it has.
            while len(names) < 2:
                with urllib.request.urlopen(f"{url}data/runs", timeout=30) as answer:
                    names = json.load(answer)
            assert names == ["a", "deep/b"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
    assert not [path for path in (tmp_path / "tmp").iterdir() if path.name.startswith("tpk-board-")]


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("tensorboard", "pip install tensorboard"),
        ("pkg_resources", "pip install 'setuptools<81'"),
    ],
)
def test_without_tensorboard_the_error_says_what_to_install(runs, capsys, monkeypatch, missing, told):
    class Refusing:
        def find_spec(self, name, path=None, target=None):
            if name == "tensorboard":
                raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    for name in [each for each in sys.modules if each.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Refusing(), *sys.meta_path])
    assert main(["board", "runs"]) == 1
    error = capsys.readouterr().err
    assert error == f"tpk: tpk board needs TensorBoard (No module named {missing!r}): {told}\n"


def test_where_there_are_no_links_it_is_told(runs, capsys, monkeypatch):
    def refuse(link, path, target_is_directory):
        raise OSError("a privilege is not held")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(tpk.ConfigError, match=r"cannot be made a link: a privilege is not held. Start"):
        link_runs(find_runs([runs]), runs / "links")
