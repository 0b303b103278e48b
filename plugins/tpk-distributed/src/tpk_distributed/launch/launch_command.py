"""``tpk launch``: a training of several processes on this host."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from pathlib import Path

import click

from tpk.errors import ConfigError

_EXAMPLES = """\b
Examples:
  tpk launch -n 2 train.py --strategy collective
  tpk launch -n 2 --ps 1 --threads 2 train.py --strategy distributed_replicated
  tpk launch -n 2 -m my_package.train --max-epoch 3

\b
This is for one host. For several hosts, use the launcher of the cluster:
  horovodrun -np 8 -H one:4,two:4 python train.py      horovod
  srun --ntasks=8 python train.py                      SLURM
  Kubernetes, such as with a TFJob of Kubeflow         sets TF_CONFIG
"""

_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


@click.command(
    options_metavar="-n N [OPTIONS]",
    context_settings={"allow_interspersed_args": False},
    epilog=_EXAMPLES,
)
@click.option("-n", "workers", metavar="N", type=click.IntRange(min=1), required=True, help="The number of workers.")
@click.option(
    "--ps", metavar="M", type=click.IntRange(min=0), default=0, help="The number of parameter servers.  [default: none]"
)
@click.option(
    "--threads",
    metavar="K",
    type=click.IntRange(min=1),
    help="The number of threads of TensorFlow and OpenMP in each process.  [default: the number of cores, so that "
    "processes on one CPU compete for it]",
)
@click.option(
    "--grace",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="The time between SIGTERM and SIGKILL.",
)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.argument("script", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENT]...")
def launch(workers: int, ps: int, threads: int | None, grace: float, is_module: bool, script: tuple[str, ...]) -> int:
    """Start a script in several processes on this host.

    Each process finds its task and the addresses of the others in the environment variable TF_CONFIG, which strategies
    of several processes read. Worker 0 is the chief. The arguments after SCRIPT go to the script; it has no stdin.

    Each line of output is tagged: [0] for the chief, [ps0] for a parameter server. SIGINT (Ctrl-C), SIGTERM, SIGUSR1
    and SIGHUP go to all workers. When a process fails, the others get SIGTERM, and later SIGKILL; its traceback is
    printed last. When all workers have ended, parameter servers are ended. No process is left behind, even if this one
    is killed. The exit status is the status of the process that failed first, or 128 plus the number of the signal that
    killed it.
    """
    if os.name != "posix":
        raise ConfigError("tpk launch needs Linux or macOS: it uses process groups.")
    # These import modules that Windows does not have.
    from tpk_distributed.launch.launched_processes import run_processes
    from tpk_distributed.launch.tasks import reserved_cluster

    _check(is_module, script[0])
    environment = {"PYTHONUNBUFFERED": "1", **os.environ}
    if threads is not None:
        environment.update(dict.fromkeys(_THREADS, str(threads)))
    command = [sys.executable, *(["-m"] if is_module else []), *script]
    with reserved_cluster(workers, ps) as cluster:
        return run_processes(command, cluster, environment, grace)


def _check(is_module: bool, target: str) -> None:
    """Raise a `ConfigError` if the script is missing, or this process is already part of a cluster."""
    if os.environ.get("TF_CONFIG"):
        raise ConfigError(
            "TF_CONFIG is set, so this process is already part of a cluster: start the script itself with python, or "
            "unset TF_CONFIG to start another cluster on this host."
        )
    if is_module:
        package = target.partition(".")[0]
        if importlib.machinery.PathFinder.find_spec(package, [os.getcwd(), *sys.path]) is None:
            raise ConfigError(f"the module {target!r} is neither installed nor in {os.getcwd()!r}.")
    elif not Path(target).is_file() and not Path(target, "__main__.py").is_file():
        raise ConfigError(
            f"the script {target!r} does not exist in {os.getcwd()!r}. Write options of tpk launch before the script; "
            "use -m for a module."
        )
