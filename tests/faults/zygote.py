"""A process that has imported TensorFlow, and forks the trainings that are to be killed.

To import TensorFlow takes seconds, to fork the process that has imported it some milliseconds. All that a training
does, and all that a kill can interrupt (sessions, threads, worker processes, files, locks), begins after the fork, in a
process of its own that is the operating system's to kill like any other: no handler and no parent cleans up after it.
What is shared is the code that was imported.

Requests come by stdin, answers go to stdout, both a line of JSON each:
``{"start": [RUN_DIR, SCENARIO], "log": PATH, "powerless": BOOL}`` is answered by the process id, and ``{"reap": PID}``
by how the process has ended, as `subprocess.Popen.returncode` has it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

import killed_training

import tpk

# What is imported when it is used would be so in each fork.
for room in (tpk.callbacks, tpk.checkpoint, tpk.dataflow, tpk.graph, tpk.input_source, tpk.monitors, tpk.train):
    for public in room.__all__:
        getattr(room, public)

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


def serve() -> list[Any] | None:
    """Answer requests until there are no more; return the arguments of a training in the process that is to do it."""
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            pid = os.fork()
            if not pid:
                become(request["log"])
                if request["powerless"]:
                    give_up_privileges()
                return request["start"]
            print(pid, flush=True)
        else:
            print(os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1]), flush=True)
    return None


def become(log: str) -> None:
    """Let go of the pipes of the zygote."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def give_up_privileges() -> None:
    """Make permissions of files count, should this process belong to root."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread; those that it starts inherit it
    data = (ctypes.c_uint32 * 6)()
    if libc.capget(header, data):
        raise OSError(ctypes.get_errno(), "capget")
    for word in (0, 1):
        data[word] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    arguments = serve()
    if arguments is not None:
        killed_training.main(*arguments)
