from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def zygote():
    """What forks the processes of tests."""
    if sys.platform != "linux":
        pytest.skip("needs fork and pidfd")
    from launching import started_zygote

    with started_zygote() as it:
        yield it


@pytest.fixture
def launch(zygote, tmp_path):
    """A function that starts processes which train together; `launching.py` tells all about it."""
    from launching import Launcher

    launcher = Launcher(zygote, tmp_path)
    yield launcher
    launcher.close()


@pytest.fixture
def network(request):
    """As many hosts as the test asks for, or a test that is skipped where none can be made."""
    import networks

    with contextlib.ExitStack() as held:
        try:
            made = held.enter_context(networks.network(request.param))
        except OSError as error:
            pytest.skip(f"needs iproute2, and the right to make network namespaces: {error}")
        yield made
