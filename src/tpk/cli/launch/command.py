"""``tpk launch``: a training of several processes on this host."""

from __future__ import annotations

import argparse
import importlib.machinery
import os
import sys
from pathlib import Path
from typing import Any

from tpk.cli.launch.cluster import reserved_cluster
from tpk.errors import ConfigError

_DESCRIPTION = """\
Start a script in several processes on this host. Each finds in the environment variable TF_CONFIG who it is and where
the others listen; worker 0 is the chief. Strategies of several processes read it.

Output is tagged by rank, with [0] for the chief and [ps0] for a parameter server. SIGINT (Ctrl-C), SIGTERM, SIGUSR1 and
SIGHUP go to all workers. When a process fails, the others get SIGTERM, and SIGKILL after a while; its traceback comes
last. When all workers are done, parameter servers are ended. No process is left, even if this one is killed. The exit
status is that of the process that failed first, or 128 and the number of the signal that ended it."""

_EPILOG = """\
This is for one host. For several, use what starts processes there, which knows the hosts, and their queues:
  horovodrun -np 8 -H one:4,two:4 python train.py      horovod
  srun --ntasks=8 python train.py                      SLURM
  Kubernetes, with a TFJob of Kubeflow, say            sets TF_CONFIG
"""

_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


def add_launch_command(commands: Any) -> None:
    """Add the arguments of ``tpk launch`` to `commands`, the subparsers of the command."""
    parser = commands.add_parser(
        "launch",
        help="start a script in several processes on this host",
        usage="tpk launch -n N [--ps M] [--threads K] [--grace SECONDS] (SCRIPT | -m MODULE) [ARGUMENT ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-n", dest="workers", metavar="N", type=int, required=True, help="how many workers")
    parser.add_argument("--ps", metavar="M", type=int, default=0, help="how many parameter servers; by default none")
    parser.add_argument(
        "--threads",
        metavar="K",
        type=int,
        help="how many threads TensorFlow and OpenMP use in each process; by default as many as there are cores, so "
        "that processes on one CPU are in each other's way",
    )
    parser.add_argument(
        "--grace", metavar="SECONDS", type=float, default=30.0, help="the time between SIGTERM and SIGKILL; default 30"
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument(
        "script",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT",
        help="what to start, with its arguments; they have no stdin",
    )
    parser.set_defaults(run=_launch)


def _launch(arguments: argparse.Namespace) -> int:
    if os.name != "posix":
        raise ConfigError("tpk launch needs Linux or macOS: it uses process groups.")
    # These need what other systems do not have.
    from tpk.cli.launch.output import Console
    from tpk.cli.launch.processes import run_processes

    _check(arguments)
    environment = {"PYTHONUNBUFFERED": "1", **os.environ}
    if arguments.threads is not None:
        environment.update(dict.fromkeys(_THREADS, str(arguments.threads)))
    command = [sys.executable, *(["-m"] if arguments.is_module else []), *arguments.script]
    with reserved_cluster(arguments.workers, arguments.ps) as cluster:
        return run_processes(command, cluster, environment, arguments.grace, Console())


def _check(arguments: argparse.Namespace) -> None:
    """Check the arguments.

    Raises:
        ConfigError: if one is wrong.
    """
    if arguments.workers < 1:
        raise ConfigError(f"-n must be at least 1, the number of workers, but is {arguments.workers}.")
    if arguments.ps < 0:
        raise ConfigError(f"--ps must not be negative, but is {arguments.ps}.")
    if arguments.threads is not None and arguments.threads < 1:
        raise ConfigError(f"--threads must be at least 1, but is {arguments.threads}.")
    if not arguments.grace >= 0:
        raise ConfigError(f"--grace must not be negative, but is {arguments.grace:g}.")
    if arguments.script[:1] == ["--"]:
        del arguments.script[0]
    if not arguments.script:
        raise ConfigError("which script? Give it after the options: tpk launch -n 2 train.py")
    if os.environ.get("TF_CONFIG"):
        raise ConfigError(
            "TF_CONFIG is set, so that this process is one of a cluster already: start the script itself with python, "
            "or unset TF_CONFIG to start another cluster on this host."
        )
    target = arguments.script[0]
    if arguments.is_module:
        package = target.partition(".")[0]
        if importlib.machinery.PathFinder.find_spec(package, [os.getcwd(), *sys.path]) is None:
            raise ConfigError(f"there is no module {target!r}, neither installed nor in {os.getcwd()!r}.")
    elif not Path(target).is_file() and not Path(target, "__main__.py").is_file():
        raise ConfigError(
            f"there is no script {target!r} in {os.getcwd()!r}. Options of tpk launch stand before the script; for a "
            "module, use -m."
        )
