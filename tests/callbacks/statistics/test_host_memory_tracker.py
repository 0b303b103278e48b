from __future__ import annotations

import subprocess
import sys
import threading

import psutil
import pytest

import tpk
from tpk.callbacks.statistics.trackers import SampledStatistics
from tpk.errors import ConfigError, PluginImportError

GB = 2**30


class Counter(SampledStatistics):
    """Measures how often it has measured; a step waits for some samples."""

    def __init__(self, interval=0.001, fail_at=None):
        super().__init__(interval)
        self.count, self.fail_at, self.threads, self.seen = 0, fail_at, set(), threading.Semaphore(0)

    def sample(self):
        self.count += 1
        self.threads.add(threading.current_thread().name)
        self.seen.release()
        if self.count == self.fail_at:
            raise OSError("the sensor is gone")
        return {"count": self.count}

    def statistics(self, samples):
        return {"first": samples["count"][0], "last": samples["count"][-1], "taken": len(samples["count"])}


class WaitFor(tpk.Callback):
    def __init__(self, counter, samples):
        self.counter, self.samples = counter, samples

    def trigger_step(self, trainer):
        wanted = self.counter.count + self.samples
        while self.counter.count < wanted:
            assert self.counter.seen.acquire(timeout=60)


def threads_of(name):
    return [each for each in threading.enumerate() if each.name == f"tpk-{name}"]


def test_a_thread_measures_while_steps_run_and_each_epoch_has_its_own_samples(run_steps):
    counter = Counter()
    history = run_steps([counter, WaitFor(counter, 5)], 2, epochs=2).history
    assert counter.threads == {"tpk-Counter", "MainThread"}
    assert history["first"][0] == 1
    assert history["first"][1] == history["last"][0] + 1
    assert min(history["taken"]) >= 10
    assert not threads_of("Counter")


def test_an_epoch_that_is_shorter_than_the_interval_has_one_sample(run_steps):
    history = run_steps(Counter(interval=3600), 2, epochs=2).history
    assert [*history["first"]] == [*history["last"]] == [1, 2]


def test_it_implements_no_hook_of_the_step():
    hooks = tpk.HostMemoryTracker().hook_implementations()
    assert not hooks.keys() & {"before_run", "after_run", "trigger_step"}


def test_a_failure_is_a_warning_once_and_ends_only_the_measuring(run_steps, caplog):
    counter = Counter(interval=3600, fail_at=2)
    trainer = run_steps(counter, 1, epochs=4)
    assert trainer.global_step == 4
    assert counter.count == 2 and len(trainer.history["last"]) == 1
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warnings == ["Counter reports nothing: a measurement failed (OSError: the sensor is gone)"]


def test_no_thread_is_left_by_a_training_that_fails_within_an_epoch(run_steps):
    class Failing(tpk.Callback):
        def trigger_step(self, trainer):
            assert threads_of("Counter")
            raise RuntimeError("step")

    with pytest.raises(RuntimeError, match="step"):
        run_steps([Counter(), Failing()], 2)
    assert not threads_of("Counter")


@pytest.mark.parametrize("interval", [0, -1.0, float("nan")])
def test_an_interval_that_makes_no_sense_is_an_error(interval):
    with pytest.raises(ConfigError, match="HostMemoryTracker: interval must be positive"):
        tpk.HostMemoryTracker(interval)


def test_the_memory_is_that_of_this_process_and_of_what_it_has_started(run_steps):
    size = 200 * 2**20
    child = subprocess.Popen(
        [sys.executable, "-c", f"a = bytearray(b'1') * {size}; print('ready', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout.readline() == b"ready\n"
        own = psutil.Process().memory_info().rss
        history = run_steps("HostMemoryTracker", 1, epochs=2).history
    finally:
        child.communicate(b"\n")
    assert len(history["host_memory_gb"]) == 2
    assert history["host_memory_gb"][0] > (own * 0.8 + size) / GB
    assert 0 < history["host_memory_free_gb"][0] < psutil.virtual_memory().total / GB


def test_without_psutil_an_error_says_what_to_install(run_steps, monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(PluginImportError, match=r"HostMemoryTracker needs psutil.*pip install psutil"):
        run_steps("HostMemoryTracker", 1)
