"""The processes of a SLURM job step, from the environment variables that srun sets."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from tpk.errors import ConfigError

FIRST_PORT, PORTS_OF_STEP, STEPS = 20000, 64, 199
"""The range of ports, which ends below the ports that systems use for outgoing connections: from 32768."""
JOBS_APART = 8
"""So many steps of one job have other ports than the steps of the next job."""

_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"^(\d+)(?:-(\d+))?$")
_TASKS = re.compile(r"^(\d+)(?:\(x(\d+)\))?$")


def slurm_step(environ: Mapping[str, str]) -> tuple[list[str], int]:
    """Return the addresses of all processes of the step, by rank, and the rank of this one.

    Processes of one host use consecutive ports: those that SLURM has reserved for the step, if its ``MpiParams`` has a
    range of ports; otherwise from TPK_FIRST_PORT, if it is set; otherwise from one that depends on the numbers of the
    job and the step, so that the steps of a job use different ports, and so do jobs, unless the difference of their
    numbers is a multiple of 199.

    Args:
        environ: the environment, with SLURM_PROCID, SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE.

    Raises:
        ConfigError: if one of them is invalid or contradicts another.
    """
    places = _places(environ)
    rank = _number(environ, "SLURM_PROCID")
    if rank >= len(places):
        raise ConfigError(f"SLURM_PROCID is {rank}, but the step has {len(places)} tasks, counted from 0.")
    here = environ.get("SLURMD_NODENAME", places[rank][0])
    if here != places[rank][0]:
        raise ConfigError(
            f"SLURM runs rank {rank} on {here}, but {places[rank][0]} was expected: tasks are distributed in an "
            "unusual way. Use `srun --distribution=block`, or set TF_CONFIG in each process."
        )
    ports = _ports(environ, 1 + max(local for _, local in places))
    return [f"{host}:{ports[local]}" for host, local in places], rank


def expand_hostlist(text: str) -> list[str]:
    """Return the hosts in a SLURM host list, such as ``node[01-03,7],login``.

    Raises:
        ConfigError: if the list is invalid.
    """
    parts = _PART.findall(text)
    if not parts or ",".join(parts) != text:
        raise ConfigError(f"SLURM_STEP_NODELIST is {text!r}; expected a list such as 'node[01-03,7],login'.")
    return [host for part in parts for host in _expand(part)]


def _expand(part: str) -> Iterator[str]:
    # The split alternates between text outside and inside of brackets.
    pieces = [
        [piece] if outside else list(_numbers(piece, "SLURM_STEP_NODELIST"))
        for piece, outside in zip(_BRACKETS.split(part), itertools.cycle((True, False)), strict=False)
    ]
    return map("".join, itertools.product(*pieces))


def _numbers(ranges: str, name: str) -> Iterator[str]:
    for each in ranges.split(","):
        match = _RANGE.match(each)
        if match is None:
            raise ConfigError(f"{name} has {ranges!r}, which is not a list of numbers and ranges.")
        first, last = match[1], match[2] or match[1]
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def _ports(environ: Mapping[str, str], count: int) -> Sequence[int]:
    """Return at least `count` ports for the processes of each host."""
    if environ.get("SLURM_STEP_RESV_PORTS"):
        reserved = [int(port) for port in _numbers(environ["SLURM_STEP_RESV_PORTS"], "SLURM_STEP_RESV_PORTS")]
        if len(reserved) >= count:
            return reserved
    if "TPK_FIRST_PORT" in environ:
        first = _number(environ, "TPK_FIRST_PORT")
    else:
        step = int(environ.get("SLURM_JOB_ID", "0")) * JOBS_APART + int(environ.get("SLURM_STEP_ID", "0"))
        first = FIRST_PORT + step % STEPS * PORTS_OF_STEP
    return range(first, first + count)


def _places(environ: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the host of each rank, and its number among the tasks of the host, from 0."""
    hosts = expand_hostlist(environ["SLURM_STEP_NODELIST"])
    counts = _tasks_per_host(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    if len(counts) != len(hosts):
        raise ConfigError(
            f"SLURM_STEP_NODELIST has {len(hosts)} hosts, but SLURM_STEP_TASKS_PER_NODE has {len(counts)}. Set "
            "TF_CONFIG in each process instead."
        )
    distribution = environ.get("SLURM_DISTRIBUTION", "block")
    if distribution.startswith(("plane", "arbitrary")):
        raise ConfigError(
            f"SLURM_DISTRIBUTION is {distribution!r}, which does not tell where each rank runs. Use "
            "`srun --distribution=block` or `cyclic`, or set TF_CONFIG in each process."
        )
    if distribution.startswith("cyclic"):
        rounds = range(max(counts))
        return [(host, turn) for turn in rounds for host, count in zip(hosts, counts, strict=True) if turn < count]
    return [(host, local) for host, count in zip(hosts, counts, strict=True) for local in range(count)]


def _tasks_per_host(text: str) -> list[int]:
    counts: list[int] = []
    for each in text.split(","):
        match = _TASKS.match(each)
        if match is None:
            raise ConfigError(f"SLURM_STEP_TASKS_PER_NODE is {text!r}; expected a list such as '2(x3),1'.")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _number(environ: Mapping[str, str], name: str) -> int:
    value = environ.get(name, "")
    if not value.isdigit():
        raise ConfigError(f"{name} is {value!r}; expected a number. Start the processes with srun, or set TF_CONFIG.")
    return int(value)
