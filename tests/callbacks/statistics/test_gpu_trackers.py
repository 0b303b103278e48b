"""The trackers of GPUs, on the real pynvml: without a driver, and with a library in place of the driver's."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import threading

import pynvml
import pytest

import tpk
from tpk.callbacks.statistics.trackers import allocator_peaks
from tpk.errors import ConfigError, PluginImportError

TRACKERS = ["GPUUtilizationTracker", "GPUMemoryTracker"]

# Two GPUs, which are busier and fuller each time that they are asked; `broken` makes the asking fail.
LIBRARY = """
#include <stdio.h>
static int opened = 0, utilization[2], memory[2];
int broken = 0;
int fake_opened(void) { return opened; }
int fake_asked(void) { return utilization[1]; }
int nvmlInitWithFlags(unsigned flags) { opened++; return 0; }
int nvmlShutdown(void) { opened--; return 0; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "Unknown Error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(long)(index + 1); return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    snprintf(text, length, "GPU-%ldabc-0000", (long)device);
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
    if (broken) return 15;
    long index = (long)device - 1;
    rates[0] = 10 * ++utilization[index] + 50 * index;
    rates[1] = 0;
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *info) {
    if (broken) return 15;
    long index = (long)device - 1;
    info[0] = 80ull << 30;
    info[2] = (unsigned long long)(++memory[index] + 8 * index) << 30;
    info[1] = info[0] - info[2];
    return 0;
}
"""


@pytest.fixture(scope="module")
def shared_object(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", folder / "nvml.c"], check=True)
    return folder / "libnvidia-ml.so.1"


@pytest.fixture
def library(shared_object, tmp_path, monkeypatch):
    """NVIDIA's library, as pynvml finds it loaded; a copy, so that each test has one that counts from 0."""
    copy = shutil.copy(shared_object, tmp_path / "libnvidia-ml.so.1")
    loaded = ctypes.CDLL(str(copy))
    monkeypatch.setattr(pynvml, "nvmlLib", loaded)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return loaded


def reported(trainer):
    """Return what the trackers report about the fake library, without TensorFlow's reports about real GPUs."""
    history = trainer.history.items()
    return {name: [*map(float, values)] for name, values in history if not name.startswith("gpu_tensors_gb")}


def warnings(caplog):
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


def test_utilization_is_mean_and_peak_of_the_epoch(run_steps, library):
    trainer = run_steps([tpk.GPUUtilizationTracker(interval=0.001), AwaitSamples(library)], 2, epochs=2)
    found = reported(trainer)
    # GPU 0 reports 10, 20, 30, …, so the peaks say which samples were taken in an epoch.
    first, second = found["gpu_utilization_peak/0"]
    assert 40 <= first <= second - 40
    assert found["gpu_utilization/0"] == [(10 + first) / 2, (first + 10 + second) / 2]
    for name in ("gpu_utilization", "gpu_utilization_peak"):
        assert found[f"{name}/1"] == [value + 50 for value in found[f"{name}/0"]]
    assert library.fake_opened() == 0


class AwaitSamples(tpk.Callback):
    """Waits in each step until the thread of a tracker has asked for the utilization twice."""

    def __init__(self, library):
        self.library = library

    def trigger_step(self, trainer):
        before = self.library.fake_asked()
        while self.library.fake_asked() < before + 2:
            threading.Event().wait(0.001)


def test_memory_is_the_most_of_the_epoch(run_steps, library):
    trainer = run_steps(tpk.GPUMemoryTracker(interval=3600), 1, epochs=2)
    assert reported(trainer) == {"gpu_memory_gb/0": [1, 2], "gpu_memory_gb/1": [9, 10]}


@pytest.mark.parametrize(
    ("setting", "tracked"),
    [("1", [1]), ("1,0", [1, 0]), ("0,7,1", [0]), ("GPU-2abc", [1]), (" 0 , 1", [0, 1])],
)
def test_the_gpus_are_those_that_cuda_shows_to_the_process(run_steps, library, monkeypatch, setting, tracked):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    trainer = run_steps(tpk.GPUMemoryTracker(interval=3600), 1)
    assert [*reported(trainer)] == [f"gpu_memory_gb/{index}" for index in tracked]


def test_gpus_can_be_given(run_steps, library, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    trainer = run_steps(tpk.GPUMemoryTracker(devices=[1], interval=3600), 1)
    assert [*reported(trainer)] == ["gpu_memory_gb/1"]


def test_a_gpu_that_is_not_there_is_an_error_if_it_was_given(run_steps, library):
    with pytest.raises(
        ConfigError, match=r"GPUMemoryTracker\(devices=\[0, 5\]\): NVML has 2 GPUs, numbered from 0, and lacks 5"
    ):
        run_steps(tpk.GPUMemoryTracker(devices=[0, 5]), 1)
    assert library.fake_opened() == 0


def test_where_cuda_shows_none_that_is_a_warning(run_steps, library, monkeypatch, caplog):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert not reported(run_steps("GPUMemoryTracker", 1))
    assert warnings(caplog) == [
        "GPUMemoryTracker reports nothing: CUDA_VISIBLE_DEVICES='-1' hides all 2 GPUs. The training continues "
        "without it."
    ]


def test_a_gpu_that_is_lost_ends_the_measuring_and_not_the_training(run_steps, library, caplog):
    ctypes.c_int.in_dll(library, "broken").value = 1
    trainer = run_steps(tpk.GPUUtilizationTracker(interval=3600), 2, epochs=2)
    assert trainer.global_step == 4 and not reported(trainer)
    (warning,) = warnings(caplog)
    assert "GPU is lost" in warning
    assert library.fake_opened() == 0


@pytest.fixture
def no_driver():
    """The library of the driver is not on this host, or skip."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return
    pynvml.nvmlShutdown()
    pytest.skip("there is a driver")


@pytest.mark.parametrize("name", TRACKERS)
def test_without_a_driver_a_warning_says_so_and_the_training_goes_on(run_steps, no_driver, caplog, name):
    trainer = run_steps(name, 2, epochs=2)
    assert trainer.global_step == 4 and not reported(trainer)
    assert warnings(caplog) == [
        f"{name} reports nothing: NVML finds no GPU (NVML Shared Library Not Found). The training continues without it."
    ]


@pytest.mark.parametrize("name", TRACKERS)
def test_without_a_driver_gpus_that_were_given_are_an_error(run_steps, no_driver, name):
    with pytest.raises(ConfigError, match=rf"{name}\(devices=\[0\]\): NVML finds no GPU.*leave devices out"):
        run_steps(tpk.use(name, devices=[0]), 1)


@pytest.mark.parametrize("name", TRACKERS)
def test_without_the_package_an_error_says_what_to_install(run_steps, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(PluginImportError, match=f"{name} needs pynvml.*pip install nvidia-ml-py"):
        run_steps(name, 1)


def test_a_device_whose_allocator_does_not_count_is_left_out():
    assert allocator_peaks(["/job:localhost/replica:0/task:0/device:CPU:0"]) == {}
