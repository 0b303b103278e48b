"""The language model of characters, in a short form: it learns, and writes, on one device and on two."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

EXAMPLE = Path(__file__).parents[2] / "examples" / "char_language_model.py"


@pytest.mark.tf2_only("drops in a loop, which needs the control flow of TensorFlow 2")
@pytest.mark.parametrize("options", ["", "--strategy replicated --devices 2"], ids=["single", "replicated"])
def test_it_learns_and_writes(options, tmp_path, monkeypatch):
    text, run_dir = tmp_path / "text.txt", tmp_path / "run"
    text.write_text("all work and no play makes jack a dull boy. " * 100, encoding="utf-8")
    short = "--units 24 --depth 1 --max-epoch 2 --steps-per-epoch 20 --keep-prob 0.9"
    arguments = [*options.split(), *short.split(), "--text", str(text), "--run-dir", str(run_dir)]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")

    statistics = [json.loads(line) for line in (run_dir / "stats.jsonl").read_text(encoding="utf-8").splitlines()]
    bits = [line["validation_bits"] for line in statistics if "validation_bits" in line]
    # Seven bits are those of characters of which nothing is known.
    assert len(bits) == 2 and bits[1] < 5 < bits[0] < 6.5
    samples = [(run_dir / f"sample-00{epoch}.txt").read_bytes() for epoch in (1, 2)]
    assert [len(sample) for sample in samples] == [200, 200]
    assert samples[0] != samples[1]
    assert (run_dir / "checkpoint").exists()
