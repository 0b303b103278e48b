"""Run programs for Estimator, each in a directory of its own, where it writes `model` and what it prints.

`python run_programs.py OUT NAME…` runs them with TensorFlow's Estimator, and
`python -m tpk_tensorflow1 run_programs.py OUT NAME…` with this package.
"""

import contextlib
import importlib
import io
import os
import random
import runpy
import sys
import traceback
import zlib
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import random_seed

HERE = Path(__file__).resolve().parent
_drawn = WeakKeyDictionary()


def seeds(op_seed):
    """Return seeds that are independent of the number of ops, which differs between versions of TensorFlow.

    Initializers use the name of the variable, and other ops are numbered.
    """
    graph = tf.get_default_graph()
    scope = graph.get_name_scope()
    if op_seed is not None:
        return 11, op_seed
    if "/Initializer/" in f"{scope}/":
        return 12, zlib.crc32(scope.encode())
    _drawn[graph] = _drawn.get(graph, 0) + 1
    return 13, _drawn[graph]


def run(path):
    """Run a program as `__main__`; return what it prints."""
    flags = set(tf.app.flags.FLAGS)
    sys.argv[:] = [path]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            if tf.__name__.startswith("tensorflow"):
                runpy.run_path(path, run_name="__main__")
            else:
                importlib.import_module("tpk_tensorflow1.runner.script").run_script(path)
    except SystemExit as error:  # of `tf.app.run`
        if error.code:
            raise
    finally:
        for name in set(tf.app.flags.FLAGS) - flags:
            delattr(tf.app.flags.FLAGS, name)
    return printed.getvalue()


def main(out, names):
    random_seed.get_seed = seeds
    tf.disable_v2_behavior()
    for name in names:
        directory = Path(out, name)
        directory.mkdir(parents=True, exist_ok=True)
        os.chdir(str(directory))
        random.seed(11)
        np.random.seed(11)
        try:
            Path("printed.txt").write_text(run(str(HERE / "programs" / (name + ".py"))))
        except Exception:
            Path("error.txt").write_text(traceback.format_exc())


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), sys.argv[2:])
