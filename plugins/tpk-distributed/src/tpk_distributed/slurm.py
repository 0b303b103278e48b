"""The processes of a SLURM job step, from the environment variables that srun sets."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from tpk.errors import ConfigError

FIRST_PORT, PORTS = 20000, 10000
"""The range of ports: below those that systems use for outgoing connections, which start at 32768."""

_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"^(\d+)(?:-(\d+))?$")
_TASKS = re.compile(r"^(\d+)(?:\(x(\d+)\))?$")


def slurm_step(environ: Mapping[str, str]) -> tuple[list[str], int]:
    """Return the addresses of all processes of the step, by rank, and the rank of this one.

    The ports depend on the numbers of the job and the step, so that jobs on one host use different ports.

    Args:
        environ: the environment, with SLURM_PROCID, SLURM_NTASKS (or SLURM_STEP_NUM_TASKS) and SLURM_STEP_NODELIST;
            the number of tasks of each host is in SLURM_STEP_TASKS_PER_NODE or SLURM_TASKS_PER_NODE.

    Raises:
        ConfigError: if one of them is missing or contradicts another.
    """
    hosts = expand_hostlist(environ["SLURM_STEP_NODELIST"])
    rank = _number(environ, "SLURM_PROCID")
    size = _number(environ, "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS")
    places = _places(hosts, size, environ)
    if not 0 <= rank < size:
        raise ConfigError(f"SLURM_PROCID is {rank}, but the step has {size} tasks, counted from 0.")
    here = environ.get("SLURMD_NODENAME", places[rank][0])
    if here != places[rank][0]:
        raise ConfigError(
            f"SLURM runs rank {rank} on {here}, but {places[rank][0]} was expected: tasks are distributed in an "
            "unusual way. Use `srun --distribution=block`, or set TF_CONFIG in each process."
        )
    job = int(environ.get("SLURM_JOB_ID", "0")) * 64 + int(environ.get("SLURM_STEP_ID", "0"))
    base = FIRST_PORT + job % PORTS
    return [f"{host}:{base + local}" for host, local in places], rank


def expand_hostlist(text: str) -> list[str]:
    """Return the hosts in a SLURM host list, such as ``node[01-03,7],login``.

    Raises:
        ConfigError: if the list is invalid.
    """
    parts = _PART.findall(text)
    if not parts or ",".join(parts) != text:
        raise ConfigError(f"SLURM_STEP_NODELIST is {text!r}; expected a list such as 'node[01-03,7],login'.")
    return [host for part in parts for host in _expand(part, text)]


def _expand(part: str, text: str) -> Iterator[str]:
    # The split alternates between text outside and inside of brackets.
    pieces = [
        [piece] if outside else list(_numbers(piece, text))
        for piece, outside in zip(_BRACKETS.split(part), itertools.cycle((True, False)), strict=False)
    ]
    return map("".join, itertools.product(*pieces))


def _numbers(ranges: str, text: str) -> Iterator[str]:
    for each in ranges.split(","):
        match = _RANGE.match(each)
        if match is None:
            raise ConfigError(f"SLURM_STEP_NODELIST is {text!r}, but [{ranges}] is not a list of numbers and ranges.")
        first, last = match[1], match[2] or match[1]
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def _places(hosts: list[str], size: int, environ: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the host of each rank, and its number among the tasks of the host, from 0."""
    counts = _tasks_per_host(hosts, size, environ)
    if sum(counts) != size or len(counts) != len(hosts):
        raise ConfigError(
            f"SLURM's step has {size} tasks, but its hosts {', '.join(hosts)} have {', '.join(map(str, counts))} of "
            "them. Set TF_CONFIG in each process instead."
        )
    if environ.get("SLURM_DISTRIBUTION", "").startswith("cyclic"):
        rounds = range(max(counts))
        return [(host, turn) for turn in rounds for host, count in zip(hosts, counts, strict=True) if turn < count]
    return [(host, local) for host, count in zip(hosts, counts, strict=True) for local in range(count)]


def _tasks_per_host(hosts: list[str], size: int, environ: Mapping[str, str]) -> list[int]:
    text = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE")
    if text is None:
        return [size // len(hosts) + (index < size % len(hosts)) for index in range(len(hosts))]
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
        raise ConfigError(
            f"{name} is {value!r}; expected a number, as srun sets it. Start the processes with srun, or set TF_CONFIG."
        )
    return int(value)
