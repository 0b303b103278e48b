from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest


@pytest.fixture(autouse=True)
def home_of_the_key(tmp_path, monkeypatch):
    """Create the user's key here instead of in the home directory."""
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
