from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def home_of_the_key(tmp_path, monkeypatch):
    """Where the key of the user is made: not in the home of whoever tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
