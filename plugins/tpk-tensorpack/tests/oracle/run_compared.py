"""Runs several scripts one after the other, with tensorpack 0.11 or with what stands in for it, such that both draw
the same, and writes down what each step has cost.

`python run_compared.py theirs|ours table.json`, in the directory that gets one for each script. The table is a list of
`{"name": …, "runs": [[script, *arguments], …], "costs": [names of tensors]}`. A script that fails leaves
`error.txt`.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys
import traceback
import zlib
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf
import with_tensorpack
from tensorflow.python.framework import ops, random_seed

_drawn: WeakKeyDictionary = WeakKeyDictionary()


def seeds(op_seed):
    """Seeds that do not depend on how many ops a graph has: an initializer has those of its variable, and what draws
    in each step those of its number.
    """
    graph = ops.get_default_graph()
    scope = graph.get_name_scope()
    if "/Initializer/" in f"{scope}/":
        return 11, zlib.crc32(scope.encode())
    _drawn[graph] = _drawn.get(graph, 0) + 1
    return 12, _drawn[graph]


def record_costs(package):
    """Have each training write the costs of its steps.

    Returns:
        A list, to be set to the names of tensors that are costs, and a function that returns what was recorded.
    """
    callbacks, train = (importlib.import_module(f"{package}.{room}") for room in ("callbacks", "train"))
    names, found = [], []

    class Costs(callbacks.Callback):
        def _setup_graph(self):
            self.tensors = [
                [tower.get_tensor(name + ":0") for tower in self.trainer.towers.training()] for name in names
            ]

        def _before_run(self, _):
            return tf.compat.v1.train.SessionRunArgs(self.tensors)

        def _after_run(self, _, values):
            # Which tower has which batch is up to the runtime.
            found.append([sorted(costs) for costs in values.results])

    setup_callbacks = train.Trainer.setup_callbacks

    def setup(self, callbacks, monitors):
        return setup_callbacks(self, [*callbacks, *([Costs()] if names else [])], monitors)

    train.Trainer.setup_callbacks = setup
    return names, found


def main(whose, table):
    """Run them."""
    random_seed.get_seed = seeds
    if whose == "theirs":
        with_tensorpack.prepare()
        package, run_script = "tensorpack", with_tensorpack.run_script
    else:
        package = "tpk_tensorpack"
        runner = importlib.import_module("tpk_tensorpack.runner.script")
        runner.use_tensorflow1()
        run_script = runner.run_script
    fix_rng_seed = importlib.import_module(f"{package}.utils.utils").fix_rng_seed
    names, found = record_costs(package)
    root = Path.cwd()
    for row in json.loads(Path(table).read_text()):
        os.makedirs(root / row["name"])
        os.chdir(root / row["name"])
        names[:], found[:] = row["costs"], []
        for path, *arguments in row["runs"]:
            print("run_compared:", path, *arguments, flush=True)
            tf.compat.v1.reset_default_graph()
            fix_rng_seed(11)
            np.random.seed(11)
            try:
                run_script(path, arguments)
            except BaseException:
                Path("error.txt").write_text(traceback.format_exc())
                break
        np.save("costs.npy", np.array(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
    # Threads of scripts may wait for ever for each other; but processes are to end.
    sys.stdout.flush()
    atexit._run_exitfuncs()
    os._exit(0)
