from __future__ import annotations

import os
import signal
from pathlib import Path

TESTS = Path(__file__).parent

# Tests want TensorFlow's errors, not its greetings. It reads these when it is first imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# A shell ignores SIGINT in what it starts in the background, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


WAITING = ("processes", "faults")
"""Folders whose tests mostly wait for other processes."""


def pytest_collection_modifyitems(items):
    """Spread the files that wait among those that compute, so that workers that run side by side do both."""
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [path for path in files if path.is_relative_to(TESTS) and path.relative_to(TESTS).parts[0] in WAITING]
    computing = [path for path in files if path not in waiting]
    every = max(len(computing) // (len(waiting) or 1), 1)
    ordered = []
    while computing or waiting:
        ordered += waiting[:1] + computing[:every]
        waiting, computing = waiting[1:], computing[every:]
    items[:] = [item for path in ordered for item in files[path]]
