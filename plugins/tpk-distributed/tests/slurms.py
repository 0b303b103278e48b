"""A SLURM cluster of the hosts of a test, with the daemons that Debian's ``slurm-wlm`` and ``munge`` bring."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from networks import Network

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch")
CONFIGURATION = """
ClusterName=tpk
SlurmctldHost={hosts[0]}
AuthInfo=socket={directory}/munge.socket
SlurmUser=root
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n.pid
SlurmdParameters=config_overrides
{options}
NodeName={nodes} CPUs=8
PartitionName=all Nodes={nodes} Default=YES State=UP
"""


class Slurm:
    """A running SLURM cluster.

    Args:
        network: its hosts; the first one has the controller, too.
        directory: where its files are.
    """

    def __init__(self, network: Network, directory: Path) -> None:
        self._network, self._directory = network, directory
        self._environment = {**os.environ, "SLURM_CONF": str(directory / "slurm.conf")}
        # These would tell the processes with whom they train.
        self._environment.pop("TF_CONFIG", None)

    def run(self, *command: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a command at the first host."""
        return subprocess.run(
            self._network.command(0, *command),
            env=self._environment,
            cwd=self._directory,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def start(self, number: int, *command: object) -> subprocess.Popen[bytes]:
        """Start a program at a host; its output goes to a file."""
        with (self._directory / f"{command[0]}{number}.out").open("wb") as output:
            return subprocess.Popen(
                self._network.command(number, *command),
                env=self._environment,
                cwd=self._directory,
                stdout=output,
                stderr=subprocess.STDOUT,
            )


@contextmanager
def slurm(network: Network, directory: Path, options: Sequence[str] = ()) -> Iterator[Slurm]:
    """Start a SLURM cluster, and end it.

    Args:
        network: its hosts.
        directory: an empty directory for its files.
        options: more lines of ``slurm.conf``.
    """
    key = directory / "munge.key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    text = CONFIGURATION.format(
        hosts=network.hosts, directory=directory, nodes=",".join(network.hosts), options="\n".join(options)
    )
    (directory / "slurm.conf").write_text(text)
    made = Slurm(network, directory)
    options_of_munge = ("key-file", "socket", "pid-file", "seed-file", "log-file")
    files = [f"--{option}={directory}/munge.{option.removesuffix('-file')}" for option in options_of_munge]
    with ExitStack() as ended:

        def start(number: int, *command: object) -> None:
            process = made.start(number, *command)
            ended.callback(process.wait, 120)
            ended.callback(process.terminate)

        start(0, "munged", "--foreground", "--force", *files)
        wait_for(lambda: (directory / "munge.socket").exists())
        start(0, "slurmctld", "-D")
        for number in range(len(network.hosts)):
            start(number, "slurmd", "-D", "-N", network.hosts[number])
        ended.callback(made.run, "scancel", "--user=root", "--signal=KILL", "--full")
        wait_for(lambda: made.run("sinfo", "-h", "-o", "%T %D").stdout.strip() == f"idle {len(network.hosts)}")
        yield made


def missing_programs() -> list[str]:
    """Return which of SLURM's programs are not installed."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [program for program in PROGRAMS if shutil.which(program, path=path) is None]


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until a condition holds; fail if it does not within some seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "SLURM has not started in time"
        time.sleep(0.2)
