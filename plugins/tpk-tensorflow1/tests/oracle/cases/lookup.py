"""`tf.contrib.lookup`: tables of strings and numbers."""

import tensorflow as tf
from tensorflow.contrib import lookup


def _file():
    with open("words.txt", "w") as file:
        file.write("\n".join(["apple", "pear", "plum"]))
    return "words.txt"


def tables_from_tensors_and_files():
    words = tf.constant(["pear", "fig", "apple"])
    of_file = lookup.index_table_from_file(_file(), num_oov_buckets=1, vocab_size=3)
    of_tensor = lookup.index_table_from_tensor(tf.constant(["apple", "pear"]), default_value=7)
    of_numbers = lookup.index_table_from_tensor(tf.constant([5, 6], tf.int64), num_oov_buckets=2, dtype=tf.int64)
    back = lookup.index_to_string_table_from_file(_file(), default_value="UNK")
    of_list = lookup.index_to_string_table_from_tensor(["a", "b"])
    return {
        "of file": of_file.lookup(words),
        "size": of_file.size(),
        "tensor": of_tensor.lookup(words),
        "numbers": of_numbers.lookup(tf.constant([6, 5], tf.int64)),
        "back": back.lookup(tf.constant([2, 0, 9], tf.int64)),
        "list": of_list.lookup(tf.constant([1, 4], tf.int64)),
        "sparse": of_tensor.lookup(tf.SparseTensor([[0, 1], [1, 0]], ["pear", "fig"], [2, 2])),
    }


def hash_tables():
    keys, values = tf.constant(["a", "b"]), tf.constant([1.5, 2.5])
    table = lookup.HashTable(lookup.KeyValueTensorInitializer(keys, values), -1.0)
    initializer = lookup.TextFileIdTableInitializer(_file())
    ids = lookup.IdTableWithHashBuckets(lookup.HashTable(initializer, -1), 2)
    strings = lookup.TextFileStringTableInitializer(_file())
    columns = lookup.TextFileInitializer(
        _file(), tf.string, lookup.TextFileIndex.WHOLE_LINE, tf.int64, lookup.TextFileIndex.LINE_NUMBER
    )
    return {
        "values": table.lookup(tf.constant(["b", "c"])),
        "ids": ids.lookup(tf.constant(["plum", "apple"])),
        "strings": lookup.HashTable(strings, "?").lookup(tf.constant([1, 5], tf.int64)),
        "lines": lookup.HashTable(columns, -1).lookup(tf.constant(["plum", "fig"])),
    }


def tables_that_change():
    table = lookup.MutableHashTable(tf.string, tf.int64, -1)
    with tf.control_dependencies([table.insert(tf.constant(["x", "y"]), tf.constant([3, 4], tf.int64))]):
        found = table.lookup(tf.constant(["y", "z"]))
    return {"found": found}
