"""Run several scripts from the same weights: with the runner, or converted, as plain Python.

`python run_scripts.py runner|converted script.py,argument,… …`, in the directory for their output. Scripts that enable
TensorFlow 1 behavior come last, because it cannot be disabled.
"""

import os
import re
import runpy
import sys
import zlib
from pathlib import Path

import numpy as np
import tensorflow as tf
from tpk_tensorpack.port import convert
from tpk_tensorpack.runner import run_script
from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.utils import fix_rng_seed

import tpk

initialize = tpk.Trainer.initialize


def initialize_alike(self, session_creator=None, session_init=None):
    """Initialize; set the weights to values that depend only on their names, unless a checkpoint is loaded."""
    initialize(self, session_creator, session_init)
    if type(session_init).__name__ not in ("NoneType", "JustCurrentSession") and getattr(session_init, "inits", True):
        return
    with self.graph.as_default():
        for variable in tf.compat.v1.trainable_variables():
            if variable.dtype.is_floating and variable.shape.rank:
                # The variables of other towers are copies.
                name = re.sub(r"^tower\d+/", "", variable.op.name)
                rng = np.random.RandomState(zlib.crc32(name.encode()))
                variable.load(rng.normal(0, 0.1, variable.shape.as_list()), self.sess)


def main(kind, runs):
    """Run the scripts."""
    tpk.Trainer.initialize = initialize_alike
    runs = [run.split(",") for run in runs]
    if kind == "converted":
        os.makedirs("scripts", exist_ok=True)
        for path in {path for path, *_ in runs}:
            Path("scripts", Path(path).name).write_text(convert(Path(path).read_text(), path).code)
        runs = [[os.path.join("scripts", os.path.basename(path)), *arguments] for path, *arguments in runs]
        runs.sort(key=lambda run: "disable_v2_behavior" in Path(run[0]).read_text())
    for path, *arguments in runs:
        print("run_scripts:", path, *arguments, flush=True)
        tf.compat.v1.reset_default_graph()
        fix_rng_seed(11)
        np.random.seed(11)
        if kind == "runner":
            run_script(path, arguments)
        else:
            logger.LOG_DIR = None
            sys.argv[:] = [path, *arguments]
            sys.path[0] = os.path.dirname(os.path.abspath(path))
            runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
