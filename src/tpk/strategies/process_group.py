"""Process groups: how the processes of a training exchange values outside of the graph."""

from __future__ import annotations

import abc
import json
from itertools import accumulate, pairwise
from typing import Any

from tpk.checkpoint.encoding import decode, encode
from tpk.errors import CheckpointError, ConfigError, PeerError


class ProcessGroup(abc.ABC):
    """Exchanges values between the processes of a training.

    All processes must call the same methods in the same order, as with collective operations. `what` describes the
    value, so that processes at different points of the program detect it. Values are plain data; reading them runs no
    code.

    Args:
        rank: the number of this process, from 0; 0 is the chief.
        world_size: the number of processes.

    Example:
        ```python
        counts = trainer.strategy.process_group.gather_object("counts of MyCallback", my_count)
        if trainer.is_chief:
            report(sum(counts))
        ```
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size

    @abc.abstractmethod
    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Wait for the data of all processes, and return it by rank.

        Raises:
            PeerError: if a process is gone or too late.
        """

    def gather_object(self, what: str, value: Any) -> list[Any]:
        """Wait for the values of all processes, and return them by rank.

        Args:
            what: a description of the values; the same in each process.
            value: None, a bool, number, text, bytes, a NumPy array or scalar; or a list, tuple or dict of these.

        Raises:
            ConfigError: if the value contains anything else.
            PeerError: if a process is gone or too late, is at another point of the program, or has an invalid value.
        """
        failure: ConfigError | None = None
        try:
            data = pack(what=what, value=value)
        except CheckpointError as error:  # The others wait for this process, so it must tell them.
            failure = ConfigError(f"rank {self.rank} cannot send {what!r} to the others: {error}")
            data = pack(what=what, failure=repr(failure))
        try:
            every = self.gather_bytes(data)
        finally:
            if failure is not None:
                raise failure
        received = [_unpacked(rank, each) for rank, each in enumerate(every)]
        elsewhere = [f"rank {rank} at {theirs!r}" for rank, (theirs, _) in enumerate(received) if theirs != what]
        if elsewhere:
            raise PeerError(
                f"the processes are at different points of the program: rank {self.rank} is at {what!r}, "
                f"{', '.join(elsewhere)}. All processes must run the same script with the same steps_per_epoch and "
                "callbacks; a callback that communicates must not be chief_only or triggered by time."
            )
        return [value for _, value in received]

    def barrier(self, what: str) -> None:
        """Wait until all processes have reached this point.

        Args:
            what: a description of the point; the same in each process.

        Raises:
            PeerError: as `gather_object` does.
        """
        self.gather_object(what, None)

    def broadcast_object(self, what: str, value: Any = None) -> Any:
        """Return the chief's value in all processes.

        Args:
            what: a description of the value; the same in each process.
            value: the chief's value; ignored in other processes.

        Raises:
            PeerError: as `gather_object` does.
        """
        return self.gather_object(what, value if self.rank == 0 else None)[0]


class SingleProcess(ProcessGroup):
    """The process group of a process that trains alone."""

    def __init__(self) -> None:
        super().__init__(rank=0, world_size=1)

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the data of this process."""
        return [data]

    def gather_object(self, what: str, value: Any) -> list[Any]:
        """Return the value of this process."""
        return [value]


def pack(**values: Any) -> bytes:
    """Return plain data as bytes: a line of JSON, followed by the contents of bytes and arrays.

    Raises:
        CheckpointError: if a value is not plain data; see `tpk.checkpoint.encoding`.
    """
    buffers: list[bytes] = []
    content = {name: encode(value, name, buffers) for name, value in values.items()}
    head = json.dumps([list(map(len, buffers)), content], separators=(",", ":"))
    return b"".join([head.encode(), b"\n", *buffers])


def unpack(data: bytes) -> dict[str, Any]:
    """Return the values that were packed, by name.

    Raises:
        ValueError: if the bytes were not returned by `pack`.
    """
    try:
        start = data.index(b"\n") + 1
        sizes, content = json.loads(data[:start])
        ends = list(accumulate(sizes, initial=start))
        if ends != sorted(ends) or ends[-1] != len(data):
            raise ValueError(f"buffers of {sizes} bytes do not fit")
        buffers = [memoryview(data)[begin:end] for begin, end in pairwise(ends)]
        return {name: decode(value, buffers) for name, value in content.items()}
    except Exception as error:  # NumPy raises errors of many types.
        raise ValueError(f"{len(data)} bytes are not plain data: {error!r}") from error


def _unpacked(rank: int, data: bytes) -> tuple[str, Any]:
    """Return the description and the value that a process has sent."""
    try:
        said = unpack(data)
        if "failure" in said:
            raise PeerError(f"rank {rank} has failed: {said['failure']}")
        return said["what"], said["value"]
    except (ValueError, LookupError) as error:
        raise PeerError(
            f"rank {rank} sent data that is not from this version of tpk, or not from tpk at all: {error}."
        ) from error
