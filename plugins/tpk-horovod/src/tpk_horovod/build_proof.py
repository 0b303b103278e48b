"""Test of the installed Horovod: `horovodrun` starts processes on this host that sum and broadcast tensors."""

from __future__ import annotations

import os
import subprocess
import sys

from tpk_horovod.build_machine import BuildError

PROCESSES = 2


def prove(python: str = sys.executable, timeout: float = 300.0) -> None:
    """Run this file in two processes that communicate over the loopback interface.

    Args:
        python: the interpreter that has Horovod.
        timeout: the time limit in seconds; importing TensorFlow takes most of the time.

    Raises:
        BuildError: if the test fails.
    """
    command = [python, "-m", "horovod.runner.launch", "-np", str(PROCESSES), "--gloo", "--network-interfaces", "lo"]
    command += [python, "-m", "tpk_horovod.build_proof"]
    settings = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "HOROVOD_CPU_OPERATIONS": "gloo"}
    try:
        ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings}, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"two processes on this host did not sum a tensor with Horovod in {timeout:g} s.") from error
    if ended.returncode or ended.stdout.count("sums and broadcasts") != PROCESSES:
        raise BuildError(
            "Horovod is installed, but two processes on this host could not sum a tensor with it:\n"
            + (ended.stdout + ended.stderr)[-3000:]
        )


def _sum_and_broadcast() -> None:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        numbers = tf.range(1000.0) * (rank + 1)
        total, first = sess.run([hvd.allreduce(numbers, op=hvd.Sum), hvd.broadcast(numbers, root_rank=0)])
    assert size == PROCESSES, size
    assert (total == [number * (1 + 2) for number in range(1000)]).all(), total
    assert (first == list(range(1000))).all(), first
    print(f"rank {rank} sums and broadcasts")
    hvd.shutdown()


if __name__ == "__main__":
    _sum_and_broadcast()
