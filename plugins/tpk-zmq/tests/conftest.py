from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest


@pytest.fixture(autouse=True)
def home_of_the_key(tmp_path, monkeypatch):
    """Create the user's key in a temporary directory instead of the home directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(params=["tcp", "ipc"])
def address(request, tmp_path):
    from zmq_ends import FREE_PORT

    return FREE_PORT if request.param == "tcp" else f"ipc://{tmp_path}/socket"


@pytest.fixture
def threads():
    """Threads for senders, which must finish before the test ends."""
    with ThreadPoolExecutor(4) as pool:
        yield pool
