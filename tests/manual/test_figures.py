"""No figure stands in the manual that was not measured: each is where a benchmark's results are kept."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEASURED = ("docs/performance.md", "tests/benchmarks/README.md", "CHANGELOG.md", "src/tpk/plugin/dispatch.py")
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
