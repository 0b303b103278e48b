"""Large gradients of processes of one host, which travel through shared memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import collective_trainings as trainings
import numpy as np
import pytest
import tensorflow as tf
from tpk_distributed import CollectiveStrategy

import tpk

pytestmark = pytest.mark.once

v1 = tf.compat.v1

QUICK = {"timeouts": {"heartbeat": 15.0}}

# Parts that end within a tensor, one that is smaller than a part, and a scalar.
SHAPES = [[3], [1100, 1000], [], [7, 1], [129, 1001]]


def mapped():
    """The names of the memory without a name that this process has mapped."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if "tpk-gradients" in line]


def reduce(communication, average, pack_bytes, dtype):
    strategy = CollectiveStrategy(communication=communication, average=average, pack_bytes=pack_bytes)
    strategy.join()
    rng = np.random.default_rng(strategy.rank)
    steps = [[rng.normal(size=shape).astype(dtype) for shape in SHAPES] for _ in range(4)]
    try:
        with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
            given = [v1.placeholder(dtype, shape) for shape in SHAPES]
            reduced = strategy.reduce_over_processes(given)
            # What TensorFlow computes in place is nobody else's.
            changed = [tensor * 2 for tensor in reduced]
            config = strategy.session_config(v1.ConfigProto())
            with strategy.session_creator(config).create_session(graph) as sess:
                results = [
                    sess.run([reduced, changed], dict(zip(given, step, strict=True)))
                    for step in steps
                    for _ in range(2)
                ]
        return steps, results, len(mapped())
    finally:
        strategy.leave()


@pytest.mark.parametrize(
    ("workers", "average", "pack_bytes", "dtype"),
    [(2, True, 1 << 25, np.float32), (3, False, 1 << 25, np.float64), (2, True, 0, np.float64)],
)
def test_it_reduces_as_the_ring_does(launch, workers, average, pack_bytes, dtype):
    returned = launch(reduce, workers=workers, args=("shared_memory", average, pack_bytes, dtype)).returned()
    by_ring = launch(reduce, workers=workers, args=("ring", average, pack_bytes, dtype)).returned()
    assert all(count >= workers for _, _, count in returned)
    assert not any(count for _, _, count in by_ring)
    combine = np.mean if average else np.sum
    for number in range(8):
        for position in range(len(SHAPES)):
            given = [steps[number // 2][position] for steps, _, _ in returned]
            reduced, changed = returned[0][1][number]
            np.testing.assert_allclose(reduced[position], combine(given, 0), rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(changed[position], reduced[position] * 2)
            for _, results, _ in returned[1:]:
                assert results[number][0][position].tobytes() == reduced[position].tobytes()
            if workers == 2:  # Of two, there is only one order to add them up.
                np.testing.assert_array_equal(by_ring[0][1][number][0][position], reduced[position])


class Wide(trainings.Model):
    """Its gradients are of 4.8 MB, in one pack."""

    def build_graph(self, x, y):
        hidden = tpk.layers.dense(x, 1000, activation=tf.tanh, kernel_initializer=v1.glorot_uniform_initializer(seed=1))
        for seed in (2, 3):
            initializer = v1.glorot_uniform_initializer(seed=seed)
            hidden = tpk.layers.dense(hidden, 700, activation=tf.tanh, kernel_initializer=initializer)
        return tf.reduce_mean((tf.reduce_mean(hidden, 1, keepdims=True) - y) ** 2, name="cost")


def train(communication, optimizer="adam", callbacks=(), steps=6, data=None):
    values = trainings.Values()
    model = Wide(optimizer)
    trainer = tpk.SingleCostTrainer(tpk.use("collective", devices=2, communication=communication, **QUICK))
    data = tpk.FeedInput(trainings.batches(4 * steps) if data is None else data)
    trainer.setup_graph(model.get_input_signature(), data, model.build_graph, model.get_optimizer)
    trainer.train(callbacks=[*callbacks, values], steps_per_epoch=steps, max_epoch=1)
    return values.values, len(mapped())


@pytest.mark.parametrize("optimizer", ["adam", "accumulating adam"])
def test_a_training_takes_it_by_itself_and_ends_with_the_bits_of_the_ring(launch, optimizer):
    (first, mapped_first), (second, _) = launch(train, args=("auto", optimizer)).returned()
    (by_ring, mapped_by_ring), _ = launch(train, args=("ring", optimizer)).returned()
    assert mapped_first and not mapped_by_ring
    for name, value in by_ring.items():
        assert first[name].tobytes() == second[name].tobytes() == value.tobytes(), name


def train_forever():
    train("shared_memory", callbacks=[trainings.Steps()], steps=40000, data=trainings.batches(8) * 20000)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_the_other_ends_when_one_does_not_answer_and_nothing_is_left(launch, signum):
    before = set(os.listdir("/dev/shm"))
    running = launch(train_forever)
    for worker in running.workers:
        worker.wait_for("step 3")
    running.workers[1].send(signum)
    outcome = running.workers[0].wait()
    assert outcome.status == 1
    assert "tpk.errors.PeerError: rank 1" in outcome.stderr, outcome.stderr[-3000:]
    running.workers[1].send(signal.SIGKILL)
    running.workers[1].send(signal.SIGCONT)
    running.wait()
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "tpk-gradients" in name]


def train_on_two_hosts(communication):
    """Train as if the others were on another host, where the same process and descriptor have another file."""
    write = os.pwrite
    os.pwrite = lambda descriptor, _, offset: write(descriptor, b"of another host", offset)
    _, mapped_memories = train(communication)
    return mapped_memories


def test_between_hosts_there_is_none(launch):
    assert launch(train_on_two_hosts, args=("auto",)).returned() == [0, 0]
    for outcome in launch(train_on_two_hosts, args=("shared_memory",)).wait():
        assert outcome.status == 1
        assert "ConfigError: communication 'shared_memory' needs processes of one user" in outcome.stderr
