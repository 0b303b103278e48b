"""A process that has imported TensorFlow and tpk, and forks the processes of tests.

To import TensorFlow takes seconds, to fork the process that has imported it some milliseconds. All that could mind a
fork (sessions, servers, threads) begins after it. Requests come by a socket, a JSON object each along with the
descriptors of stdin, stdout and stderr; answers are lines of JSON:

- ``{"start": CALL, "give": PATH, "env": {...}, "directory": PATH}``: a process that leads a session of its own calls
  the pickled function in the file CALL, and writes the pickle of what it returns to PATH. Answer: its process id.
- ``{"reap": PID}``: how that process has ended, as `subprocess.Popen.returncode` has it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import pickle
import signal
import socket
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Answer requests until there are no more; return the request in the process that is to fulfil it."""
    zygote = os.getpid()
    requests.sendall(b"0\n")
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 65536, 3)
        if not message:
            return None
        request = json.loads(message)
        if "reap" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                requests.close()
                become(request, descriptors, zygote)
                return request
            for each in descriptors:
                os.close(each)
        requests.sendall(json.dumps(answer).encode() + b"\n")


def become(request: dict[str, Any], descriptors: list[int], zygote: int) -> None:
    """Turn a fork of the zygote into a process of its own, but for ending when the zygote does."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != zygote:
        os._exit(1)
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    for name, value in request["env"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.chdir(request["directory"])
    faulthandler.enable()  # `Process.dump` of `forked.py` needs it.
    sys.argv[:] = ["test.py"]


def fulfil(request: dict[str, Any]) -> None:
    """Call the function, and hand over what it returns."""
    value = pickle.loads(Path(request["start"]).read_bytes())()
    path = Path(request["give"])
    path.with_suffix(".part").write_bytes(pickle.dumps(value))
    path.with_suffix(".part").rename(path)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        module = importlib.import_module(name)
        # The rooms of tpk import what is in them when it is used.
        for public in module.__all__ if name.startswith("tpk.") else ():
            getattr(module, public)
    # Otherwise a second of each fork would go to collectors that look through all of TensorFlow, the last at its exit.
    gc.collect()
    gc.freeze()
    todo = serve(socket.socket(fileno=int(sys.argv[1])))
    if todo is not None:
        fulfil(todo)
