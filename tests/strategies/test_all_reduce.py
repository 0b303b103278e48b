from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.strategies.all_reduce import MODES, all_reduce, choose_mode, reduce_column

v1 = tf.compat.v1

ON_CPUS = ["copy", "cpu"]
# One element, fewer than towers, odd, empty, scalar, a matrix, and enough for full chunks.
SHAPES = [(1,), (3,), (7,), (0,), (), (2, 5), (4, 0), (13, 3)]
TOLERANCE = {np.float16: 5e-3, np.float32: 1e-6, np.float64: 1e-14}


def cpus(count):
    return [f"/device:CPU:{index}" for index in range(count)]


def gpus(count):
    """Return GPUs of another process, because the GPUs of this host may be parts of one."""
    return [f"/job:worker/task:1/device:GPU:{index}" for index in range(count)]


def session(count):
    return v1.Session(config=v1.ConfigProto(device_count={"CPU": count}))


def numbers(count, shapes=SHAPES, dtype=np.float32):
    """For each tower an array of each shape."""
    rng = np.random.default_rng(count)
    return [[rng.normal(size=shape).astype(dtype) for shape in shapes] for _ in range(count)]


def constants(arrays, devices):
    rows = []
    for device, own in zip(devices, arrays, strict=True):
        with tf.device(device):
            rows.append([tf.constant(array) for array in own])
    return rows


def ops_of(pack_bytes, shapes, mode="copy", count=2, dtype=np.float32):
    with tf.Graph().as_default() as graph:
        rows = constants(numbers(count, shapes, dtype), cpus(count))
        before = len(graph.get_operations())
        all_reduce(rows, cpus(count), mode, pack_bytes)
        return graph.get_operations()[before:]


def sums(operations):
    return [op for op in operations if op.type in ("AddN", "AddV2")]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_every_tower_gets_the_same_mean_on_its_device(count):
    arrays = numbers(count)
    with tf.Graph().as_default(), session(count) as sess:
        rows = constants(arrays, cpus(count))
        results = {}
        for mode in ON_CPUS:
            for pack_bytes in (0, 24, 1 << 20):
                means = all_reduce(rows, cpus(count), mode, pack_bytes)
                assert [{mean.device for mean in row} for row in means] == [{device} for device in cpus(count)]
                assert [mean.shape for mean in means[0]] == SHAPES
                results[f"{mode}, {pack_bytes}"] = means
        found = sess.run(results)
    for case, rows in found.items():
        for own in rows:
            for mean, first, *column in zip(own, rows[0], *arrays, strict=True):
                np.testing.assert_array_equal(mean, first, err_msg=case)
                np.testing.assert_allclose(mean, np.mean(column, axis=0), rtol=1e-5, atol=1e-6, err_msg=case)


@pytest.mark.parametrize("mode", ON_CPUS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_mean_has_the_dtype_of_the_tensors(dtype, mode):
    arrays = numbers(3, dtype=dtype)
    with tf.Graph().as_default(), session(3) as sess:
        found = sess.run(all_reduce(constants(arrays, cpus(3)), cpus(3), mode, 1 << 20))
    tolerance = TOLERANCE[dtype]
    for mean, *column in zip(found[1], *arrays, strict=True):
        assert mean.dtype == dtype
        np.testing.assert_allclose(mean, np.mean(column, axis=0), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mode", ON_CPUS)
def test_bfloat16(mode):
    with tf.Graph().as_default(), session(2) as sess:
        rows = [[tf.fill([5], tf.constant(value, tf.bfloat16))] for value in (1.0, 2.0)]
        ((mean,), _) = all_reduce(rows, cpus(2), mode)
        assert mean.dtype == tf.bfloat16
        np.testing.assert_array_equal(sess.run(tf.cast(mean, tf.float32)), [1.5] * 5)


@pytest.mark.parametrize("static", [None, [None, 3], [None, None]])
@pytest.mark.parametrize("mode", ON_CPUS)
def test_shapes_may_be_known_only_in_the_step(mode, static):
    arrays = numbers(3, [(5, 3), (2,), (0,)])
    with tf.Graph().as_default(), session(3) as sess:
        rows = constants(arrays, cpus(3))
        for index, (row, own) in enumerate(zip(rows, arrays, strict=True)):
            with tf.device(cpus(3)[index]):
                row[0] = v1.placeholder_with_default(own[0], static)
        means = all_reduce(rows, cpus(3), mode, 1 << 20)
        found = sess.run(means)
    for own in found:
        for mean, *column in zip(own, *arrays, strict=True):
            np.testing.assert_allclose(mean, np.mean(column, axis=0), rtol=1e-5, atol=1e-6)


def slices(values, indices, rows=4):
    return tf.IndexedSlices(tf.constant(values), tf.constant(indices), tf.constant([rows, 2]))


@pytest.mark.parametrize("mode", ON_CPUS)
def test_sparse_gradients_stay_sparse(mode):
    with tf.Graph().as_default(), session(2) as sess:
        first = slices([[1.0, 2.0], [3.0, 4.0]], [3, 0])
        second = slices([[5.0, 6.0]], [3])
        rows = [[tf.ones([3]), first, tf.ones([])], [tf.zeros([3]), second, tf.zeros([])]]
        means = all_reduce(rows, cpus(2), mode, 1 << 20)
        assert all(isinstance(row[1], tf.IndexedSlices) for row in means)
        found = sess.run([[row[0], tf.convert_to_tensor(row[1]), row[2]] for row in means])
    for dense, sparse, scalar in found:
        np.testing.assert_array_equal(dense, [0.5] * 3)
        np.testing.assert_array_equal(sparse, [[1.5, 2], [0, 0], [0, 0], [3, 4]])
        assert scalar == 0.5


def test_sparse_in_one_tower_and_dense_in_another():
    dense = np.arange(8, dtype=np.float32).reshape(4, 2)
    for sparse_first in (True, False):
        with tf.Graph().as_default(), session(2) as sess:
            row = [slices([[2.0, 4.0]], [1]), tf.constant(dense)]
            column = row if sparse_first else row[::-1]
            means = all_reduce([[each] for each in column], cpus(2))
            found = sess.run([tf.convert_to_tensor(mean) for (mean,) in means])
        expected = (dense + np.array([[0, 0], [2, 4], [0, 0], [0, 0]])) / 2
        np.testing.assert_array_equal(found, [expected, expected])


def test_the_reduce_column_a_column():
    with tf.Graph().as_default(), session(1) as sess:
        one = tf.constant([1.0, 2.0])
        assert reduce_column([one]) is one
        mixed = reduce_column([slices([[2.0, 4.0]], [1]), slices([[2.0, 4.0]], [1]), tf.ones([4, 2])])
        assert isinstance(mixed, tf.IndexedSlices)
        found = sess.run([reduce_column([one, one * 3]), tf.convert_to_tensor(mixed)])
    np.testing.assert_array_equal(found[0], [2, 4])
    np.testing.assert_allclose(found[1], np.array([[1, 1], [5, 9], [1, 1], [1, 1]]) / 3, rtol=1e-6)


def sizes_that_travel(pack_bytes, shapes, dtype=np.float32):
    return [op.outputs[0].shape.num_elements() for op in sums(ops_of(pack_bytes, shapes, dtype=dtype))]


@pytest.mark.parametrize(
    ("pack_bytes", "expected"),
    [
        (0, [10, 10, 10, 100, 10, 10]),
        (40, [10, 10, 10, 100, 10, 10]),  # smaller than that: 40 bytes are not
        (41, [10, 10, 10, 100, 10, 10]),
        (80, [20, 20, 100, 10]),
        (120, [30, 100, 20]),
        (399, [50, 100]),
        (401, [30, 100, 20]),  # 400 bytes fit into a pack, but no other does beside them
        (440, [30, 110, 10]),
        (1 << 20, [150]),
    ],
)
def test_tensors_travel_together_up_to_the_size_of_a_pack(pack_bytes, expected):
    assert sizes_that_travel(pack_bytes, [(10,), (2, 5), (10,), (100,), (10,), (10,)]) == expected


def test_an_empty_tensor_joins_no_large_one():
    assert sizes_that_travel(100, [(100,), (0,), (10,)]) == [100, 10]
    assert sizes_that_travel(0, [(10,), (0,)]) == [10, 0]


def test_dtypes_travel_apart():
    with tf.Graph().as_default() as graph:
        rows = [[tf.ones([2]), tf.ones([3]), tf.ones([4], tf.float64), tf.ones([5])]] * 2
        means = all_reduce(rows, cpus(2), "copy", 1 << 20)
        assert [mean.dtype for mean in means[0]] == [tf.float32, tf.float32, tf.float64, tf.float32]
        assert [op.outputs[0].shape.num_elements() for op in sums(graph.get_operations())] == [10, 4]


@pytest.mark.parametrize("mode", ON_CPUS)
def test_packing_saves_transfers_between_devices(mode):
    def transfers(pack_bytes):
        operations = ops_of(pack_bytes, [(8,)] * 20, mode, 4)
        edges = [(op.device, tensor) for op in operations for tensor in op.inputs if op.device]
        return len({(device, tensor.ref()) for device, tensor in edges if tensor.device not in ("", device)})

    assert transfers(1 << 20) <= transfers(0) / 10
    assert len(sums(ops_of(1 << 20, [(8,)] * 20, mode, 4))) <= len(sums(ops_of(0, [(8,)] * 20, mode, 4))) / 20


def test_the_devices_take_turns_in_summing():
    assert [op.device for op in sums(ops_of(0, [(2,)] * 4))] == ["/device:CPU:0", "/device:CPU:1"] * 2


def test_nccl_reduces_on_each_gpu():
    with tf.Graph().as_default() as graph:
        rows = constants(numbers(3, [(4,), (5,), (600,)]), gpus(3))
        with tf.device("/cpu:0"):
            rows[1][2] = tf.zeros([600])  # as the gradient of what the user put on the CPU
        means = all_reduce(rows, gpus(3), "nccl", 100)
        assert [{mean.device for mean in row} for row in means] == [{device} for device in gpus(3)]
        reductions = [op for op in graph.get_operations() if op.type == "NcclAllReduce"]
    assert [op.device for op in reductions] == gpus(3) * 2, "two small tensors in a pack, and a large one"
    for op in reductions:
        assert op.inputs[0].device == op.device
        assert op.get_attr("reduction") == b"sum"
        assert op.get_attr("num_devices") == 3
    names = [op.get_attr("shared_name") for op in reductions]
    assert len(set(names[:3])) == len(set(names[3:])) == 1
    assert names[0] != names[3]


@pytest.mark.parametrize(
    ("mode", "devices", "expected"),
    [
        ("auto", gpus(2), "nccl"),
        ("auto", gpus(1), "copy"),
        ("auto", cpus(2), "copy"),
        ("auto", [*gpus(1), *cpus(1)], "copy"),
        ("hierarchical", gpus(2), "copy"),
        ("gpu", cpus(2), "copy"),
        ("nccl", gpus(2), "nccl"),
    ],
)
def test_which_mode_is_chosen(mode, devices, expected):
    assert choose_mode(mode, devices) == expected


def test_an_unknown_mode_is_an_error_that_lists_them():
    with pytest.raises(ConfigError, match=r"unknown all-reduce mode 'tree'; expected one of " + ", ".join(MODES)):
        choose_mode("tree", cpus(2))


def test_nccl_without_gpus_is_an_error():
    with pytest.raises(ConfigError, match=r"'nccl' needs GPUs, but the devices are .*/device:GPU:0, /device:CPU:0\."):
        choose_mode("nccl", [*gpus(1), *cpus(1)])
