"""A residual network in tpk beside TensorFlow's own benchmark of convolutional networks, `tf_cnn_benchmarks`.

python tests/benchmarks/tf_cnn.py ~/benchmarks                 # a checkout of github.com/tensorflow/benchmarks
python tests/benchmarks/tf_cnn.py                              # beside a stand-in for it, which is in here
python tests/benchmarks/tf_cnn.py --only "by hand, no spinning" "by hand, resource variables"

ResNet-20 on synthetic data of the shape of CIFAR-10, batches of 32, NHWC, on the CPU. tf_cnn_benchmarks runs on
TensorFlow 2.15, with the interpreter that runs this script. README.md, beside this file, says what its settings are.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from contenders import Blocks, tpk_clock
from step_overhead import Absence, Result, conditions, do_blocks, race, ratios, report

BATCH, SIZE, CLASSES = 32, 32, 11
IMAGES_PER_EPOCH = 50_000
DECAY, MOMENTUM, EPSILON = 4e-5, 0.9, 1e-5
OFFICIAL = "tf_cnn_benchmarks"
BY_HAND = "by hand, its settings"
TPK = "tpk, all defaults"
REACH = 0.98


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, nargs="?", help="where tf_cnn_benchmarks.py is, or the checkout that has it")
    parser.add_argument("--steps", type=int, default=20, help="steps in a block (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="timed blocks of each process (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each contender (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, metavar="NAME", help="only these besides the baseline")
    args = parser.parse_args()
    script = None if args.path is None else find_official(args.path)
    baseline = BY_HAND if script is None else OFFICIAL
    own = CONTENDERS if args.only is None else [name for name in CONTENDERS if name in (BY_HAND, TPK, *args.only)]
    sources = dict.fromkeys([baseline, *(name for name in own if name != baseline)])

    load = os.getloadavg()[0]
    timings: dict[str, list[float]] = {}
    absent: dict[str, Absence] = {}
    for _ in range(args.rounds):
        more, missing = race(sources, args.steps, args.repeats, False, partial(contend, script))
        for name in missing:  # Ratios are of the same block, so who has failed once has no part in them.
            del sources[name]
            timings.pop(name, None)
        absent.update(missing)
        for name, blocks in more.items():
            timings.setdefault(name, []).extend(blocks)
    if baseline not in timings:
        sys.exit(f"{baseline}, to which all are compared, takes no part: {absent[baseline].reason}")
    about = {
        **conditions(f"{load:.1f} at the start"),
        "blocks": f"{args.repeats} of {args.steps} steps in each of {args.rounds} processes, in turn, after one more",
    }
    report(about, [Result.of(name, timings, baseline) for name in timings], absent, baseline)
    if TPK not in timings:
        return 1
    rate = statistics.median(ratios(timings[baseline], timings[TPK]))
    print(f"{TPK}: {rate:.2f} x its rate (reach: at least {REACH}) {'ok' if rate >= REACH else 'NOT REACHED'}")
    return 0


def contend(
    script: Path | None,
    name: str,
    source: None,
    connection: Connection,
    steps: int,
    count: int,
    place: Path,
    show_output: bool,
) -> None:
    """Be the contender `name`: the main function of its process."""
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
    compete = CONTENDERS[name] if script is None or name != OFFICIAL else partial(official, script=script)
    do_blocks(compete, connection, steps, count, place, show_output)


def find_official(path: Path) -> Path:
    """Return where the benchmark of TensorFlow is."""
    places = [path, path / "scripts" / "tf_cnn_benchmarks", path.parent]
    scripts = [place.absolute() / "tf_cnn_benchmarks.py" for place in places]
    script = next((each for each in scripts if each.is_file()), None)
    if script is None:
        sys.exit(f"{path}: there is no tf_cnn_benchmarks.py; give a checkout of github.com/tensorflow/benchmarks")
    return script


def official(blocks: Blocks, script: Path) -> None:
    """Run the benchmark of TensorFlow, anew for each block, with as many steps to warm up."""
    options = {
        "device": "cpu",
        "data_format": "NHWC",
        "local_parameter_device": "cpu",
        "model": "resnet20",
        "data_name": "cifar10",  # Without a folder of data they are synthetic.
        "batch_size": BATCH,
        "num_warmup_batches": blocks.steps,
        "num_batches": blocks.steps,
        "display_every": blocks.steps,
    }
    command = [sys.executable, str(script), *(f"--{name}={value}" for name, value in options.items())]
    for _ in range(blocks.count):
        blocks.begin()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.findall(r"total images/sec: ([\d.]+)", done.stdout)
        if done.returncode or not found:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
        blocks.last = BATCH / float(found[-1]) * 1e6


# The model: facts of tf_cnn_benchmarks, in the words of this file


def resnet20(convolution: Callable[..., Any], images: Any) -> Any:
    """Build the network; `convolution` is one with batch normalization."""
    import tensorflow as tf

    x = convolution(images, 16, 1)
    for filters in (16, 32, 64):
        for block in range(3):
            strides = 2 if filters > 16 and block == 0 else 1
            inner = tf.nn.relu(convolution(x, filters, strides))
            if strides > 1:
                more = (filters - x.shape[-1]) // 2
                x = tf.pad(tf.nn.avg_pool2d(x, 1, strides, "SAME"), [[0, 0], [0, 0], [0, 0], [more, more]])
            x = tf.nn.relu(convolution(inner, filters, 1) + x)
    weights = tf.compat.v1.get_variable("weights", [64, CLASSES])
    bias = tf.compat.v1.get_variable("bias", [CLASSES], initializer=tf.compat.v1.zeros_initializer())
    return tf.compat.v1.nn.xw_plus_b(tf.reduce_mean(x, [1, 2]), weights, bias)


def total_cost(logits: Any, labels: Any) -> Any:
    import tensorflow as tf

    cost = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    weights = [each for each in tf.compat.v1.trainable_variables() if "norm" not in each.name]
    return cost + DECAY * tf.add_n([tf.nn.l2_loss(each) for each in weights])


def data() -> list[Any]:
    """Make images that stay, and labels that are drawn in each step."""
    import tensorflow as tf

    v1 = tf.compat.v1
    images = tf.random.truncated_normal([BATCH, SIZE, SIZE, 3], 127, 60)
    images = v1.Variable(images, trainable=False, collections=[v1.GraphKeys.LOCAL_VARIABLES], name="images")
    return [tf.identity(images), tf.random.uniform([BATCH], maxval=CLASSES - 1, dtype=tf.int32)]


def optimizer(global_step: Any) -> Any:
    import tensorflow as tf

    boundaries = [IMAGES_PER_EPOCH // BATCH * epoch for epoch in (82, 123, 300)]
    rate = tf.compat.v1.train.piecewise_constant(global_step, boundaries, [0.1, 0.01, 0.001, 0.0002])
    return tf.compat.v1.train.GradientDescentOptimizer(rate)


# The contenders


def by_hand(
    blocks: Blocks,
    change: Callable[[Any], None] = lambda config: None,
    resources: bool = False,
    fused: bool = True,
    updates_first: bool = False,
    fetch: bool = True,
) -> None:
    """Train as tf_cnn_benchmarks does, but for what the arguments change.

    Args:
        blocks: of steps.
        change: changes the session's config.
        resources: whether variables are resources, as they are by default, rather than references.
        fused: whether batch normalization is one op.
        updates_first: whether the moving averages come before the update of the weights, rather than beside it.
        fetch: whether each step fetches the loss by `Session.run`, rather than nothing by a callable.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_v2_behavior()
    if resources:
        v1.enable_resource_variables()
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        images, labels = data()
        cost = total_cost(resnet20(partial(convolution_by_hand, fused=fused), images), labels)
        updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        variables = v1.trainable_variables()
        with tf.control_dependencies(updates if updates_first else []):
            applied = optimizer(step).apply_gradients(zip(tf.gradients(cost, variables), variables, strict=True))
        train_op = tf.group(applied, *updates)
        with tf.control_dependencies([train_op]):
            count = step.assign_add(1)
        config = v1.ConfigProto(allow_soft_placement=True)
        config.graph_options.rewrite_options.pin_to_host_optimization = 2  # RewriterConfig.OFF
        change(config)
        with v1.Session(config=config) as sess:
            sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            fetches = {"train_op": train_op, "average_loss": cost, "inc_global_step": count}
            blocks.run(partial(sess.run, fetches) if fetch else sess.make_callable([train_op, count.op]))


def convolution_by_hand(x: Any, filters: int, strides: int, fused: bool) -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.variable_scope(None, "conv"):
        kernel = v1.get_variable("kernel", [3, 3, x.shape[-1], filters], initializer=v1.variance_scaling_initializer())
        x = tf.nn.conv2d(x, kernel, strides, "SAME")
    with v1.variable_scope(None, "batch_norm"):
        beta = v1.get_variable("beta", [filters], initializer=v1.zeros_initializer())
        gamma = v1.get_variable("gamma", [filters], initializer=v1.ones_initializer())
        if fused:
            y, mean, variance = v1.nn.fused_batch_norm(x, gamma, beta, epsilon=EPSILON)
        else:
            mean, variance = tf.nn.moments(x, [0, 1, 2])
            y = tf.nn.batch_normalization(x, mean, variance, beta, gamma, EPSILON)
        for name, value, initializer in (
            ("mean", mean, v1.zeros_initializer()),
            ("var", variance, v1.ones_initializer()),
        ):
            moving = v1.get_variable(f"moving_{name}", [filters], initializer=initializer, trainable=False)
            v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, v1.assign_sub(moving, (1 - MOMENTUM) * (moving - value)))
    return y


def of_tpk(blocks: Blocks, change: Callable[[Any], None] = lambda config: None) -> None:
    """Train by tpk, with its layers and default callbacks and monitors."""
    import tensorflow as tf

    import tpk
    from tpk import layers

    def convolution(x: Any, filters: int, strides: int) -> Any:
        x = layers.conv2d(
            x,
            filters,
            3,
            strides,
            padding="same",
            use_bias=False,
            kernel_initializer=tf.compat.v1.variance_scaling_initializer(),
        )
        return layers.batch_normalization(x, momentum=MOMENTUM, epsilon=EPSILON, training=True)

    def cost(images: Any, labels: Any) -> Any:
        return tf.identity(total_cost(resnet20(convolution, images), labels), "cost")

    signature = [
        tf.TensorSpec([BATCH, SIZE, SIZE, 3], tf.float32, "images"),
        tf.TensorSpec([BATCH], tf.int32, "labels"),
    ]
    config = tpk.default_session_config()
    change(config)
    trainer = tpk.SimpleTrainer()
    trainer.setup_graph(signature, tpk.TensorInput(data), cost, lambda: optimizer(tpk.get_global_step_var()))
    trainer.train_with_defaults(
        callbacks=[tpk_clock(blocks)],
        steps_per_epoch=blocks.steps,
        max_epoch=blocks.count,
        run_dir="run",
        session_creator=tpk.NewSessionCreator(config=config),
    )


def no_spinning(config: Any) -> None:
    config.experimental.disable_thread_spinning = True


def one_inter_op_thread(config: Any) -> None:
    config.inter_op_parallelism_threads = 1


def one_intra_op_thread(config: Any) -> None:
    config.intra_op_parallelism_threads = 1


CONTENDERS: dict[str, Callable[[Blocks], None]] = {
    BY_HAND: by_hand,
    "by hand, fetches nothing": partial(by_hand, fetch=False),
    "by hand, resource variables": partial(by_hand, resources=True),
    "by hand, batch norm not fused": partial(by_hand, fused=False),
    "by hand, moving averages first": partial(by_hand, updates_first=True),
    "by hand, no spinning": partial(by_hand, change=no_spinning),
    "by hand, one inter-op thread": partial(by_hand, change=one_inter_op_thread),
    "by hand, one intra-op thread": partial(by_hand, change=one_intra_op_thread),
    TPK: of_tpk,
    "tpk, no spinning": partial(of_tpk, change=no_spinning),
}

if __name__ == "__main__":
    sys.exit(main())
