from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# Show only TensorFlow's errors. TensorFlow reads these variables when it is first imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# A shell ignores SIGINT in what it starts in the background, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("unhurried", deadline=None, max_examples=50, derandomize="CI" in os.environ)
settings.load_profile("unhurried")


def pytest_configure(config):
    config.addinivalue_line("markers", "once: slow, or independent of the versions; run on the newest only")


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
