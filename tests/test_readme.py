"""What the README shows works as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_model_of_your_own_trains_as_printed(tmp_path):
    code = blocks("python")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    subprocess.run([sys.executable, "-W", "error::FutureWarning", "-c", code], cwd=tmp_path, check=True, timeout=110)
    (run_dir,) = (tmp_path / "runs").glob("*/*")
    assert (run_dir / "model-160.index").exists()
    first, *_, last = (
        float(cost) for cost in re.findall(r'"cost": ([\d.e+-]+)', (run_dir / "stats.jsonl").read_text())
    )
    assert last < first / 50


def test_the_callback_compiles_and_is_a_plugin():
    import tpk
    from tpk.plugin import HookManager

    namespace = {"tpk": tpk}
    (code,) = (code for code in blocks("python") if "StopWhenGood" in code)
    exec(code, namespace)
    assert HookManager().register_all([namespace["StopWhenGood"]()]) == ["StopWhenGood"]


def test_ci_runs_the_test_command_of_the_readme():
    commands = [line for block in blocks("bash") for line in block.splitlines()]
    assert "pip install nox uv && nox" in commands
    assert "pip install nox uv && nox" in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("path", re.findall(r"\]\(((?!http)[^)]+)\)", README))
def test_links_lead_somewhere(path):
    assert (ROOT / path).exists()
