"""Documented features that fail in tensorpack 0.11 work here, and the README lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tensorflow as tf
from tpk_tensorflow1.runner.imports import compiled
from tpk_tensorpack.runner import PACKAGES

SCRIPT = Path(__file__).with_name("promises.py")
README = Path(__file__).parent.parent / "README.md"

# The functions of the script, compiled by the runner.
_script = {"__name__": "promises"}
exec(compiled(SCRIPT.read_bytes(), str(SCRIPT), PACKAGES), _script)


@pytest.mark.parametrize("promise", _script["PROMISES"])
def test_a_promise_is_kept(promise, log_dir, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(log_dir.parent))
    with tf.Graph().as_default():
        _script["PROMISES"][promise]()


def test_the_readme_lists_them():
    assert set(re.findall(r"^\|.*\| `(\w+)` \|$", README.read_text(), re.M)) == set(_script["PROMISES"])
