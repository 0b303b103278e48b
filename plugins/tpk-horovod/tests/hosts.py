"""Start processes that train together, and clean up after them."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

from tpk_distributed.launch.tasks import reserved_cluster

HERE = Path(__file__).parent


class Processes:
    """Processes on this host that run a function of `trainings`, with output files for each.

    Args:
        directory: the directory for the output files and working directories.
    """

    def __init__(self, directory):
        self.directory = directory
        self.running = []
        self.all = []
        self._ports = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def start(self, function, *arguments, count=2, ranks=None, env=None):
        """Start `count` processes, or only some `ranks`, with a cluster in TF_CONFIG."""
        self.running.clear()
        # Reserve the ports during the seconds that the processes take to import TensorFlow.
        addresses = self._ports.enter_context(reserved_cluster(count)).workers
        for rank in range(count) if ranks is None else ranks:
            cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
            self.command(
                [sys.executable, HERE / "trainings.py", function, self.path(rank, "result"), *map(str, arguments)],
                rank,
                {"TF_CONFIG": json.dumps(cluster), "RANK": str(rank), **(env or {})},
            )
        return self

    def command(self, command, rank, env):
        """Start one process."""
        directory = self.directory / f"rank{rank}"
        directory.mkdir(exist_ok=True)
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONUNBUFFERED": "1"}
        with self.path(rank, "log").open("wb") as log:
            process = subprocess.Popen(
                [os.fspath(each) for each in command],
                env={**os.environ, **quiet, **env},
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.append(process)
        self.all.append(process)

    def path(self, rank, what):
        return self.directory / f"{what}{rank}"

    def log(self, rank):
        return self.path(rank, "log").read_text(errors="replace")

    def wait(self, rank, timeout=300):
        """Wait for a process to end; return its exit status."""
        return self.running[rank].wait(timeout)

    def results(self, timeout=300):
        """Wait for all processes; return the results of their functions."""
        deadline = time.monotonic() + timeout
        statuses = [process.wait(max(deadline - time.monotonic(), 0.1)) for process in self.running]
        assert not any(statuses), "\n".join(
            f"--- rank {rank}: {status}\n{self.log(rank)[-5000:]}" for rank, status in enumerate(statuses)
        )
        return [pickle.loads(self.path(rank, "result").read_bytes()) for rank in range(len(statuses))]

    def close(self):
        """Kill all processes and their children."""
        for process in self.all:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdin.close()
        self._ports.close()
