"""``tpk launch``: a training of several processes, on this host or on several."""

from __future__ import annotations

import contextlib
import importlib.machinery
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tpk.errors import ConfigError
from tpk_distributed.cluster import PS, WORKER, is_address

_EXAMPLES = """\b
Examples:
  tpk launch -n 2 train.py --strategy collective
  tpk launch -n 4 --gpus 1 train.py --strategy collective
  tpk launch -n 2 --ps 1 --threads 2 train.py --strategy distributed_replicated
  tpk launch -n 2 -m my_package.train --max-epoch 3

\b
On two hosts, with 4 workers on each; the first line does by ssh what the others do:
  tpk launch -n 4 --hosts one,two train.py
  tpk launch -n 4 --nodes 2 --node-rank 0 --master one:29500 train.py    on host one
  tpk launch -n 4 --nodes 2 --node-rank 1 --master one:29500 train.py    on host two

\b
A cluster has its own launcher:
  horovodrun -np 8 -H one:4,two:4 python train.py      horovod
  srun --ntasks=8 python train.py                      SLURM
  Kubernetes, such as with a TFJob of Kubeflow         sets TF_CONFIG
"""

_PORT = 29500

_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


@click.command(
    options_metavar="-n N [OPTIONS]",
    context_settings={"allow_interspersed_args": False},
    epilog=_EXAMPLES,
)
@click.option(
    "-n", "workers", metavar="N", type=click.IntRange(min=1), required=True, help="The number of workers on each host."
)
@click.option(
    "--ps",
    metavar="M",
    type=click.IntRange(min=0),
    default=0,
    help="The number of parameter servers, which are at the first host.  [default: none]",
)
@click.option("--hosts", metavar="HOST,...", help="Start the script on these hosts by ssh, in this directory.")
@click.option("--nodes", type=click.IntRange(min=1), default=1, help="The number of hosts.  [default: only this one]")
@click.option("--node-rank", type=click.IntRange(min=0), help="The number of this host, from 0.")
@click.option(
    "--master",
    metavar="HOST:PORT",
    default="",
    help="Where the launchers of all hosts meet: an address of the first host.",
)
@click.option("--attached", is_flag=True, hidden=True)
@click.option(
    "--gpus",
    metavar="K",
    type=click.IntRange(min=0),
    help="The number of GPUs of each worker, by CUDA_VISIBLE_DEVICES; parameter servers see none.  [default: each "
    "process sees all of them]",
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
def launch(
    workers: int,
    ps: int,
    hosts: str | None,
    nodes: int,
    node_rank: int | None,
    master: str,
    attached: bool,
    gpus: int | None,
    threads: int | None,
    grace: float,
    is_module: bool,
    script: tuple[str, ...],
) -> int:
    """Start a script in several processes.

    They run on this host, or on several. Each process finds its task and the addresses of the others in the environment
    variable TF_CONFIG, which strategies of several processes read. Worker 0 is the chief. The arguments after SCRIPT go
    to the script; it has no stdin.

    Each line of output is tagged: [0] for the chief, [ps0] for a parameter server. SIGINT (Ctrl-C), SIGTERM, SIGUSR1
    and SIGHUP go to all workers. When a process fails, the others get SIGTERM, and later SIGKILL; its traceback is
    printed last. When all workers have ended, parameter servers are ended. No process is left behind, even if this one
    is killed. The exit status is the status of the process that failed first, or 128 plus the number of the signal that
    killed it.

    On several hosts, the script and the Python environment are at the same paths, and each host reaches each other one
    at all ports. If a process fails, the launchers of all hosts end theirs.
    """
    if os.name != "posix":
        raise ConfigError("tpk launch needs Linux or macOS: it uses process groups.")
    # These import modules that Windows does not have.
    from tpk_distributed.launch.guarded_group import Start
    from tpk_distributed.launch.launched_processes import run
    from tpk_distributed.launch.launchers import Link, Meeting
    from tpk_distributed.launch.tasks import Host, Task, environments, reserved_cluster

    options = [f"-n{workers}", f"--ps={ps}", f"--grace={grace:g}"]
    options += [f"--{name}={value}" for name, value in (("gpus", gpus), ("threads", threads)) if value is not None]
    program = [*(["-m"] if is_module else []), *script]
    if hosts is not None:
        if nodes != 1 or node_rank is not None:
            raise click.UsageError("--hosts numbers the hosts itself: leave out --nodes and --node-rank.")
        if shutil.which("ssh") is None:
            raise ConfigError(
                "--hosts needs the command ssh, which is not on the PATH. Install it, or use --node-rank."
            )
        names = hosts.split(",")
        options += [f"--nodes={len(names)}", f"--master={master or names[0].rpartition('@')[2] + f':{_PORT}'}"]
        commands = [_by_ssh(name, [*options, f"--node-rank={rank}", *program]) for rank, name in enumerate(names)]
        return run([Start(Host(name), each, os.environ) for name, each in zip(names, commands, strict=True)], grace)
    if nodes == 1 and node_rank is None:
        node_rank = 0
    if node_rank is None or node_rank >= nodes or (nodes > 1 and not is_address(master)):
        raise click.UsageError(f"--nodes {nodes} needs --node-rank, from 0 to {nodes - 1}, and --master HOST:PORT.")
    _check(is_module, script[0])
    common = {"PYTHONUNBUFFERED": "1", **os.environ}
    if threads is not None:
        common.update(dict.fromkeys(_THREADS, str(threads)))
    with contextlib.ExitStack() as held:
        own = held.enter_context(reserved_cluster(workers, 0 if node_rank else ps))
        cluster, first, links = own, 0, list[Link]()
        if nodes > 1:
            if not attached:  # The user starts the others.
                click.echo(f"tpk: waiting for the launchers of all {nodes} hosts to meet at {master}", err=True)
            cluster, first, links = held.enter_context(Meeting(nodes, node_rank, master).exchange(own))
        tasks = [Task(WORKER, first + index) for index in range(workers)]
        tasks += [Task(PS, index) for index in range(len(own.ps))]
        starts = zip(tasks, environments(cluster, tasks, common, gpus), strict=True)
        return run([Start(task, [sys.executable, *program], each) for task, each in starts], grace, links, attached)


def _by_ssh(host: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that starts a launcher at a host, in the current directory."""
    launcher = [sys.executable, "-m", "tpk", "launch", "--attached", *arguments]
    # ssh would ask for a password at the terminal, which all of them share.
    return ["ssh", "-o", "BatchMode=yes", host, f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(launcher)}"]


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
