"""The collective operations and the process_group between real processes, without a training around them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import tensorflow as tf
from tpk_distributed import CollectiveStrategy

v1 = tf.compat.v1

DTYPES = (
    ["float32", "float64", "float16", "bfloat16", "complex64", "complex128", "bool"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + ["float8_e5m2"]
)


def in_session(strategy, build):
    """Join, build, run what `build` returns in a session of the strategy, and leave."""
    strategy.join()
    try:
        with tf.Graph().as_default():
            run = build()
            sess = strategy.session_creator(strategy.session_config(v1.ConfigProto())).create_session(
                v1.get_default_graph()
            )
            with sess:
                return run(sess)
    finally:
        strategy.leave()


def reduce_dense(pack_bytes, compression=None):
    strategy = CollectiveStrategy(devices=["/cpu:0", "/cpu:1"], pack_bytes=pack_bytes, compression=compression)
    rng = np.random.default_rng(strategy.rank)
    shapes = [[3], [200, 2], [], [1000], [7, 1]]
    dtypes = [np.float32, np.float32, np.float64, np.float16, np.float32]
    values = [rng.normal(size=shape).astype(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    values.append((rng.normal(size=[4]) + 1j * rng.normal(size=[4])).astype(np.complex64))

    def build():
        with tf.device("/cpu:0"):
            means = strategy.reduce_over_processes([tf.constant(value) for value in values])
        with tf.device("/cpu:1"):
            means = [tf.identity(mean) for mean in means]
        return lambda sess: [sess.run(means) for _ in range(3)][-1]

    return values, in_session(strategy, build)


@pytest.mark.parametrize("pack_bytes", [0, 1000, 1 << 20])
@pytest.mark.parametrize("workers", [2, 3])
def test_means_are_those_of_all_processes_and_the_same_bits_in_each(launch, workers, pack_bytes):
    returned = launch(reduce_dense, workers=workers, args=(pack_bytes,)).returned()
    given = [values for values, _ in returned]
    for position, mean in enumerate(returned[0][1]):
        expected = np.mean([values[position] for values in given], 0)
        assert mean.dtype == given[0][position].dtype
        np.testing.assert_allclose(mean, expected, rtol=2e-3 if mean.dtype == np.float16 else 1e-5, atol=1e-6)
        for _, means in returned:
            assert means[position].tobytes() == mean.tobytes()


@pytest.mark.parametrize(("compression", "precision"), [("fp16", 2**-10), ("bf16", 2**-7)])
def test_compressed_means_are_those_of_all_but_for_rounding(launch, compression, precision):
    returned = launch(reduce_dense, workers=3, args=(1000, compression)).returned()
    given = [values for values, _ in returned]
    differences = []
    for position, mean in enumerate(returned[0][1]):
        expected = np.mean([values[position] for values in given], 0)
        assert mean.dtype == given[0][position].dtype
        np.testing.assert_allclose(mean, expected, rtol=0, atol=3 * precision)
        differences.append(np.max(np.abs(mean - expected)))
        for _, means in returned:
            assert means[position].tobytes() == mean.tobytes()
    # They were compressed.
    assert max(differences) > 2**-14


def reduce_slices(compression=None):
    strategy = CollectiveStrategy(compression=compression)
    rank = strategy.rank
    # None in one process, none in any, different counts.
    counts = [(0, 2), (0, 0), (3, 1), (5, 5)]

    def build():
        count = v1.placeholder(tf.int32, [])
        rows = tf.range(count)
        slices = tf.IndexedSlices(
            tf.cast(rows[:, None], tf.float32) + tf.constant([[10.0 * rank, 0.0]]), rows * 2, tf.constant([20, 2])
        )
        (mean,) = strategy.reduce_over_processes([slices])
        assert isinstance(mean, tf.IndexedSlices)
        dense = tf.convert_to_tensor(mean)
        return lambda sess: [sess.run(dense, {count: each[rank]}) for each in counts]

    return in_session(strategy, build)


@pytest.mark.parametrize("compression", [None, "fp16", "bf16"])
def test_the_mean_of_sparse_gradients_has_the_slices_of_all_processes(launch, compression):
    # Their values are small whole numbers, which compression leaves as they are.
    first, second = launch(reduce_slices, args=(compression,)).returned()
    np.testing.assert_array_equal(first, second)
    for counts, mean in zip([(0, 2), (0, 0), (3, 1), (5, 5)], first, strict=True):
        expected = np.zeros([20, 2], np.float32)
        for rank, count in enumerate(counts):
            for row in range(count):
                expected[2 * row] += [(row + 10 * rank) / 2, row / 2]
        np.testing.assert_allclose(mean, expected)


def broadcast(dtypes, pack_bytes):
    strategy = CollectiveStrategy(devices=["/cpu:0", "/cpu:1"], pack_bytes=pack_bytes)
    values = np.array([[-2.5, 0.0], [1.25, 3.0]]) + strategy.rank

    def build():
        variables = []
        for number, name in enumerate(dtypes):
            dtype = tf.as_dtype(name)
            value = values if not name.startswith("u") else abs(values)
            initial = tf.cast(tf.cast(value, tf.float32) if dtype != tf.bool else value > 1, dtype)
            with tf.device(f"/cpu:{number % 2}"):
                variables.append(
                    v1.get_variable(f"v{number}", initializer=initial, use_resource=number % 3 > 0 or "float8" in name)
                )
        op = strategy.broadcast_from_chief(variables)

        def run(sess):
            before = [array.tobytes() for array in sess.run(variables)]
            sess.run(op)
            return before, [array.tobytes() for array in sess.run(variables)]

        return run

    return in_session(strategy, build)


@pytest.mark.parametrize("pack_bytes", [0, 1 << 20])
def test_all_get_the_values_of_the_chief_in_any_dtype(launch, pack_bytes):
    (before, chief), (other_before, other) = launch(broadcast, args=(DTYPES, pack_bytes)).returned()
    assert before != other_before
    for name, value, copy, kept in zip(DTYPES, chief, other, before, strict=True):
        assert value == copy == kept, name


def exchange_values():
    strategy = CollectiveStrategy()
    strategy.join()
    try:
        process_group = strategy.process_group
        mine = {"rank": process_group.rank, "data": b"\0" * process_group.rank, "big": bytes(process_group.rank << 20)}
        gathered = process_group.gather_object("values", mine)
        sent = [process_group.broadcast_object(f"round {number}", (process_group.rank, number)) for number in range(20)]
        return process_group.world_size, gathered, sent
    finally:
        strategy.leave()


def test_processes_tell_each_other_values(launch):
    returned = launch(exchange_values, workers=3).returned()
    for world_size, gathered, sent in returned:
        assert world_size == 3
        assert [each["rank"] for each in gathered] == [0, 1, 2]
        assert [len(each["big"]) for each in gathered] == [0, 1 << 20, 2 << 20]
        assert [each["data"] for each in gathered] == [b"", b"\0", b"\0\0"]
        assert sent == [(0, number) for number in range(20)]


def train_twice():
    def mean(start):
        strategy = CollectiveStrategy()

        def build():
            # Of another shape the second time, which TensorFlow would refuse for the same keys.
            (mean,) = strategy.reduce_over_processes([tf.fill([start], float(start + strategy.rank))])
            return lambda sess: (strategy.process_group.gather_object("mean", strategy.rank), sess.run(mean).tolist())

        return in_session(strategy, build)

    return [mean(start) for start in (1, 2, 3)]


def test_a_process_trains_again_with_the_server_that_it_has(launch):
    first, second = launch(train_twice).returned()
    assert first == second == [([0, 1], [start + 0.5] * start) for start in (1, 2, 3)]


def in_different_order():
    strategy = CollectiveStrategy(devices=["/cpu:0", "/cpu:1"], pack_bytes=0)

    def build():
        # Two objectives, apart and together; what is ready first differs between the processes.
        late = tf.linalg.matmul(tf.ones([300, 300]), tf.ones([300, 300]))[0, 0] * 0
        of_each = []
        for objective in range(2):
            slow = objective == strategy.rank
            tensors = [tf.ones([5]) * (index + strategy.rank) + (late if slow else 0) for index in range(40)]
            of_each.append(strategy.reduce_over_processes(tensors))
        return lambda sess: [sess.run(which) for _ in range(5) for which in (of_each[0], of_each[1], of_each)][-1]

    return in_session(strategy, build)


def test_many_operations_in_any_order_do_not_wait_for_each_other(launch):
    returned = launch(in_different_order).returned()
    for of_each in returned:
        for means in of_each:
            np.testing.assert_array_equal(means, [[index + 0.5] * 5 for index in range(40)])
    assert pickle.dumps(returned[0]) == pickle.dumps(returned[1])
