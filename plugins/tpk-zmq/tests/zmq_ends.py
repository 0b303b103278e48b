"""Helpers for tests: receivers, senders in other processes, and data to send."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from contextlib import closing, contextmanager

import numpy as np
from tpk_zmq import RemoteDataZMQ

FREE_PORT = "tcp://127.0.0.1:*"


@contextmanager
def receiver(address=FREE_PORT, **options):
    options = {"timeout": 300, **options}
    with closing(RemoteDataZMQ(address, **options)) as flow:
        flow.reset_state()
        yield flow


def numbered(first, count):
    return [[np.full((40, 50), number, np.float32), number] for number in range(first, first + count)]


def numbers(datapoints):
    return [number for _, number in datapoints]


@contextmanager
def in_another_process(code, *arguments):
    # A process in the background of a script inherits that SIGINT is ignored.
    start = """
        import signal, sys
        from tpk_zmq import send_dataflow_zmq
        signal.signal(signal.SIGINT, signal.default_int_handler)
    """
    text = textwrap.dedent(start) + textwrap.dedent(code)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", text, *arguments], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()
