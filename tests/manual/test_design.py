"""What the pages on the design say is so: figures were measured, files and sessions of nox are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEASURED = ("docs/performance.md", "tests/benchmarks/README.md", "CHANGELOG.md", "src/tpk/plugin/step.py")
NUMBER = re.compile(r"\d[\d,.]*\d|\d")


def numbers_in(path):
    return set(NUMBER.findall((ROOT / path).read_text(encoding="utf-8")))


def test_the_figures_of_a_decision_are_those_that_were_measured():
    figures = numbers_in("docs/design/decisions.md")
    assert len(figures) > 20
    assert figures - set().union(*map(numbers_in, MEASURED)) == set()


def test_a_benchmark_that_the_manual_names_is_there():
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    named = re.findall(r"`(?:python )?(?:tests/benchmarks/)?(\w+\.py)`", text)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / "tests" / "benchmarks" / name).exists()] == []


@pytest.mark.parametrize(
    "page",
    [
        "CONTRIBUTING.md",
        *(
            f"docs/{name}.md"
            for name in ("design/index", "design/walks", "design/datapoint", "design/decisions", "plugins/packages")
        ),
    ],
)
def test_files_that_a_page_names_are_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {name for name in re.findall(r"[`\s]([\w-]+/[\w./-]*)", text) if name.endswith((".py", ".md", "/"))}
    roots = (ROOT, ROOT / "src" / "tpk", *ROOT.glob("plugins/*/src"))
    assert {name for name in named if not any((root / name).exists() for root in roots)} - {"site/"} == set()
    assert page != "CONTRIBUTING.md" or len(named) > 8


def test_every_session_of_nox_is_told_of():
    sessions = re.findall(
        r"^@nox\.session.*\ndef (\w+)", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(sessions) > 8
    assert [name for name in sessions if f"`{name}`" not in table] == []
