"""How many augmented images a second reach a step from two worker processes: one tensorpack script, by two packages.

python tests/benchmarks/augmented_images.py

Images of 500 x 375 are decoded, cropped at random and resized to 224 x 224, flipped, and their brightness, contrast and
saturation changed; batches of 32 come through `MultiProcessRunnerZMQ` and `QueueInput`, as in tensorpack's ImageNet
examples. Each contender runs in a separate process, in turn; the ratio is the median of those within a round.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from typing import Any

PORT, TENSORPACK = "tpk_tensorpack", "tensorpack"
REACH = 1.5
PATIENCE = 60
FOUND = "images a second: "
BATCH, WORKERS, IMAGES = 32, 2, 128
PACKAGES = ("tpk", "tpk-tensorpack", "tensorflow", "tensorflow-cpu", "tensorpack", "numpy", "opencv-python-headless")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=30, help="timed batches of each in a round (default: %(default)s)")
    parser.add_argument("--contender", choices=[PORT, TENSORPACK], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender is not None:
        # A blank behind it: threads of tensorpack's write to the same line.
        print(f"\n{FOUND}{images_per_second(args.contender, args.steps)} ", flush=True)
        return 0

    print(f"load {os.getloadavg()[0]:.1f} at the start, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(", ".join(f"{name} {version}" for name in PACKAGES if (version := version_of(name)) is not None))
    speeds: dict[str, list[float]] = {PORT: [], TENSORPACK: []}
    for number in range(args.rounds):
        for name in sorted(speeds, reverse=bool(number % 2)):
            speeds[name].append(measured(name, args.steps))
    for name, found in speeds.items():
        print(f"{name:16} {statistics.median(found):8.1f} images/s")
    ratio = statistics.median(ours / theirs for ours, theirs in zip(speeds[PORT], speeds[TENSORPACK], strict=True))
    print(f"{PORT} / {TENSORPACK}: {ratio:.2f} (reach: at least {REACH}) {'ok' if ratio >= REACH else 'NOT REACHED'}")
    return 0 if ratio >= REACH else 1


def measured(name: str, steps: int) -> float:
    """Run a contender in a separate process; again if it hangs, as tensorpack's forks of a process with threads may.

    Raises:
        TimeoutError: it hung three times in a row, or failed.
    """
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, __file__, "--contender", name, "--steps", str(steps)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        alarm = threading.Timer(PATIENCE, end_all_of, [process])
        alarm.start()
        assert process.stdout is not None
        # Workers that outlive it hold the pipe open, so its end is not waited for.
        found = next((line for line in process.stdout if line.startswith(FOUND)), None)
        alarm.cancel()
        end_all_of(process)
        if found is not None:
            return float(found.removeprefix(FOUND).partition(" ")[0])
        print(f"{name} did not finish; trying again")
    raise TimeoutError(f"{name} did not finish")


def end_all_of(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def images_per_second(package: str, steps: int) -> float:
    """Run the script with the modules of one package."""
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    if package == TENSORPACK:
        import numpy

        for name, kind in {"bool": bool, "int": int, "float": float, "object": object}.items():
            vars(numpy).setdefault(name, kind)  # It still uses them.
    import cv2
    import numpy as np
    import tensorflow as tf

    tensorpack: Any = importlib.import_module(package)
    dataflow: Any = importlib.import_module(f"{package}.dataflow")
    imgaug: Any = importlib.import_module(f"{package}.dataflow.imgaug")
    v1 = tf.compat.v1
    rng = np.random.RandomState(0)

    def photograph() -> Any:
        smooth = cv2.resize(rng.randint(256, size=(12, 16, 3)).astype(np.uint8), (500, 375))
        return cv2.imencode(".jpg", smooth)[1]

    files = [photograph() for _ in range(IMAGES)]

    class Files(dataflow.RNGDataFlow):  # type: ignore[misc]
        def __len__(self) -> int:
            return IMAGES

        def __iter__(self) -> Any:
            for index in self.rng.permutation(IMAGES):
                yield [files[index], int(index) % 10]

    def decode(data: Any) -> Any:
        return cv2.imdecode(data, cv2.IMREAD_COLOR)

    augmentors = [
        imgaug.GoogleNetRandomCropAndResize(),
        imgaug.Flip(horiz=True),
        imgaug.RandomOrderAug(
            [
                imgaug.BrightnessScale((0.6, 1.4), clip=False),
                imgaug.Contrast((0.6, 1.4), rgb=False, clip=False),
                imgaug.Saturation(0.4, rgb=False),
            ]
        ),
    ]
    flow = dataflow.MapDataComponent(Files(), decode, 0)
    flow = dataflow.AugmentImageComponent(flow, augmentors, copy=False)
    flow = dataflow.MultiProcessRunnerZMQ(dataflow.BatchData(flow, BATCH), WORKERS)

    def build(image: Any, label: Any) -> Any:
        weight = v1.get_variable("weight", [], initializer=v1.zeros_initializer())
        return tf.reduce_mean(tf.cast(image, tf.float32)) * weight

    marks: list[float] = []

    class Clock(tensorpack.Callback):  # type: ignore[misc]
        def _before_epoch(self) -> None:
            marks.append(time.perf_counter())

        def _after_epoch(self) -> None:
            marks.append(time.perf_counter())

    signature = [tf.TensorSpec([BATCH, 224, 224, 3], tf.uint8, "image"), tf.TensorSpec([BATCH], tf.int32, "label")]
    with tempfile.TemporaryDirectory() as directory, tf.Graph().as_default():
        os.chdir(directory)
        tensorpack.logger.set_logger_dir(directory, action="d")
        trainer = tensorpack.SimpleTrainer()
        source = tensorpack.QueueInput(flow, queue=tf.queue.FIFOQueue(4, [tf.uint8, tf.int32]))
        trainer.setup_graph(signature, source, build, lambda: v1.train.GradientDescentOptimizer(0.1))
        # The first epoch warms up.
        trainer.train_with_defaults(callbacks=[Clock()], steps_per_epoch=steps, max_epoch=2)
    return steps * BATCH / (marks[3] - marks[2])


if __name__ == "__main__":
    sys.exit(main())
