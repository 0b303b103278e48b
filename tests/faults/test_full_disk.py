"""A disk that is full for a while: a small file system, where it can be mounted, and a limit on the size of files."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading

import attrs
import pytest
from faulty_runs import assert_same_end, assert_same_values
from killed_training import LAST_STEP, Scenario, train

import tpk
from tpk.checkpoint.files import newest_complete

pytestmark = pytest.mark.once

SCENARIO = Scenario(every_k_steps=4, max_to_keep=2, width=600)
"""A checkpoint takes some 150 kB."""


@pytest.fixture
def small_disk(tmp_path):
    """A directory on a file system of 2 MB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(directory)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        pytest.skip("there is no `mount`")
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True, timeout=20)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The directory of a run that had all the space that it wanted."""
    run_dir = tmp_path_factory.mktemp("whole")
    train(run_dir, SCENARIO)
    return run_dir


class FullDisk(tpk.Callback):
    """Leaves no more than so many bytes free from one step on, until another."""

    def __init__(self, begin, end, left):
        self.begin, self.end, self.left = begin, end, left

    def trigger_step(self, trainer):
        filler = trainer.run_dir / "filler"
        if trainer.global_step == self.begin:
            trainer.checkpoints.newest()  # It waits for what is being written.
            with filler.open("wb", buffering=0) as file:
                usage = os.statvfs(trainer.run_dir)
                file.write(bytes(max(usage.f_bavail * usage.f_frsize - self.left, 0)))
        elif trainer.global_step == self.end:
            filler.unlink()


class LimitOfSize(tpk.Callback):
    """Lets no file become larger than so many bytes from one step on, until another."""

    def __init__(self, begin, end, size):
        self.begin, self.end, self.size = begin, end, size

    def trigger_step(self, trainer):
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        if trainer.global_step == self.begin:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, hard))
        elif trainer.global_step == self.end:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    def after_train(self, trainer):
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


PAGE = 4096


# So that it runs full at one file or the other: variables, index, state, pointer, statistics.
@pytest.mark.parametrize(
    ("asynchronous", "pages"),
    [(False, None), (False, -20), (False, 0), (False, 1), (False, 2), (False, 4), (True, None), (True, -20)],
)
def test_the_training_ends_and_goes_on_once_there_is_space(small_disk, whole, pages, asynchronous):
    run_dir, threads = small_disk / "run", set(threading.enumerate())
    scenario = attrs.evolve(SCENARIO, asynchronous=asynchronous)
    with pytest.raises(tpk.CheckpointError, match=rf"{run_dir}.*Free disk space: \d\.\d MB of 2\.1 MB"):
        train(run_dir, scenario, before=[FullDisk(13, 10**6, space_for(whole, pages))])
    # One of an earlier test may have ended since.
    assert set(threading.enumerate()) <= threads
    assert newest_complete(run_dir).step in (12, 16, 20)
    (run_dir / "filler").unlink()
    train(run_dir, scenario, resume="must")
    assert_same_end(whole, run_dir)


@pytest.mark.parametrize(("asynchronous", "pages"), [(False, None), (False, 0), (False, 2), (True, None), (True, 0)])
def test_the_training_goes_on_if_that_is_wanted(small_disk, whole, pages, asynchronous, caplog):
    scenario = attrs.evolve(SCENARIO, asynchronous=asynchronous, on_failure="warn")
    full = FullDisk(13, 29, space_for(whole, pages))
    train(small_disk / "run", scenario, before=[full])
    assert "The training continues" in caplog.text
    # But for the best ones of that time.
    assert_same_values(whole, small_disk / "run")
    assert newest_complete(small_disk / "run").step == LAST_STEP


def space_for(whole, pages):
    """Return the space for the variables of a checkpoint and so many pages more; none at all for None."""
    if pages is None:
        return 0
    (data,) = whole.glob(f"model-{LAST_STEP}.data-*")
    return (-(-data.stat().st_size // PAGE) + pages) * PAGE


@pytest.fixture
def no_limit():
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE)[1:] * 2)


@pytest.mark.parametrize("on_failure", ["raise", "warn"])
def test_a_limit_of_the_system_is_as_a_full_disk(tmp_path, whole, no_limit, on_failure, caplog):
    scenario, run_dir = attrs.evolve(SCENARIO, on_failure=on_failure), tmp_path / "run"
    limit = LimitOfSize(13, 29, 100_000)
    if on_failure == "warn":
        train(run_dir, scenario, before=[limit])
        assert "File too large" in caplog.text
        assert "The training continues" in caplog.text
    else:
        with pytest.raises(tpk.CheckpointError, match=rf"{run_dir}: .*File too large\. Free disk space: "):
            train(run_dir, scenario, before=[limit])
        assert newest_complete(run_dir).step == 12
        train(run_dir, scenario, resume="must")
    assert_same_values(whole, run_dir)


def test_a_preempted_training_says_that_its_checkpoint_could_not_be_written(small_disk, whole):
    class Preempt(tpk.Callback):
        def trigger_step(self, trainer):
            if trainer.global_step == 17:
                signal.raise_signal(signal.SIGTERM)

    run_dir, full = small_disk / "run", FullDisk(17, 10**6, 0)
    with pytest.raises(tpk.CheckpointError, match=r"step 17 .*No space left on device\. Free disk space: 0\.0 MB"):
        train(run_dir, SCENARIO, before=[full, Preempt()])
    assert newest_complete(run_dir).step == 16
    (run_dir / "filler").unlink()
    train(run_dir, SCENARIO, resume="must")
    assert_same_end(whole, run_dir)
