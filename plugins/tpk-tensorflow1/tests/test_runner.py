"""Run scripts with `python -m tpk_tensorflow1`, each in a new process."""

from __future__ import annotations

import os
import subprocess
import sys

SESSION_LOOP = """
import sys
import numpy as np
import tensorflow as tf
import tensorflow.contrib.slim as slim
import beside

tf.set_random_seed(1)
x = tf.placeholder(tf.float32, [None, 8, 8, 1])
labels = tf.placeholder(tf.int32, [None])
is_training = tf.placeholder_with_default(False, [])
with slim.arg_scope([slim.conv2d], normalizer_fn=slim.batch_norm, normalizer_params={"is_training": is_training}):
    net = slim.conv2d(x, 4, [3, 3], scope="conv1")
    net = slim.max_pool2d(net, [2, 2])
logits = tf.layers.dense(slim.flatten(net), 2, name="fc")
bias = tf.get_variable("bias", [2], initializer=tf.zeros_initializer())
bias += tf.constant([1.0, 2.0])
cost = tf.losses.sparse_softmax_cross_entropy(labels, logits + bias)
with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
    train_op = tf.train.AdamOptimizer(0.05).minimize(cost)
rng = np.random.RandomState(1)
images, truth = rng.rand(16, 8, 8, 1).astype(np.float32), rng.randint(0, 2, 16)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    feeds = {x: images, labels: truth.astype(np.int), is_training: True}
    costs = [sess.run([cost, train_op], feeds)[0] for _ in range(30)]
    tf.train.Saver().save(sess, "model")
print(__name__, sys.argv, costs[-1] < 0.5 * costs[0], beside.TF is tf, isinstance(bias, tf.Tensor))
print(sorted(name for name in sys.modules if name == "tpk_tensorpack" or name == "tpk.train"))
print(sorted(v.op.name for v in tf.global_variables() if "Adam" not in v.op.name and "_power" not in v.op.name))
"""


CONVOLUTION = ["BatchNorm/beta", "BatchNorm/moving_mean", "BatchNorm/moving_variance", "weights"]


def run(*arguments, directory, **environment):
    return subprocess.run(
        [sys.executable, "-m", "tpk_tensorflow1", *arguments],
        cwd=directory,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_a_session_loop_with_slim_trains_unchanged_and_without_trainers(tmp_path):
    (tmp_path / "train.py").write_text(SESSION_LOOP)
    (tmp_path / "beside.py").write_text("import tensorflow as TF\n")
    done = run("train.py", "--gpu", "0", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "__main__ ['train.py', '--gpu', '0'] True True True",
        "[]",
        str(sorted(["bias", *(f"conv1/{name}" for name in CONVOLUTION), "fc/bias", "fc/kernel"])),
    ]
    assert (tmp_path / "model.index").exists()


def test_a_module_runs_with_relative_imports_and_modules_elsewhere(tmp_path):
    for directory in ("project/translate", "also", "path/site-packages"):
        (tmp_path / directory).mkdir(parents=True)
    for file in ("project/translate/__init__.py", "project/translate/model.py", "also/one.py", "path/two.py"):
        (tmp_path / file).write_text("import tensorflow as tf\n")
    (tmp_path / "path" / "site-packages" / "library.py").write_text("import tensorflow as tf\n")
    (tmp_path / "project" / "translate" / "train.py").write_text(
        """
import sys
import library, one, two
import tensorflow as tf
from . import model
from .model import tf as again

print(__name__, __package__, __file__, sys.argv)
print(all(each is tf for each in (model.tf, again, one.tf, two.tf)), library.tf is tf)
"""
    )
    path = os.pathsep.join(str(tmp_path / each) for each in ("path", "path/site-packages"))
    if "PYTHONPATH" in os.environ:
        path += os.pathsep + os.environ["PYTHONPATH"]
    project = tmp_path / "project"
    done = run("--also", "../also", "-m", "translate.train", "--src=vi", directory=project, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    file = str(project / "translate" / "train.py")
    assert done.stdout.splitlines() == [f"__main__ translate {file} {[file, '--src=vi']}", "True False"]
    missing = run("-m", "translate.nothing", directory=project)
    assert f"No module named 'translate.nothing' in {project} or on sys.path" in missing.stderr


WORKERS = """
import functools
import multiprocessing
import sys
import numpy as np
import tensorflow as tf
import tpk
import beside

@functools.lru_cache(maxsize=None)
def doubled(number):
    return doubled(number - 1) + 2 if number else 0

def graph_of(datapoint):
    with tf.Graph().as_default(), tf.Session() as sess:
        size = tf.placeholder(tf.float32, [None, datapoint[0] / 1]).shape[1].value
        return [doubled(datapoint[0]), beside.squared(datapoint[0]), size]

def tell(queue):
    queue.put((__name__, beside.TF.contrib.slim is tf.contrib.slim, sys.argv[1:]))

if __name__ == "__main__":
    flow = tpk.MultiProcessMapData(tpk.DataFromList([[2], [3]], shuffle=False), 1, graph_of)
    print(list(flow))
    flow.close()
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=tell, args=(queue,))
        process.start()
        print(method, queue.get(timeout=120))
        process.join()
"""
MEMOIZED = """
import functools
import imp
import tensorflow as TF

@functools.lru_cache(maxsize=8)
def squared(number):
    return TF.TensorShape([number, number]).num_elements()
"""


def test_processes_of_a_script_import_as_the_script_does(tmp_path):
    (tmp_path / "train.py").write_text(WORKERS)
    (tmp_path / "beside.py").write_text(MEMOIZED)
    done = run("train.py", "--epochs=1", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[[4, 4, 2], [6, 9, 3]]",
        "fork ('__main__', True, ['--epochs=1'])",
        "spawn ('__mp_main__', True, ['--epochs=1'])",
    ]


REGULARIZED = """
import glob
import tensorflow as tf
from tensorflow.python import pywrap_tensorflow

tf.get_variable("w", [3], initializer=tf.ones_initializer(), regularizer=tf.nn.l2_loss)
losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
averages = tf.train.ExponentialMovingAverage(0.9)
update = averages.apply(losses)
print(losses[0].op.name, isinstance(losses[0], tf.Tensor), losses[0] in {losses[0]: 1})
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(update)
    print(sess.run(losses[0]))
writer = pywrap_tensorflow.EventsWriter(b"events")
writer.WriteEvent(tf.Event(step=7))
writer.Flush()
print([event.step for event in tf.train.summary_iterator(glob.glob("events.*")[0])])
"""


def test_losses_of_regularizers_are_tensors_and_events_are_written(tmp_path):
    (tmp_path / "train.py").write_text(REGULARIZED)
    done = run("train.py", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["w/Regularizer/L2Loss True True", "1.5", "[0, 7]"]


ON_A_GPU = """
import tensorflow as tf

with tf.device("/gpu:0"):
    cost = tf.square(tf.get_variable("w", [], initializer=tf.ones_initializer()))
    train_op = tf.train.GradientDescentOptimizer(0.25).minimize(cost)
options = tf.ConfigProto(inter_op_parallelism_threads=1)
for config in (None, options):
    with tf.Session(config=config) as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(train_op)
        print(sess.run(cost))
print(options.allow_soft_placement)
with tf.train.MonitoredTrainingSession() as sess:
    sess.run(train_op)
"""


def test_without_gpus_ops_for_gpus_run_on_the_cpu_with_one_warning(tmp_path):
    (tmp_path / "train.py").write_text(ON_A_GPU)
    done = run("train.py", "--gpu", "0", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["0.25", "0.25", "False"]
    assert done.stderr.count("runs the ops that the script places on GPUs on the CPU") == 1


FLOATS = """
import tensorflow as tf

shapes = [
    tf.placeholder(tf.float32, [None, 28 / 2]).shape,
    tf.TensorSpec([28 / 2], tf.float32).shape,
    tf.get_variable("v", [6 / 2, 2]).shape,
    tf.zeros([3, 28 / 2]).shape,
    tf.nn.dropout(tf.ones([2, 4]), 0.5, noise_shape=[2, 4 / 4]).shape,
    tf.layers.dense(tf.ones([2, 4]), 8 / 2).shape,
]
print([shape.as_list() for shape in shapes])
try:
    tf.get_variable("third", [7 / 2, 2])
except TypeError as error:
    print("3.5" in str(error))
"""


def test_a_dimension_may_be_a_whole_float(tmp_path):
    (tmp_path / "train.py").write_text(FLOATS)
    done = run("train.py", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[[None, 14], [14], [3, 2], [3, 14], [2, 4], [2, 4]]", "True"]


def test_an_invalid_command_line_is_a_usage_error(tmp_path):
    done = run("missing.py", directory=tmp_path)
    assert done.returncode == 2
    assert "the script 'missing.py' does not exist" in done.stderr
    assert "expected a script, or -m and a module" in run(directory=tmp_path).stderr
    assert "--also gone: the directory does not exist" in run("--also", "gone", "missing.py", directory=tmp_path).stderr
