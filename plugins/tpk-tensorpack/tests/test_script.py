"""Run a script from the command line, in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tpk_tensorflow1.runner.failures import explain_missing_module

SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
from tensorpack.models import Conv2D, LinearWrap
from tensorpack.tfutils import argscope
from tensorpack.tfutils.tower import TowerContext
import beside

x = tf.placeholder(tf.float32, [None, 8, 8, 1])
with TowerContext("", is_training=False), argscope(Conv2D, kernel_size=3, nl=tf.nn.relu):
    y = LinearWrap(x).Conv2D("conv0", 4).MaxPooling("pool", 2).FullyConnected("fc", 2)()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    out = session.run(y, {x: np.ones([3, 8, 8, 1], np.float)})
print(__name__, sys.argv, out.shape, [v.name for v in tf.trainable_variables()], beside.TF is tf)
"""


def run(*arguments, directory):
    return subprocess.run(
        [sys.executable, "-m", "tpk_tensorpack", *arguments],
        cwd=directory,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_a_script_runs_as_it_is_with_bare_names_of_tensorflow_1(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("import tensorflow as TF\n")
    done = run("train.py", "--gpu", "0", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        "__main__ ['train.py', '--gpu', '0'] (3, 2) ['conv0/W:0', 'conv0/b:0', 'fc/W:0', 'fc/b:0'] True"
    )


def test_a_script_that_is_not_there_is_an_error_of_usage(tmp_path):
    done = run("missing.py", directory=tmp_path)
    assert done.returncode == 2
    assert "the script 'missing.py' does not exist" in done.stderr
    assert "--also gone: the directory does not exist" in run("--also", "gone", "missing.py", directory=tmp_path).stderr


WITH_WORKERS = """
import os
import numpy as np
from tensorpack.dataflow import BatchData, MapData, MultiProcessMapData, MultiProcessRunnerZMQ, RNGDataFlow
import augmentation

FACTOR = 1


class Numbers(RNGDataFlow):
    def __len__(self):
        return 6

    def __iter__(self):
        for number in range(6):
            yield [np.float32(number), np.float(self.rng.rand())]


def scaled(point):
    return [point[0] * FACTOR, point[1], os.getpid()]


FACTOR = augmentation.OFFSET = 10
flow = augmentation.Doubled(MapData(Numbers(), scaled))
flow = MultiProcessRunnerZMQ(BatchData(MapData(flow, augmentation.shifted), 2), 1)
flow.reset_state()
values, processes = zip(*[(batch[0], batch[2]) for batch in flow])
print(sorted(set(np.concatenate(values).tolist())) == [10 + 20 * number for number in range(6)])
print(os.getpid() not in np.concatenate(processes))
flow.close()

flow = MultiProcessMapData(Numbers(), 2, lambda point: [augmentation.shifted(scaled(point))[0]], strict=True)
flow.reset_state()
print(sorted(float(value) for (value,) in flow))
flow.close()
"""
BESIDE = """
from tensorpack.dataflow import ProxyDataFlow
import numpy as np

OFFSET = 0


class Doubled(ProxyDataFlow):
    def __iter__(self):
        for point in super().__iter__():
            yield [np.float(point[0] * 2), *point[1:]]


def shifted(point):
    return [point[0] + OFFSET, *point[1:]]
"""


def test_functions_and_classes_of_the_script_go_to_workers_as_they_are_then(tmp_path):
    (tmp_path / "train.py").write_text(WITH_WORKERS)
    (tmp_path / "augmentation.py").write_text(BESIDE)
    done = run("train.py", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == ["True", "True", "[10.0, 20.0, 30.0, 40.0, 50.0, 60.0]"]


def test_an_error_names_the_module_that_is_missing_or_for_python_2(tmp_path):
    (tmp_path / "train.py").write_text("from tensorpack import *\nimport beside\n")
    (tmp_path / "beside.py").write_text("def f(cost):\n    print 'cost', cost\n")
    error = run("train.py", directory=tmp_path).stderr
    assert f"SyntaxError: {tmp_path}/beside.py, line 2, is written for Python 2." in error

    (tmp_path / "beside.py").write_text("import numpy as np\nimport no_such_module\n")
    error = run("train.py", directory=tmp_path).stderr
    assert f"No module named 'no_such_module', which {tmp_path}/beside.py imports in line 2." in error


@pytest.mark.parametrize(("module", "remedy"), [("pycocotools", "pip install pycocotools"), ("cPickle", "'pickle'")])
def test_the_remedy_for_a_missing_module(module, remedy):
    with pytest.raises(ModuleNotFoundError) as caught:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    explain_missing_module(caught.value)
    assert __file__ in str(caught.value) and remedy in str(caught.value)
