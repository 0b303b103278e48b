import numpy as np
import tensorflow as tf
from tensorflow.contrib import data


def _elements(dataset):
    element = dataset.make_one_shot_iterator().get_next()
    elements = []
    with tf.Session() as sess:
        try:
            while len(elements) < 50:
                elements.append(sess.run(element))
        except tf.errors.OutOfRangeError:
            pass
    return elements


def _numbers(n=10):
    return tf.data.Dataset.range(n)


def _pairs(n=7):
    return tf.data.Dataset.from_tensor_slices((np.arange(n), np.arange(n, dtype=np.float32) / 2))


def transformations():
    words = tf.data.Dataset.from_tensor_slices(np.arange(1, 6)).map(lambda n: tf.fill([n], n))
    uneven = _numbers(4)
    applied = {
        "map and batch": _numbers().apply(data.map_and_batch(lambda x: x * 2, 3)),
        "map and batch, full": _numbers().apply(data.map_and_batch(lambda x: x * 2, 3, drop_remainder=True)),
        "shuffle and repeat": _numbers().apply(data.shuffle_and_repeat(1, 2)),
        "unbatch": _numbers().batch(3).apply(data.unbatch()),
        "full batches": _pairs().apply(data.batch_and_drop_remainder(3)),
        "full padded batches": words.apply(data.padded_batch_and_drop_remainder(2, [None])),
        "windows": _numbers(6).apply(data.sliding_window_batch(3)),
        "windows of pairs": _pairs().apply(data.sliding_window_batch(3, window_shift=2)),
        "sparse windows": _numbers(9).apply(data.sliding_window_batch(3, stride=1, window_stride=2)),
        "interleaved": _numbers(3).apply(
            data.parallel_interleave(lambda x: tf.data.Dataset.from_tensors(x).repeat(3), cycle_length=2)
        ),
        "one after the other": _numbers(2).apply(data.sloppy_interleave(lambda x: _numbers(3), cycle_length=1)),
        "enumerated": uneven.apply(data.enumerate_dataset(5)),
        "groups": _numbers(8).apply(
            data.group_by_window(key_func=lambda x: x % 2, reduce_func=lambda key, group: group.batch(4), window_size=4)
        ),
        "buckets": words.apply(
            data.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [3], [2, 2], padded_shapes=[None])
        ),
        "sums": _numbers(5).apply(data.scan(np.int64(0), lambda state, x: (state + x, state + x))),
        "without errors": uneven.map(lambda x: tf.check_numerics(1 / tf.cast(x, tf.float32), "")).apply(
            data.ignore_errors()
        ),
        "counter": data.Counter(3, 2).take(3),
        "prefetched": uneven.apply(data.prefetch_to_device("/cpu:0")),
        "chosen": data.choose_from_datasets(
            [_numbers(3), uneven], tf.data.Dataset.from_tensor_slices([1, 0, 1]).map(lambda x: tf.cast(x, tf.int64))
        ),
        "unique": tf.data.Dataset.from_tensor_slices([1, 1, 2, 1]).apply(data.unique()),
    }
    return {name: _elements(dataset) for name, dataset in applied.items()}


def single_elements():
    return data.get_single_element(_numbers(1))


def csv_files():
    with open("table.csv", "w") as file:
        file.write("a,b\n1,2.5\n3,4.5\n")
    return _elements(data.CsvDataset("table.csv", [tf.int32, tf.float32], header=True))
