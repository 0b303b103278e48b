from __future__ import annotations

import functools
import logging
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS / "interpreter"))

pytest_plugins = ["case_selection"]

# Tests want TensorFlow's errors, not its greetings. It reads these when it is first imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

GPUS = int(os.environ.get("TPK_TEST_GPU") or 0)
"""Into how many logical GPUs the tests split the first one of this host, 1 to leave it whole; 0 hides all of them."""

if GPUS:
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    # Many processes share it.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    # Results are compared with those of NumPy and of other kernels, which have the 23 bits of float32: TensorFloat-32
    # has 10.
    os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")
else:
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# A shell ignores SIGINT in what it starts in the background, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

IN_TF1 = os.environ.get("TPK_TEST_TF1", "0") not in ("", "0")
"""Whether the tests run under `tf.compat.v1.disable_v2_behavior()`, as the scripts of TensorFlow 1 do."""

if IN_TF1:
    import tensorflow

    tensorflow.compat.v1.disable_v2_behavior()


# How long an example takes, and how long one is drawn, depends on what else the machine does.
# CI draws the same examples each time, so that no change fails on what another one broke; developers draw new ones.
settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=50,
    derandomize="CI" in os.environ,
)
settings.load_profile("unhurried")


def pytest_configure(config):
    config.addinivalue_line("markers", "tf2_only(reason): not run in TF1 behaviour")
    config.addinivalue_line(
        "markers", "once: depends on neither TensorFlow nor Python, or is slow; run on the newest only"
    )
    if GPUS:
        import tensorflow

        split_gpu(tensorflow.config)
        take_cpus_where_gpus_are_too_few(tensorflow.config)


def split_gpu(config):
    """Split the GPU, if that is asked for: into parts of 2 GB, as many processes have such parts."""
    gpus = config.list_physical_devices("GPU")
    if not gpus:
        raise pytest.UsageError(f"TPK_TEST_GPU={GPUS}: TensorFlow sees no GPU; `tpk doctor` says why.")
    if GPUS > 1:
        config.set_logical_device_configuration(gpus[0], [config.LogicalDeviceConfiguration(memory_limit=2048)] * GPUS)


def take_cpus_where_gpus_are_too_few(config):
    """Have a count or indices of devices that ask for more GPUs than there are mean logical devices of the CPU.

    That is what they mean where there is no GPU. Outside of tests it is an error: nobody wants a training on CPUs who
    asks for two of the GPUs of a host which has one.
    """
    from tpk.graph import devices as module

    existing, resolve_devices = len(module.physical_of_logical_gpus()), module.resolve_devices
    list_physical_devices = config.list_physical_devices

    @functools.wraps(resolve_devices)
    def resolve_all(devices):
        wanted = range(devices) if type(devices) is int else devices
        is_pretended = config.list_physical_devices is not list_physical_devices
        if is_pretended or not isinstance(wanted, list | tuple | range):
            return resolve_devices(devices)
        if not any(type(each) is int and each >= existing for each in wanted):
            return resolve_devices(devices)
        return resolve_devices([f"/cpu:{each}" if type(each) is int else each for each in wanted])

    module.resolve_devices = resolve_all


def pytest_runtest_setup(item):
    marker = item.get_closest_marker("tf2_only")
    if IN_TF1 and marker is not None:
        pytest.skip(*marker.args)


@pytest.fixture(autouse=IN_TF1)
def graph_of_a_script(monkeypatch):
    """Without eager mode there is one graph for all: each trainer gets a new one, as in a script of its own."""
    from tpk.train.trainer import Trainer

    def new_graph():
        tensorflow.compat.v1.reset_default_graph()
        return tensorflow.compat.v1.get_default_graph()

    graph, init = new_graph(), Trainer.__init__

    @functools.wraps(init)
    def init_in_new_graph(self, *args, **options):
        nonlocal graph
        if graph.collections and tensorflow.compat.v1.get_default_graph() is graph:
            graph = new_graph()
        init(self, *args, **options)

    monkeypatch.setattr(Trainer, "__init__", init_in_new_graph)


@pytest.fixture
def resource_variables():
    """Variables are resources, as they are by default but in TF1 behaviour: what a test says holds for these alone."""
    from tensorflow.compat import v1

    v1.enable_resource_variables()
    yield
    if IN_TF1:
        v1.disable_resource_variables()


@pytest.fixture
def pretend_gpus(monkeypatch):
    """Let TensorFlow say that the host has so many GPUs, each split as it is told: into parts with that many MB.

    No session can be created with them.
    """
    import tensorflow as tf

    def pretend(count, **parts):
        gpus = [tf.config.PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in range(count)]
        split = {
            gpu: [tf.config.LogicalDeviceConfiguration(memory_limit=limit) for limit in parts[f"gpu{index}"]]
            for index, gpu in enumerate(gpus)
            if f"gpu{index}" in parts
        }
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: gpus if kind == "GPU" else [])
        monkeypatch.setattr(tf.config, "get_logical_device_configuration", split.get)

    return pretend


@pytest.fixture
def when_logged():
    """Call a function whenever a message of the log has a text in it, after `caplog` has the message."""
    root, handlers = logging.getLogger(), []

    class Handler(logging.Handler):
        def __init__(self, text, call):
            super().__init__()
            self.text, self.call = text, call

        def emit(self, record):
            if self.text in record.getMessage():
                self.call()

    def add(text, call):
        handlers.append(Handler(text, call))
        root.addHandler(handlers[-1])

    yield add
    for handler in handlers:
        root.removeHandler(handler)


WAITING = {"faults", "tpk-distributed"}
"""Folders whose tests mostly wait for other processes."""


def pytest_collection_modifyitems(items):
    alternate(items)


def alternate(items):
    """Spread the files that wait among the first half of those that compute, so that workers side by side do both.

    Those with many tests come first: a worker that began with one of them, or with one that waits, as the last would be
    waited for.
    """
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    by_size = sorted(files, key=lambda path: len(files[path]), reverse=True)
    waiting = [path for path in by_size if not WAITING.isdisjoint(path.parts)]
    computing = [path for path in by_size if path not in waiting]
    every = max(len(computing) // (2 * len(waiting) or 1), 1)
    ordered = []
    while computing or waiting:
        ordered += waiting[:1] + computing[:every]
        waiting, computing = waiting[1:], computing[every:]
    items[:] = [item for path in ordered for item in files[path]]
