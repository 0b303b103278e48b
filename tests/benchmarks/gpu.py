"""How many images a second a ResNet-50 trains: tpk beside a session loop written by hand, Keras and tensorpack.

python tests/benchmarks/gpu.py
python tests/benchmarks/gpu.py --groups float32 input --batch 128
python tests/benchmarks/gpu.py --image-size 32 --batch 4 --steps 3 --repeats 2          # a short form, without a GPU

The network is that of `examples/resnet.py`, so Pillow has to be there; without weight decay, moving summaries and
evaluation. Contenders of a group are there at the same time, as processes that have their turns on the GPU; README.md,
beside this file, says how to read the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from contenders import Blocks, tpk_clock
from step_overhead import conditions, cores, do_blocks, race, ratios

EXAMPLES = Path(__file__).parents[2] / "examples"
RATE, MOMENTUM, CLASSES = 0.01, 0.9, 1000
LOSS_SCALE = 1024.0


@attrs.frozen
class Settings:
    """What all contenders share.

    Attributes:
        batch: images in a step.
        size: width and height of an image.
        workers: how many processes make batches, where processes do.
    """

    batch: int
    size: int
    workers: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS), help="only these")
    parser.add_argument("--batch", type=int, default=64, help="images in a step (default: %(default)s)")
    parser.add_argument("--image-size", type=int, default=224, help="width and height (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=max(cores() - 4, 2), help="that make batches (%(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="steps in a block (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="timed blocks of each (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all timings")
    parser.add_argument("--show-output", action="store_true", help="let the contenders write here")
    args = parser.parse_args()

    settings = Settings(args.batch, args.image_size, args.workers)
    about = {
        "device": gpu_name(),
        **conditions(f"{os.getloadavg()[0]:.1f} at the start"),
        "steps": f"of {settings.batch} images of {settings.size}x{settings.size}; {settings.workers} workers",
        "blocks": f"{args.repeats} of {args.steps} steps each, in turn, after one to warm up",
    }
    for key, value in about.items():
        print(f"{key + ':':<10}{value}")
    rates: dict[str, dict[str, list[float]]] = {}
    has_failed = False
    for group in args.groups:
        process = partial(contend, settings)
        timings, absent = race(dict.fromkeys(GROUPS[group]), args.steps, args.repeats, args.show_output, process)
        rates[group] = {name: [settings.batch / us * 1e6 for us in own] for name, own in timings.items()}
        report(group, rates[group])
        for name, absence in absent.items():
            print(f"{name}: {'FAILED' if absence.is_failure else 'not available here'}: {absence.reason}")
        has_failed |= any(absence.is_failure for absence in absent.values())
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")
    if args.json is not None:
        args.json.write_text(json.dumps({"about": about, "images_per_second": rates}, indent=2) + "\n")
    return int(has_failed)


def gpu_name() -> str:
    """Return the name of the GPU, asked of its driver: TensorFlow would take memory of it."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().replace("\n", "; ")
    except (OSError, subprocess.CalledProcessError):
        return "no NVIDIA GPU, so the CPU"


def contend(
    settings: Settings,
    name: str,
    source: Path | None,
    connection: Connection,
    steps: int,
    count: int,
    place: Path,
    show_output: bool,
) -> None:
    """Be the contender `name`: the main function of its process."""
    # The processes share the GPU, and neither Keras nor tensorpack would leave memory to the others.
    os.environ.update(TF_FORCE_GPU_ALLOW_GROWTH="true", TF_CPP_MIN_LOG_LEVEL="2")
    sys.path.insert(0, str(EXAMPLES))
    contender = next(group[name] for group in GROUPS.values() if name in group)
    do_blocks(partial(contender, settings), connection, steps, count, place, show_output)


def report(group: str, rates: dict[str, list[float]]) -> None:
    baseline = next(iter(GROUPS[group]))
    width = max(map(len, GROUPS[group]))
    print(f"\n{group:<{width}}  images/s  x {baseline}")
    for name, own in rates.items():
        line = f"{name:<{width}}  {statistics.median(own):>8.1f}"
        if baseline in rates:
            relative = ratios(own, rates[baseline])
            lower, _, upper = statistics.quantiles(relative, n=4, method="inclusive") if len(own) > 1 else relative * 3
            line += f"  {statistics.median(relative):.3f}  ({lower:.3f} to {upper:.3f})"
        print(line)


# The network and its data


def signature(settings: Settings) -> list[Any]:
    import tensorflow as tf

    shape = [settings.batch, settings.size, settings.size, 3]
    return [tf.TensorSpec(shape, tf.uint8, "image"), tf.TensorSpec([settings.batch], tf.int64, "label")]


def stored_batch(settings: Settings) -> list[Any]:
    """Return images and labels that stay in the memory of the device."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    values = {
        "stored_images": rng.integers(0, 256, [settings.batch, settings.size, settings.size, 3]).astype(np.uint8),
        "stored_labels": rng.integers(0, CLASSES, [settings.batch]),
    }
    return [
        tf.convert_to_tensor(tf.compat.v1.get_variable(name, initializer=value, trainable=False))
        for name, value in values.items()
    ]


def cost(image: Any, label: Any, dtype: Any = None) -> Any:
    """Build the network; return its cost.

    Args:
        image: the images, as bytes.
        label: their classes.
        dtype: what to compute in; by default that of the variable scope, which tpk sets.
    """
    import resnet
    import tensorflow as tf

    image = (tf.cast(image, tf.float32) - resnet.MEAN) / resnet.STD
    image = tf.cast(image, dtype or tf.compat.v1.get_variable_scope().dtype)
    logits = tf.cast(resnet.resnet(image, CLASSES, 50, training=True), tf.float32)
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
    return tf.reduce_mean(loss, name="cost")


def momentum(rate: float = RATE) -> Any:
    import tensorflow as tf

    return tf.compat.v1.train.MomentumOptimizer(rate, MOMENTUM)


# The contenders


def by_hand(settings: Settings, blocks: Blocks, precision: str = "float32") -> None:
    """A session loop. For float16 the cost is scaled by a constant, which the learning rate undoes."""
    import tensorflow as tf

    import tpk

    v1 = tf.compat.v1

    def kept_in_float32(getter: Any, name: str, *args: Any, dtype: Any = None, **options: Any) -> Any:
        variable = getter(name, *args, dtype=tf.float32, **options)
        return variable if dtype == tf.float32 else tf.cast(variable, dtype)

    scale = LOSS_SCALE if precision == "float16" else 1.0
    with tf.Graph().as_default(), v1.Session(config=tpk.default_session_config()) as sess:
        batch = stored_batch(settings)
        with v1.variable_scope("", custom_getter=None if precision == "float32" else kept_in_float32):
            value = cost(*batch, tf.as_dtype(precision))
        updated = momentum(RATE / scale).minimize(value * scale)
        train_op = tf.group(updated, *v1.get_collection(v1.GraphKeys.UPDATE_OPS))
        sess.run(v1.global_variables_initializer())
        blocks.run(partial(sess.run, train_op))


def by_tpk(
    settings: Settings, blocks: Blocks, make_input: Callable[[Settings], Any] | None = None, **options: Any
) -> None:
    """All defaults of tpk; its loss scale is dynamic."""
    import tpk

    source = tpk.TensorInput(partial(stored_batch, settings)) if make_input is None else make_input(settings)
    trainer = tpk.SingleCostTrainer("single", **options)
    trainer.setup_graph(signature(settings), source, cost, momentum)
    trainer.train_with_defaults(
        callbacks=[tpk_clock(blocks)], steps_per_epoch=blocks.steps, max_epoch=blocks.count, run_dir="run"
    )


def from_workers(settings: Settings, staged: bool) -> Any:
    """Batches that are put together in worker processes, each of other images."""
    import tpk

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, [4 * settings.batch, settings.size, settings.size, 3]).astype(np.uint8)
    labels = rng.integers(0, CLASSES, len(images))
    flow = tpk.BatchData(tpk.DataFromList(list(zip(images, labels, strict=True)), shuffle=True), settings.batch)
    queue = tpk.QueueInput(tpk.MultiProcessRunner(flow, settings.workers))
    return tpk.StagingInput(queue) if staged else queue


def by_tensorpack(settings: Settings, blocks: Blocks) -> None:
    import tensorflow as tf
    import tensorpack

    class Clock(tensorpack.Callback):
        def _before_epoch(self) -> None:
            blocks.begin()

        def _after_epoch(self) -> None:
            blocks.end()

    tensorpack.logger.set_logger_dir("train_log", action="d")
    with tf.Graph().as_default():
        trainer = tensorpack.SimpleTrainer()
        source = tensorpack.TensorInput(partial(stored_batch, settings), size=blocks.steps)
        trainer.setup_graph(signature(settings), source, partial(cost, dtype=tf.float32), momentum)
        trainer.train_with_defaults(callbacks=[Clock()], steps_per_epoch=blocks.steps, max_epoch=blocks.count)


def by_keras(settings: Settings, blocks: Blocks, policy: str = "float32", jit_compile: bool = False) -> None:
    """The same network of Keras's layers; the images are in the memory of the device, too."""
    import keras
    import resnet
    import tensorflow as tf
    from keras import layers

    if int(keras.__version__.split(".")[0]) < 3:
        raise ImportError(f"Keras is {keras.__version__}, which is not 3")
    keras.config.set_dtype_policy(policy)
    rng = np.random.default_rng(0)

    class Stored(layers.Layer):  # type: ignore[misc]
        def build(self, input_shape: Any) -> None:
            shape = [settings.batch, settings.size, settings.size, 3]
            self.images = tf.Variable(rng.integers(0, 256, shape).astype(np.uint8), trainable=False)

        def call(self, number: Any) -> Any:
            return tf.cast((tf.cast(self.images, tf.float32) - resnet.MEAN) / resnet.STD, self.compute_dtype)

    def convolve(x: Any, filters: int, kernel: int, stride: int = 1, gamma: str = "ones") -> Any:
        x = layers.Conv2D(filters, kernel, stride, "same", use_bias=False, kernel_initializer="he_normal")(x)
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, gamma_initializer=gamma)(x)

    number = keras.Input([], settings.batch, dtype="float32")
    x = layers.ReLU()(convolve(Stored()(number), 64, 7, 2))
    x = layers.MaxPooling2D(3, 2, "same")(x)
    for group, count in enumerate(resnet.BLOCKS[50]):
        for block in range(count):
            filters, stride = 64 * 2**group, 2 if group > 0 and block == 0 else 1
            shortcut = convolve(x, 4 * filters, 1, stride) if block == 0 else x
            x = layers.ReLU()(convolve(x, filters, 1))
            x = layers.ReLU()(convolve(x, filters, 3, stride))
            x = layers.ReLU()(layers.Add()([shortcut, convolve(x, 4 * filters, 1, gamma="zeros")]))
    logits = layers.Dense(CLASSES, dtype="float32")(layers.GlobalAveragePooling2D()(x))

    model = keras.Model(number, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(RATE, MOMENTUM), loss, jit_compile=jit_compile)
    clock = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: blocks.begin(), on_epoch_end=lambda epoch, logs: blocks.end()
    )
    rows = settings.batch * blocks.steps
    data = np.zeros(rows, np.float32), rng.integers(0, CLASSES, rows)
    model.fit(*data, batch_size=settings.batch, shuffle=False, epochs=blocks.count, verbose=0, callbacks=[clock])


GROUPS: dict[str, dict[str, Callable[[Settings, Blocks], None]]] = {
    "float32": {
        "by hand": by_hand,
        "tpk": by_tpk,
        "tpk, steps_per_run=10": partial(by_tpk, steps_per_run=10),
        "tensorpack 0.11": by_tensorpack,
        "Keras 3, fit": by_keras,
    },
    "float16": {
        "by hand, float16": partial(by_hand, precision="float16"),
        "tpk, float16": partial(by_tpk, precision="float16"),
        "Keras 3, fit, mixed_float16": partial(by_keras, policy="mixed_float16"),
    },
    "bfloat16": {
        "by hand, bfloat16": partial(by_hand, precision="bfloat16"),
        "tpk, bfloat16": partial(by_tpk, precision="bfloat16"),
        "Keras 3, fit, mixed_bfloat16": partial(by_keras, policy="mixed_bfloat16"),
    },
    "compiled": {
        "by hand, not compiled": by_hand,
        "tpk, xla=True": partial(by_tpk, xla=True),
        "tpk, xla=True, steps_per_run=10": partial(by_tpk, xla=True, steps_per_run=10),
        "tpk, xla=True, bfloat16": partial(by_tpk, xla=True, precision="bfloat16"),
        "Keras 3, fit, jit_compile=True": partial(by_keras, jit_compile=True),
    },
    "input": {
        "tpk, images on the device": by_tpk,
        "tpk, from workers, QueueInput": partial(by_tpk, make_input=partial(from_workers, staged=False)),
        "tpk, from workers, StagingInput": partial(by_tpk, make_input=partial(from_workers, staged=True)),
    },
}
"""The contenders, by groups that fit into the memory of a GPU together; the first of each is the baseline."""


if __name__ == "__main__":
    sys.exit(main())
