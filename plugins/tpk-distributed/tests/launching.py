"""Processes that train together, started by a test, watched and killed by it, and none of them left behind.

The fixture `launch` starts them and returns a `Launched`::

    def test_the_sum_is_that_of_all(launch):
        def train(step_count):  # runs in each process, with a TF_CONFIG of its own; pickled by value
            print("begins")
            return {"sum": ...}  # whatever can be pickled

        returned = launch(train, workers=2, args=(20,)).returned()  # fails with all output unless all ended well
        assert returned[0] == returned[1]


    def test_the_others_notice(launch):
        running = launch(train, workers=2, servers=1)
        running.workers[1].wait_for("step 5")  # on its stdout or stderr
        running.workers[1].send(signal.SIGKILL)  # or SIGSTOP, and SIGCONT later
        first, second = running.wait()  # of the workers; what still runs at `timeout` is killed, and fails the test
        assert first.status == 1 and "PeerError" in first.stderr and second.status == -signal.SIGKILL

In place of a function, the text of a script can be given; the value that it leaves in the variable ``returned``
counts as returned. `start=[0]` starts only some workers, and `running.workers[1].start()` another one later.
`running.workers[0].tell("go")` writes a line to a process' stdin, for which it waits with ``input()``: with `wait_for`
and `tell`, a test brings processes to a known moment without sleeping.

A zygote (`forker.py`) forks the processes, so that they need not import TensorFlow: one that does nothing takes some
milliseconds. Each leads a session of its own; at the end of a test, processes that it did not wait for, or that one of
those has left behind, are killed, and fail the test.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
from forked import Outcome, Process, Zygote
from tpk_distributed.cluster import WORKER, Cluster
from tpk_distributed.launch.tasks import Task, reserved_cluster

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Launched:
    """The processes of one training.

    Attributes:
        cluster: where each of them listens.
        workers: the workers by rank; the first one is the chief.
        servers: the parameter servers.
        directory: the working directory of all of them.
    """

    def __init__(
        self, cluster: Cluster, workers: Sequence[Process], servers: Sequence[Process], directory: Path
    ) -> None:
        self.cluster = cluster
        self.workers = list(workers)
        self.servers = list(servers)
        self.directory = directory

    @property
    def processes(self) -> list[Process]:
        """All of them."""
        return [*self.workers, *self.servers]

    def wait(self) -> list[Outcome]:
        """Wait until all workers that were started have ended; return how, by rank.

        Parameter servers end later, when they notice that the workers have; `returned` waits for them, too.

        Raises:
            AssertionError: one took longer than it may, and was killed.
        """
        return [worker.wait() for worker in self.workers if worker.pid]

    def returned(self) -> list[Any]:
        """Wait for the workers, then for the parameter servers; return what the functions of workers returned, by rank.

        Raises:
            AssertionError: one took longer than it may, or has not ended with exit status 0.
        """
        outcomes = self.wait()
        self._check(outcomes)
        self._check([server.wait() for server in self.servers])
        return [outcome.returned for outcome in outcomes]

    def _check(self, outcomes: Sequence[Outcome]) -> None:
        if any(outcome.status for outcome in outcomes):
            raise AssertionError(
                f"exit statuses {[outcome.status for outcome in outcomes]}\n"
                + "\n".join(process.report() for process in self.processes if process.pid)
            )

    def end(self) -> list[str]:
        """Kill all that is left, and return what that was."""
        running = [each for each in self.processes if each.is_running]
        for each in running:
            each.dump()
        unfinished = [f"{each.task} still ran (pid {each.pid}):\n{each.report()}" for each in running]
        for each in self.processes:
            each.kill()
        return unfinished + [left for each in self.processes for left in each.left_behind()]


class Launcher:
    """What the fixture `launch` gives; see the docstring of the module.

    Args:
        zygote: forks the processes.
        directory: where files go.
    """

    def __init__(self, zygote: Zygote, directory: Path) -> None:
        self._zygote = zygote
        self._directory = directory
        self._held = contextlib.ExitStack()
        self._launched: list[Launched] = []

    def __call__(
        self,
        function: Callable[..., Any] | str,
        workers: int = 2,
        servers: int = 0,
        *,
        args: Sequence[Any] = (),
        env: Mapping[str, str | None] | None = None,
        start: Collection[int] | None = None,
        timeout: float = 240.0,
    ) -> Launched:
        """Start processes that call `function`, or run the script of which it is the text.

        Args:
            function: what each process calls.
            workers: how many workers there are.
            servers: how many parameter servers.
            args: arguments of the function.
            env: environment variables that they get besides ``TF_CONFIG``; None removes one.
            start: which workers to start; by default all of them.
            timeout: the seconds after which they are killed, and the test fails; many, since it only ends what hangs.
        """
        cluster = self._held.enter_context(reserved_cluster(workers, servers))
        directory = self._directory / f"launch-{len(self._launched)}"
        directory.mkdir()
        call = directory / ".call"
        with _pickled_by_value(function):
            call.write_bytes(
                cloudpickle.dumps(
                    partial(run_text, function, str(directory / "script.py"))
                    if isinstance(function, str)
                    else partial(function, *args)
                )
            )
        deadline = time.monotonic() + timeout
        processes = []
        for task in [Task(job, index) for job, members in cluster.jobs.items() for index in range(len(members))]:
            give = directory / f".returned-{task.tag}"
            request = {
                "start": str(call),
                "give": str(give),
                "env": {"TF_CONFIG": cluster.as_tf_config(task.job, task.index), **(env or {})},
                "directory": str(directory),
            }
            begin = partial(self._zygote.fork, request)
            processes.append(Process(task, begin, self._zygote, give, deadline))
        launched = Launched(cluster, processes[:workers], processes[workers:], directory)
        self._launched.append(launched)
        for process in processes:
            if start is None or process.task.job != WORKER or process.task.index in start:
                process.start()
        return launched

    def close(self) -> None:
        """End what the test has left.

        Raises:
            AssertionError: there was something.
        """
        with self._held:
            left = [each for launched in self._launched for each in launched.end()]
        assert not left, "left by the test: " + "; ".join(left)


@contextlib.contextmanager
def started_zygote(*modules: str) -> Iterator[Zygote]:
    """Start a zygote that imports the modules besides TensorFlow and tpk."""
    own = ("callbacks", "input_source", "layers", "monitors", "strategies", "train")
    zygote = Zygote(["tensorflow", *(f"tpk.{name}" for name in own), *modules])
    try:
        yield zygote
    finally:
        zygote.close()


def run_text(text: str, path: str) -> Any:
    """Run a script, in a process of its own; return its variable ``returned``."""
    Path(path).write_text(text)
    return runpy.run_path(path, run_name="__main__").get("returned")


@contextlib.contextmanager
def _pickled_by_value(function: Any) -> Iterator[None]:
    """Have what the function's module defines pickled by value: other processes could not import a test."""
    module = None if isinstance(function, str) else sys.modules[function.__module__]
    if module is None or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
