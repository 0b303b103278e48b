"""What there is to tell of a training that hangs."""

from __future__ import annotations

import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpk.callbacks.interruption import run_aside

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

_STATES = {"R": "running", "S": "waiting", "D": "waiting for a device", "T": "stopped", "Z": "ended"}


def stacks_of_threads() -> str:
    """Return where all threads are but this one."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = [
        f"thread {names.get(ident, '?')} ({ident}):\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    ]
    return "\n".join(stacks).rstrip()


def describe_input(trainer: TrainerProtocol, queue_size: Any) -> list[str]:
    """Return lines on the input of a training.

    Args:
        trainer: the trainer.
        queue_size: a tensor with the number of datapoints in its queue, or None.
    """
    source = trainer.input_source
    if source is None:
        return []
    lines = [f"input: {type(source).__name__}"]
    consumed = run_aside(lambda: source.consumed)
    if consumed is not None:
        lines.append(f"datapoints that steps have asked for: {consumed}")
    if queue_size is not None:
        size = run_aside(lambda: trainer.sess.run(queue_size))
        lines.append(f"datapoints in its queue: {'the session does not answer' if size is None else size}")
    return lines


def describe_children() -> list[str]:
    """Return a line for each child process, where the system tells of them."""
    lines = []
    for path in Path("/proc/self/task").glob("*/children"):
        pids: list[str] = []
        with suppress(OSError):  # The thread, like each of the processes, may have just ended.
            pids = path.read_text().split()
        for pid in pids:
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                lines.append(f"child process {pid}: {_STATES.get(state, state)}, {command.strip()[:200]}")
    return lines


def attribute_of_source(source: Any, name: str) -> Any:
    """Return an attribute of an input source, or of the one on which it stands."""
    while source is not None:
        value = getattr(source, name, None)
        if value is not None:
            return value
        source = getattr(source, "source", None)
    return None
