"""What the README shows works as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


NUMBER = re.compile(r"\d[\d,.]*\d|\d")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_model_of_your_own_trains_as_printed(tmp_path):
    code = blocks("python")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    subprocess.run([sys.executable, "-W", "error::FutureWarning", "-c", code], cwd=tmp_path, check=True, timeout=280)
    (run_dir,) = (tmp_path / "runs").glob("*/*")
    assert (run_dir / "model-160.index").exists()
    first, *_, last = (
        float(cost) for cost in re.findall(r'"cost": ([\d.e+-]+)', (run_dir / "stats.jsonl").read_text())
    )
    assert last < first / 50


def test_ci_runs_the_test_command_of_the_readme():
    commands = [line for block in blocks("bash") for line in block.splitlines()]
    assert "pip install nox uv && nox" in commands
    assert "pip install nox uv && nox" in (ROOT / ".ci" / "run").read_text().splitlines()


LINK = re.compile(r"\]\(((?!http)[^)#]+)(#[^)]*)?\)")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    links = [path for path, _ in LINK.findall((ROOT / page).read_text(encoding="utf-8"))]
    assert links
    assert [path for path in links if not (ROOT / path).exists()] == []


def test_figures_are_those_of_the_manual():
    (section,) = re.findall(r"## Figures\n\n(.*?)\n\n## ", README, re.DOTALL)
    measured = set(NUMBER.findall((ROOT / "docs" / "performance.md").read_text(encoding="utf-8")))
    assert len(NUMBER.findall(section)) > 10
    assert set(NUMBER.findall(section)) - measured == set()
