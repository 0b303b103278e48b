"""Scripts converted to tpk's own names: that they are whole, that little is left to do, and that they train."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tpk_tensorpack.port import ConversionError, convert

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


@pytest.fixture(scope="module")
def conversions():
    return {path.stem: convert(path.read_text(), str(path)) for path in SCRIPTS}


def test_every_script_is_converted_and_few_places_are_left_to_a_human(conversions):
    assert len(conversions) >= 24
    for conversion in conversions.values():
        imported = {
            name.partition(".")[0]
            for node in ast.walk(ast.parse(conversion.code))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        }
        assert "tensorpack" not in imported
    without_mark = [name for name, conversion in conversions.items() if "# tpk:" not in conversion.code]
    assert len(without_mark) >= 18, sorted(set(conversions) - set(without_mark))


def test_names_and_hooks_become_those_of_tpk_and_comments_stay():
    code = convert(
        "from tensorpack import *\n"
        "import tensorflow as tf\n"
        "\n"
        "# What counts the steps.\n"
        "class Count(Callback):\n"
        "    def _before_run(self, ctx):  # nothing to fetch\n"
        "        return None\n"
        "\n"
        "    def _trigger_epoch(self):\n"
        "        self.trainer.monitors.put_scalar('steps', self.global_step)\n"
        "\n"
        "x = tf.placeholder(tf.float32, [None, 3])\n"
        "y = tf.layers.dense(x, 2)\n",
        "script.py",
    ).code
    for line in (
        "# What counts the steps.",
        "class Count(tpk.Callback):",
        "def before_run(self, run_context):  # nothing to fetch",
        "def trigger_epoch(self):",
        "x = tf.compat.v1.placeholder(tf.float32, [None, 3])",
        "y = tpk.layers.dense(x, 2)",
    ):
        assert line in code, code


def test_a_script_that_does_not_parse_is_told():
    with pytest.raises(ConversionError, match=r"script\.py"):
        convert("from tensorpack import *\ndef broken(:\n", "script.py")


def test_without_libcst_an_error_names_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("libcst", "tpk_tensorpack.port."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "libcst", None)
    with pytest.raises(ImportError, match=r"tpk-tensorpack\[port\]"):
        convert("import tensorpack\n", "script.py")


def test_converted_scripts_train_as_plain_python(tmp_path):
    run = tmp_path / "run.py"
    run.write_text(
        "import os, runpy, sys\n"
        "import tensorflow as tf\n"
        "for path in sys.argv[1:]:\n"
        "    tf.compat.v1.reset_default_graph()\n"
        "    sys.argv[:] = [path]\n"
        "    runpy.run_path(path, run_name='__main__')\n"
    )
    for name in ("digits", "gan"):
        (path,) = (path for path in SCRIPTS if path.stem == name)
        (tmp_path / f"{name}.py").write_text(convert(path.read_text(), str(path)).code)
    done = subprocess.run(
        [sys.executable, run.name, "digits.py", "gan.py"],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (tmp_path / "train_log/digits/stats.jsonl").read_text().splitlines()
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    assert last["total_cost"] < first["total_cost"]
    assert (tmp_path / "train_log/gan").is_dir()
