from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=["tcp", "ipc"])
def address(request, tmp_path):
    from zmq_ends import FREE_PORT

    return FREE_PORT if request.param == "tcp" else f"ipc://{tmp_path}/socket"


@pytest.fixture
def threads():
    """Runs senders; when a test is over they must be, too."""
    with ThreadPoolExecutor(4) as pool:
        yield pool
