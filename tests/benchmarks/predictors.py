"""What a prediction costs besides its own arithmetic: tpk's predictors beside TensorFlow's session and Keras.

python tests/benchmarks/predictors.py

All contenders have the same model and the same weights, are in one process, and have their turn in each round. There is
one caller, or there are 16 threads that ask for one datapoint each, again and again. README.md, beside this file, says
how to read the tables.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from step_overhead import conditions
from tensorflow.core.protobuf import config_pb2

from tpk import layers
from tpk.predict import MultiThreadAsyncPredictor, OfflinePredictor, PredictConfig

MODELS = {"small": (64, 32, 10), "large": (784, 1024, 1024, 10)}
"""Widths of dense layers. Next to nothing is computed in the small one; the large one has 1.9 million weights."""

RAW = "Session.make_callable(outputs, [x])"
PREDICTOR = "tpk OfflinePredictor"
BATCHED = "tpk MultiThreadAsyncPredictor"
THREADS = 16
REACH = 1.2

Predict = Callable[[np.ndarray[Any, Any]], Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="timed blocks of each (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=300, help="calls in a block (default: %(default)s)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="only these models")
    args = parser.parse_args()
    for key, value in conditions(f"{os.getloadavg()[0]:.1f} at the start").items():
        print(f"{key + ':':<10}{value}")
    print(f"blocks:   {args.repeats} of {args.calls} calls each, in turn, after one to warm up")
    is_reached = True
    for model in args.models:
        contenders = Contenders(MODELS[model])
        for batch in (1, 32):
            is_reached &= latency(model, contenders, batch, args.repeats, args.calls)
        throughput(model, contenders, args.repeats, args.calls)
        contenders.close()
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")
    return int(not is_reached)


# One caller, and many


def latency(model: str, contenders: Contenders, batch: int, repeats: int, calls: int) -> bool:
    x = contenders.inputs(batch)

    def block(predict: Predict, count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            predict(x)
        return (time.perf_counter() - start) / count

    seconds = race(contenders.single(), block, repeats, calls)
    title = f"{model} model, one caller, batches of {batch}"
    print(f"\n{title:<46}  µs per call  x make_callable  middle half")
    for name, own in seconds.items():
        lower, middle, upper = quartiles(ratios(own, seconds[RAW]))
        print(f"{name:<46}  {statistics.median(own) * 1e6:>11.0f}  {middle:>15.2f}  {lower:>5.2f} to {upper:.2f}")
    ratio = statistics.median(ratios(seconds[PREDICTOR], seconds[RAW]))
    print(f"{PREDICTOR} / {RAW}: {ratio:.2f} (reach: at most {REACH}) {'ok' if ratio <= REACH else 'NOT REACHED'}")
    return ratio <= REACH


def throughput(model: str, contenders: Contenders, repeats: int, calls: int) -> None:
    datapoints = contenders.inputs(THREADS)

    def block(predict: Predict, count: int) -> float:
        def ask(datapoint: np.ndarray[Any, Any]) -> None:
            for _ in range(count // THREADS + 1):
                predict(datapoint)

        threads = [threading.Thread(target=ask, args=(datapoint,)) for datapoint in datapoints]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (time.perf_counter() - start) / (count // THREADS + 1) / THREADS

    seconds = race(contenders.threaded(), block, repeats, 4 * calls)
    print(
        f"\n{f'{model} model, {THREADS} threads, one datapoint each':<46}  datapoints/s  x make_callable  middle half"
    )
    for name, own in seconds.items():
        lower, middle, upper = quartiles(ratios(seconds[RAW], own))
        print(f"{name:<46}  {1 / statistics.median(own):>12.0f}  {middle:>15.2f}  {lower:>5.2f} to {upper:.2f}")


def race(
    contenders: dict[str, Predict], block: Callable[[Predict, int], float], repeats: int, calls: int
) -> dict[str, list[float]]:
    """Return the seconds per call of each block of each contender."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(repeats + 1):
        # In another order each time, so that none is always the one that comes after the slowest.
        for name in random.Random(number).sample(list(contenders), len(contenders)):
            # What takes very much longer than the others needs no such long blocks.
            own = block(contenders[name], max(calls // 50, 1) if name in SLOW else calls)
            if number > 0:  # The first block is to warm up.
                seconds[name].append(own)
    return seconds


def ratios(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ones, others, strict=True)]


def quartiles(values: Sequence[float]) -> Sequence[float]:
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else list(values) * 3


# The contenders

KERAS_PREDICT = "Keras, model.predict(x, verbose=0)"
SLOW = (KERAS_PREDICT,)


class Contenders:
    """One model in all of the ways that are compared.

    Args:
        widths: how wide its layers are, the input included.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        rng = np.random.default_rng(0)
        self._width = widths[0]
        self._weights: dict[str, np.ndarray[Any, Any]] = {}
        for number, (before, after) in enumerate(itertools.pairwise(widths)):
            self._weights[f"layer{number}/kernel"] = rng.normal(size=(before, after), scale=before**-0.5)
            self._weights[f"layer{number}/bias"] = rng.normal(size=after)
        self._count = len(widths) - 1
        config = PredictConfig(
            tower_func=self._model,
            input_signature=[tf.TensorSpec([None, self._width], tf.float32, "x")],
            session_init=self._weights,
            output_names=["probabilities"],
        )
        self.predictor = OfflinePredictor(config)
        self.batched = MultiThreadAsyncPredictor(self.predictor, max_batch=THREADS)
        self.waiting = MultiThreadAsyncPredictor(self.predictor, max_batch=THREADS, max_wait=0.001)
        self.keras = self._keras_model(widths)

    def inputs(self, batch: int) -> np.ndarray[Any, Any]:
        return np.random.default_rng(1).normal(size=(batch, self._width)).astype(np.float32)

    def single(self) -> dict[str, Predict]:
        """Return what takes a batch."""
        sess, outputs, inputs = self.predictor.sess, self.predictor.outputs, self.predictor.inputs
        options = config_pb2.CallableOptions(
            feed=[tensor.name for tensor in inputs], fetch=[tensor.name for tensor in outputs]
        )
        contenders: dict[str, Predict] = {
            RAW: sess.make_callable(outputs, inputs),
            "the runtime's callable, nothing checked": sess._make_callable_from_options(options),
            "Session.run(outputs, feed_dict)": lambda x: sess.run(outputs, {inputs[0]: x}),
            PREDICTOR: self.predictor,
            "Keras, model(x)": lambda x: [self.keras(x).numpy()],
            "Keras, tf.function(model)(x)": self._compiled_keras(),
            KERAS_PREDICT: lambda x: [self.keras.predict(x, verbose=0)],
        }
        x = self.inputs(4)
        for name, predict in contenders.items():
            np.testing.assert_allclose(predict(x)[0], self.predictor(x)[0], rtol=1e-4, atol=1e-6, err_msg=name)
        return contenders

    def threaded(self) -> dict[str, Predict]:
        """Return what takes a single datapoint; `model.predict` is not made for several threads."""
        single = self.single()
        names = [name for name in single if name != KERAS_PREDICT]
        alone: dict[str, Predict] = {name: _of_batches_of_one(single[name]) for name in names}
        return {**alone, BATCHED: self.batched, f"{BATCHED}, max_wait=1 ms": self.waiting}

    def close(self) -> None:
        self.batched.close()
        self.waiting.close()
        self.predictor.close()

    def _model(self, x: Any) -> None:
        for number in range(self._count):
            units = self._weights[f"layer{number}/bias"].size
            activation = tf.nn.relu if number < self._count - 1 else None
            x = layers.dense(x, units, activation=activation, name=f"layer{number}")
        tf.nn.softmax(x, name="probabilities")

    def _keras_model(self, widths: Sequence[int]) -> Any:
        activations = [*["relu"] * (self._count - 1), "softmax"]
        dense = [
            tf.keras.layers.Dense(units, activation) for units, activation in zip(widths[1:], activations, strict=True)
        ]
        model = tf.keras.Sequential([tf.keras.Input([self._width]), *dense])
        model.set_weights(list(self._weights.values()))
        return model

    def _compiled_keras(self) -> Predict:
        compiled = tf.function(self.keras, input_signature=[tf.TensorSpec([None, self._width], tf.float32)])
        return lambda x: [compiled(x).numpy()]


def _of_batches_of_one(predict: Predict) -> Predict:
    return lambda datapoint: predict(datapoint[np.newaxis])[0][0]


if __name__ == "__main__":
    sys.exit(main())
