"""Run a script with tensorpack 0.11: `python with_tensorpack.py script.py args…`."""

from __future__ import annotations

import builtins
import sys
from types import ModuleType, SimpleNamespace

import cv2
import numpy
import tensorflow
from tensorflow.python.framework import graph_util


def prepare():
    """Restore names of NumPy, TensorFlow and OpenCV that tensorpack and scripts use and that have been removed."""
    numpy.bool, numpy.int, numpy.float, numpy.object = bool, int, float, object
    for ours, theirs in ((tensorflow, tensorflow.compat.v1), (tensorflow.train, tensorflow.compat.v1.train)):
        for name in set(dir(theirs)) - set(dir(ours)):
            setattr(ours, name, getattr(theirs, name))
    v1 = tensorflow.compat.v1
    graph_util.convert_variables_to_constants = v1.graph_util.convert_variables_to_constants
    v1.contrib = contrib = ModuleType("tensorflow.contrib")
    contrib.rnn = SimpleNamespace(
        DropoutWrapper=v1.nn.rnn_cell.DropoutWrapper,
        MultiRNNCell=v1.nn.rnn_cell.MultiRNNCell,
        static_rnn=v1.nn.static_rnn,
    )
    contrib.layers = SimpleNamespace(xavier_initializer=v1.glorot_uniform_initializer)
    sys.modules["tensorflow.contrib"] = contrib
    rotation = cv2.getRotationMatrix2D
    # It accepted arrays with one element as numbers.
    cv2.getRotationMatrix2D = lambda center, angle, scale: rotation(center, float(angle), float(scale))
    v1.disable_v2_behavior()
    v1.enable_resource_variables()


def run_script(path, arguments):
    """Run the script as `__main__`."""
    # tensorpack never supported top-level names of TensorFlow 1 on 2.x; scripts that use them import the v1 module.
    with open(path) as file:
        source = file.read().replace("import tensorflow as tf", "import tensorflow.compat.v1 as tf")
    sys.argv[:] = [path, *arguments]
    sys.path[0] = ""
    main = ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = main
    exec(compile(source, path, "exec"), main.__dict__)


if __name__ == "__main__":
    prepare()
    run_script(sys.argv[1], sys.argv[2:])
