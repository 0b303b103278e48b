"""Run cases and scripts for TensorFlow 1, and record their results.

`python run_compared.py OUT NAME…` runs them with TensorFlow 1.15, and `python -m tpk_tensorflow1 run_compared.py OUT
NAME…` with this package. A name such as `cases/rnn.py:nas_cell` is a function that adds ops to the default graph and
returns what to compare: tensors, operations and plain values, in nested dicts and lists. A name such as
`../scripts/char_rnn.py` is a script that writes `results.npz` to the current directory.

Each of them gets a directory, such as `rnn.nas_cell` and `char_rnn`, with `results.npz`, or with `error.txt` if it
failed. Both sides draw the same random numbers.
"""

import importlib
import os
import runpy
import sys
import traceback
import zlib
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import random_seed

HERE = Path(__file__).resolve().parent
STEPS = 3
_drawn = WeakKeyDictionary()


def seeds(op_seed):
    """Return seeds that are independent of the number of ops in a graph: initializers use the name of the variable, and
    other ops are numbered.
    """
    graph = tf.get_default_graph()
    scope = graph.get_name_scope()
    if op_seed is not None:
        return 11, op_seed
    if "/Initializer/" in f"{scope}/":
        return 12, zlib.crc32(scope.encode())
    _drawn[graph] = _drawn.get(graph, 0) + 1
    return 13, _drawn[graph]


def run_case(path, function):
    """Run a case. If it returns operations, these are training steps: the rest is evaluated before and after each.

    The results have the names, initial values and values of all variables, and the static shape of each tensor.
    """
    fetches = getattr(importlib.import_module(f"cases.{Path(path).stem}"), function)()
    results = {}
    in_graph = {}
    for name, value in flat(fetches):
        if isinstance(value, (tf.Tensor, tf.SparseTensor, tf.Variable, tf.Operation)):
            in_graph[name] = value
        else:
            results[name] = value
    for name, value in in_graph.items():
        if isinstance(value, tf.Tensor):
            results[f"{name}, static shape"] = shape_of(value)
    variables = [each for each in tf.global_variables() if not each.op.name.startswith("tpk_")]
    trainable = set(tf.trainable_variables())
    results["variables"] = [
        " ".join([each.op.name, each.dtype.base_dtype.name, "trainable" if each in trainable else ""])
        for each in variables
    ]
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
        record("initially ", {each.op.name: each for each in variables}, sess, results)
        operations = {name: value for name, value in in_graph.items() if isinstance(value, tf.Operation)}
        values = {name: value for name, value in in_graph.items() if name not in operations}
        record("", values, sess, results)
        for step in range(1, STEPS + 1 if operations else 1):
            sess.run(operations)
            record(f"after step {step} ", values, sess, results)
        if operations:
            record("finally ", {each.op.name: each for each in variables}, sess, results)
    return results


def record(prefix, in_graph, sess, results):
    for name, value in flat(sess.run(in_graph)):
        results[prefix + name] = value


def flat(value, path=""):
    """Yield the path and the value of each leaf of a nested structure."""
    if isinstance(value, dict):
        parts = value.items()
    elif hasattr(value, "_asdict"):
        parts = value._asdict().items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    else:
        if value is not None:
            yield path, value
        return
    for name, part in parts:
        yield from flat(part, f"{path}/{name}" if path else str(name))


def shape_of(tensor):
    """Return the static shape as text: a list, or None if the rank is unknown."""
    shape = tensor.get_shape()
    return str(None if shape.ndims is None else shape.as_list())


def as_array(value):
    """Return an array that can be saved without pickling."""
    array = np.asarray(value)
    if array.dtype == object:
        array = np.array([each.decode() if isinstance(each, bytes) else str(each) for each in array.ravel()])
    return array


def run_script(path):
    """Run a script as `__main__`."""
    before = set(tf.app.flags.FLAGS)
    sys.argv[:] = [path]
    try:
        if tf.__name__ == "tensorflow":
            runpy.run_path(path, run_name="__main__")
        else:
            importlib.import_module("tpk_tensorflow1.runner.script").run_script(path)
    except SystemExit as error:  # of `tf.app.run`
        if error.code:
            raise
    finally:
        for name in set(tf.app.flags.FLAGS) - before:
            delattr(tf.app.flags.FLAGS, name)


def main(out, names):
    random_seed.get_seed = seeds
    sys.path.insert(0, str(HERE))
    for name in names:
        path, _, function = name.partition(":")
        directory = Path(out, ".".join(filter(None, [Path(path).stem, function])))
        directory.mkdir()
        os.chdir(str(directory))
        try:
            with tf.Graph().as_default():
                np.random.seed(11)
                if function:
                    results = run_case(path, function)
                    np.savez("results.npz", **{key: as_array(value) for key, value in results.items()})
                else:
                    run_script(str(HERE / path))
        except Exception:
            Path("error.txt").write_text(traceback.format_exc())


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), sys.argv[2:])
