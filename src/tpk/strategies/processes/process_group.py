"""Process group: how the processes of a training tell each other things that are no part of the graph."""

from __future__ import annotations

import abc
import json
from itertools import accumulate, pairwise
from typing import Any

from tpk.checkpoint.encoding import decode, encode
from tpk.errors import CheckpointError, ConfigError, PeerError


class ProcessGroup(abc.ABC):
    """Values that all processes of a training give to each other.

    Every process calls the same methods in the same order, as in a collective operation; `what` says what for, so that
    processes that are at different points notice. Values are plain data; to read them runs no code.

    Args:
        rank: the number of this process, from 0 on; 0 is the chief.
        world_size: how many there are.

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
        """Return what each process gives, by rank; wait until all have.

        Raises:
            PeerError: if a process is gone, or has not come within the time that it may take.
        """

    def gather_object(self, what: str, value: Any) -> list[Any]:
        """Return the values that the processes give, by rank; wait until all have given theirs.

        Args:
            what: what the values are, in words; the same in each process.
            value: None, a bool, number, text, bytes, a NumPy array or scalar; or a list, tuple or dict of such.

        Raises:
            ConfigError: if there is anything else in the value.
            PeerError: if a process is gone, has not come in time, is at another point of the program, or has such a
                value.
        """
        failure: ConfigError | None = None
        try:
            data = pack(what=what, value=value)
        except CheckpointError as error:  # The others wait for this process: it has to tell them.
            failure = ConfigError(f"rank {self.rank} cannot tell the others {what!r}: {error}")
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
                f"{', '.join(elsewhere)}. All of them have to run the same script with the same steps_per_epoch and "
                "callbacks; a callback that talks to the others must not be chief_only, nor be triggered by time."
            )
        return [value for _, value in received]

    def barrier(self, what: str) -> None:
        """Wait until all processes have come here.

        Args:
            what: what for, in words; the same in each process.

        Raises:
            PeerError: as `gather_object` does.
        """
        self.gather_object(what, None)

    def broadcast_object(self, what: str, value: Any = None) -> Any:
        """Return the value that the chief gives; what the others give is not used.

        Args:
            what: what the value is, in words; the same in each process.
            value: the chief's value.

        Raises:
            PeerError: as `gather_object` does.
        """
        return self.gather_object(what, value if self.rank == 0 else None)[0]


class SingleProcess(ProcessGroup):
    """The process group of a process that trains alone."""

    def __init__(self) -> None:
        super().__init__(rank=0, world_size=1)

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return what this process gives."""
        return [data]

    def gather_object(self, what: str, value: Any) -> list[Any]:
        """Return the value of this process."""
        return [value]


def pack(**values: Any) -> bytes:
    """Return plain data as bytes: a line of JSON, followed by the content of bytes and arrays.

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
        ValueError: if `pack` has not returned these bytes.
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
    """Return for what a process has said something, and that."""
    try:
        said = unpack(data)
        if "failure" in said:
            raise PeerError(f"rank {rank} has failed: {said['failure']}")
        return said["what"], said["value"]
    except (ValueError, LookupError) as error:
        raise PeerError(
            f"what rank {rank} has sent is not from this version of tpk, or not from tpk at all: {error}."
        ) from error
