"""``tpk launch``: a training of several processes on this host."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from pathlib import Path

import click

from tpk.cli.framework import examples
from tpk.errors import ConfigError

_OTHER_LAUNCHERS = """

\b
This is for one host. For several, use what starts processes there, which knows the hosts, and their queues:
  horovodrun -np 8 -H one:4,two:4 python train.py      horovod
  srun --ntasks=8 python train.py                      SLURM
  Kubernetes, with a TFJob of Kubeflow, say            sets TF_CONFIG
"""

_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


def _not_negative(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if not value >= 0:  # NaN is none, either
        raise click.BadParameter(f"{value:g} must not be negative.")
    return value


@click.command(
    options_metavar="-n N [OPTIONS]",
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "tpk launch -n 2 train.py --strategy collective",
        "tpk launch -n 2 --ps 1 --threads 2 train.py --strategy distributed_replicated",
        "tpk launch -n 2 -m my_package.train --max-epoch 3",
    )
    + _OTHER_LAUNCHERS,
)
@click.option("-n", "workers", metavar="N", type=click.IntRange(min=1), required=True, help="How many workers.")
@click.option(
    "--ps", metavar="M", type=click.IntRange(min=0), default=0, help="How many parameter servers.  [default: none]"
)
@click.option(
    "--threads",
    metavar="K",
    type=click.IntRange(min=1),
    help="How many threads TensorFlow and OpenMP use in each process.  [default: as many as there are cores, so that "
    "processes on one CPU are in each other's way]",
)
@click.option(
    "--grace",
    metavar="SECONDS",
    type=float,
    callback=_not_negative,
    default=30.0,
    show_default=True,
    help="The time between SIGTERM and SIGKILL.",
)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.argument("script", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENT]...")
def launch(workers: int, ps: int, threads: int | None, grace: float, is_module: bool, script: tuple[str, ...]) -> int:
    """Start a script in several processes on this host.

    Each finds in the environment variable TF_CONFIG who it is and where the others listen; worker 0 is the chief.
    Strategies of several processes read it. The arguments after SCRIPT are its own; it has no stdin.

    Output is tagged by rank, with [0] for the chief and [ps0] for a parameter server. SIGINT (Ctrl-C), SIGTERM, SIGUSR1
    and SIGHUP go to all workers. When a process fails, the others get SIGTERM, and SIGKILL after a while; its traceback
    comes last. When all workers are done, parameter servers are ended. No process is left, even if this one is killed.
    The exit status is that of the process that failed first, or 128 and the number of the signal that ended it.
    """
    if os.name != "posix":
        raise ConfigError("tpk launch needs Linux or macOS: it uses process groups.")
    # These need what other systems do not have.
    from tpk.cli.launch.cluster import reserved_cluster
    from tpk.cli.launch.output import Console
    from tpk.cli.launch.processes import run_processes

    _check(is_module, script[0])
    environment = {"PYTHONUNBUFFERED": "1", **os.environ}
    if threads is not None:
        environment.update(dict.fromkeys(_THREADS, str(threads)))
    command = [sys.executable, *(["-m"] if is_module else []), *script]
    with reserved_cluster(workers, ps) as cluster:
        return run_processes(command, cluster, environment, grace, Console())


def _check(is_module: bool, target: str) -> None:
    """Check that there is something to launch, and that this is the place for it.

    Raises:
        ConfigError: if not.
    """
    if os.environ.get("TF_CONFIG"):
        raise ConfigError(
            "TF_CONFIG is set, so that this process is one of a cluster already: start the script itself with python, "
            "or unset TF_CONFIG to start another cluster on this host."
        )
    if is_module:
        package = target.partition(".")[0]
        if importlib.machinery.PathFinder.find_spec(package, [os.getcwd(), *sys.path]) is None:
            raise ConfigError(f"there is no module {target!r}, neither installed nor in {os.getcwd()!r}.")
    elif not Path(target).is_file() and not Path(target, "__main__.py").is_file():
        raise ConfigError(
            f"there is no script {target!r} in {os.getcwd()!r}. Options of tpk launch stand before the script; for a "
            "module, use -m."
        )
