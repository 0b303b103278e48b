"""Run several scripts with the same random draws, and record the cost of each step: with tensorpack 0.11, with this
package, or converted to tpk's names.

`python run_compared.py theirs|ours|converted table.json` creates a directory for each script in the current directory.
The table is a list of `{"name": …, "runs": [[script, *arguments], …], "costs": [names of tensors]}`. A script that
fails leaves `error.txt`.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import runpy
import sys
import time
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
    """Return seeds that are independent of the number of ops in a graph: initializers use the name of the variable, and
    other ops are numbered.
    """
    graph = ops.get_default_graph()
    scope = graph.get_name_scope()
    if "/Initializer/" in f"{scope}/":
        return 11, zlib.crc32(scope.encode())
    _drawn[graph] = _drawn.get(graph, 0) + 1
    return 12, _drawn[graph]


def record_costs(callback, trainer, hook="_{}"):
    """Make each training run write the costs of its steps.

    Args:
        callback: the base class of callbacks.
        trainer: the base class of trainers.
        hook: the format of hook names.

    Returns:
        A list to fill with the names of cost tensors, and the list of recorded costs.
    """
    names, found = [], []

    def setup_graph(self):
        self.tensors = [[tower.get_tensor(name + ":0") for tower in self.trainer.towers.training()] for name in names]

    def before_run(self, run_context):
        return tf.compat.v1.train.SessionRunArgs(self.tensors)

    def after_run(self, run_context, run_values):
        # The runtime decides which tower gets which batch.
        found.append([sorted(costs) for costs in run_values.results])

    hooks = {hook.format(each.__name__): each for each in (setup_graph, before_run, after_run)}
    setup_callbacks = trainer.setup_callbacks

    def setup(self, callbacks, monitors):
        more = [type("Costs", (callback,), hooks)()] if names else []
        return setup_callbacks(self, [*callbacks, *more], monitors)

    trainer.setup_callbacks = setup
    return names, found


def run_converted(path, arguments):
    """Convert a script and run it as plain Python."""
    script = Path("scripts", Path(path).name)
    script.parent.mkdir(exist_ok=True)
    script.write_text(code(path))
    importlib.import_module("tpk_tensorpack.utils.logger").LOG_DIR = None
    sys.argv[:] = [str(script), *arguments]
    sys.path[0] = str(script.parent.absolute())
    runpy.run_path(str(script), run_name="__main__")


@functools.cache
def code(path):
    """Return the converted source of a script."""
    return importlib.import_module("tpk_tensorpack.port").convert(Path(path).read_text(), path).code


def wait_for_next_second():
    now = int(time.time())
    while int(time.time()) == now:
        time.sleep(0.01)


def main(whose, table):
    """Run the scripts."""
    random_seed.get_seed = seeds
    rows = json.loads(Path(table).read_text())
    package = "tensorpack" if whose == "theirs" else "tpk_tensorpack"
    if whose == "theirs":
        with_tensorpack.prepare()
        run_script = with_tensorpack.run_script
    elif whose == "ours":
        script = importlib.import_module("tpk_tensorflow1.runner.script")
        script.use_tensorflow1(resource_variables=True)
        run_script = importlib.import_module("tpk_tensorpack.runner").run_script
    else:
        run_script = run_converted
        # Some of them enable TensorFlow 1 behavior, which cannot be disabled.
        rows.sort(key=lambda row: "disable_v2_behavior" in code(row["runs"][0][0]))
    fix_rng_seed = importlib.import_module(f"{package}.utils.utils").fix_rng_seed
    if whose == "converted":
        tpk = importlib.import_module("tpk")
        names, found = record_costs(tpk.Callback, tpk.Trainer, "{}")
    else:
        callbacks, train = (importlib.import_module(f"{package}.{room}") for room in ("callbacks", "train"))
        names, found = record_costs(callbacks.Callback, train.Trainer)
    root = Path.cwd()
    for row in rows:
        os.makedirs(root / row["name"])
        os.chdir(root / row["name"])
        names[:], found[:] = row["costs"], []
        for path, *arguments in row["runs"]:
            print("run_compared:", path, *arguments, flush=True)
            tf.compat.v1.reset_default_graph()
            fix_rng_seed(11)
            np.random.seed(11)
            # TensorFlow names event files by the second: two runs in the same one would share a file.
            wait_for_next_second()
            try:
                run_script(path, arguments)
            except BaseException:
                Path("error.txt").write_text(traceback.format_exc())
                break
        np.save("costs.npy", np.array(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
    # Threads of scripts may wait for each other forever, but the process must exit.
    sys.stdout.flush()
    atexit._run_exitfuncs()
    os._exit(0)
