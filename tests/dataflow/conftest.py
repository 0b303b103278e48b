from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# How long an example takes depends on what else the machine does.
settings.register_profile("unhurried", deadline=None, max_examples=50)
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def home_of_the_key(tmp_path, monkeypatch):
    """Where the key of the user is made: not in the home of whoever tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(params=["tcp", "ipc"])
def address(request, tmp_path):
    from zmq_ends import FREE_PORT

    return FREE_PORT if request.param == "tcp" else f"ipc://{tmp_path}/socket"


@pytest.fixture
def threads():
    """Runs senders; when a test is over they must be, too."""
    with ThreadPoolExecutor(4) as pool:
        yield pool
