"""The cost of a step when one run makes many of them: `steps_per_run`, beside loops in the graph written by hand.

python tests/benchmarks/steps_in_a_run.py
python tests/benchmarks/steps_in_a_run.py --model convolution --repeats 10

Each contender trains in a process of its own, and does a block of steps whenever it is its turn; see step_overhead.py.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import contenders as common
from contenders import BATCH, CALLABLE, FEATURES, RATE, RAW, Blocks
from step_overhead import Result, conditions, contend, race, ratios, report

STEPS_PER_RUN = 32
BY_HAND = "tf.while_loop by hand"
BY_HAND_COMPILED = "compiled tf.while_loop by hand"
KERAS = "Keras, steps_per_execution=32"
TPK = "tpk, steps_per_run=32"
TPK_XLA = "tpk, steps_per_run=32, xla=True"
FEED = "feed_dict loop"

Contender = Callable[[Blocks], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS), help="only these (default: all)")
    parser.add_argument("--steps", type=int, default=1024, help="steps in a block (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=20, help="timed blocks of each (default: %(default)s)")
    parser.add_argument("--show-output", action="store_true", help="let the contenders write here")
    args = parser.parse_args()
    if args.steps % STEPS_PER_RUN:
        parser.error(f"--steps must be a multiple of {STEPS_PER_RUN}")
    for model in args.model:
        load = os.getloadavg()[0]
        names = {f"{model}: {name}": None for name in MODELS[model]}
        timings, absent = race(names, args.steps, args.repeats, args.show_output, contend)
        first = next(iter(timings))
        about = {
            **conditions(f"{load:.1f} at the start"),
            "blocks": f"{args.repeats} of {args.steps} steps each, in turn, after one to warm up",
        }
        report(about, [Result.of(name, timings, first) for name in timings], absent, first.partition(": ")[2])
        for own, reach, is_time in REACH.get(model, ()):
            ratio = statistics.median(ratios(timings[f"{model}: {own}"], timings[first]))
            value, word = (ratio, "at most") if is_time else (1 / ratio, "at least")
            reached = value <= reach if is_time else value >= reach
            print(f"{own}: {value:.3f} (reach: {word} {reach}) {'ok' if reached else 'NOT REACHED'}")
        print()


# The linear models


def drawn() -> list[Any]:
    """Make a batch by random ops in each step."""
    return common.batch()


def stateless() -> list[Any]:
    """Make a batch by stateless random ops: the same in each step, so that a compiler may draw it once."""
    import tensorflow as tf

    return [tf.random.stateless_normal([BATCH, FEATURES], [0, 1]), tf.random.stateless_normal([BATCH, 1], [0, 2])]


def stateless_by_step() -> list[Any]:
    """Make a batch by stateless random ops, another one in each step."""
    import tensorflow as tf

    step = tf.cast(tf.compat.v1.train.get_or_create_global_step().read_value(), tf.int64)
    return [
        tf.random.stateless_normal([BATCH, FEATURES], tf.stack([tf.constant(1, tf.int64), step])),
        tf.random.stateless_normal([BATCH, 1], tf.stack([tf.constant(2, tf.int64), step])),
    ]


def constant() -> list[Any]:
    """Read a batch from variables in each step."""
    import tensorflow as tf

    def variable(name: str, shape: list[int]) -> Any:
        ones = tf.compat.v1.ones_initializer()
        with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=tf.compat.v1.AUTO_REUSE):
            found = tf.compat.v1.get_variable(name, shape, initializer=ones, trainable=False, use_resource=True)
        return found.read_value()

    return [variable("all_x", [BATCH, FEATURES]), variable("all_y", [BATCH, 1])]


def session(blocks: Blocks, batch: Callable[[], list[Any]], make_step: Callable[[Any, Any], Any]) -> None:
    import tensorflow as tf

    import tpk

    with tf.Graph().as_default(), tf.compat.v1.Session(config=tpk.default_session_config()) as sess:
        step = tf.compat.v1.train.get_or_create_global_step()
        train_op = common.sgd().minimize(common.cost(*batch()), global_step=step)
        sess.run(tf.compat.v1.global_variables_initializer())
        blocks.run(make_step(sess, train_op))


def loop_by_hand(blocks: Blocks, batch: Callable[[], list[Any]], cost: Callable[..., Any] = common.cost) -> None:
    import tensorflow as tf

    import tpk

    def body(number: Any) -> Any:
        step = tf.compat.v1.train.get_or_create_global_step()
        with tf.control_dependencies([common.sgd().minimize(cost(*batch()), global_step=step)]):
            return number + 1

    with tf.Graph().as_default(), tf.compat.v1.Session(config=tpk.default_session_config()) as sess:
        tf.compat.v1.train.get_or_create_global_step()
        end = tf.compat.v1.while_loop(
            lambda number: number < STEPS_PER_RUN, body, [tf.constant(0)], parallel_iterations=1, back_prop=False
        )
        (end,) = tf.nest.flatten(end)
        sess.run(tf.compat.v1.global_variables_initializer())
        run_loop(blocks, sess.make_callable(end.op))


def compiled_by_hand(blocks: Blocks) -> None:
    import tensorflow as tf

    import tpk

    with tf.Graph().as_default(), tf.compat.v1.Session(config=tpk.default_session_config()) as sess:
        weights = tf.compat.v1.get_variable("weights", [FEATURES, 1], use_resource=True)
        bias = tf.compat.v1.get_variable("bias", [1], use_resource=True)

        @tf.function(jit_compile=True, autograph=False)
        def run() -> Any:
            def body(number: Any) -> Any:
                x, y = stateless()
                error = x @ weights + bias - y
                weights.assign_sub(RATE * 2 / BATCH * tf.matmul(x, error, transpose_a=True))
                bias.assign_sub(RATE * 2 / BATCH * tf.reduce_sum(error, 0))
                return number + 1

            return tf.while_loop(lambda number: number < STEPS_PER_RUN, body, [tf.constant(0)])

        (end,) = tf.nest.flatten(run())
        sess.run(tf.compat.v1.global_variables_initializer())
        run_loop(blocks, sess.make_callable(end.op))


def run_loop(blocks: Blocks, run: Callable[[], Any]) -> None:
    for _ in range(blocks.count):
        blocks.begin()
        for _ in range(blocks.steps // STEPS_PER_RUN):
            run()
        blocks.end()


def keras_linear(blocks: Blocks) -> None:
    import keras
    import tensorflow as tf

    model = keras.Sequential([keras.Input([FEATURES]), keras.layers.Dense(1)])
    rows = BATCH * blocks.steps
    fit_keras(blocks, model, "mse", tf.random.normal([rows, FEATURES]), tf.random.normal([rows, 1]))


def fit_keras(blocks: Blocks, model: Any, loss: Any, x: Any, y: Any) -> None:
    import keras

    model.compile(keras.optimizers.SGD(RATE), loss, steps_per_execution=STEPS_PER_RUN)
    clock = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: blocks.begin(), on_epoch_end=lambda epoch, logs: blocks.end()
    )
    model.fit(x, y, batch_size=BATCH, shuffle=False, epochs=blocks.count, verbose=0, callbacks=[clock])


def tpk_linear(blocks: Blocks, batch: Callable[[], list[Any]], **options: Any) -> None:
    import tpk

    train_tpk(blocks, common.signature(), tpk.TensorInput(batch), common.cost, **options)


def train_tpk(blocks: Blocks, signature: Any, source: Any, cost: Callable[..., Any], **options: Any) -> None:
    import tpk

    def summarized(*inputs: Any) -> Any:
        value = cost(*inputs)
        tpk.add_moving_summary(value)
        return value

    trainer = tpk.SimpleTrainer(**options)
    trainer.setup_graph(signature, source, summarized, common.sgd)
    trainer.train_with_defaults(
        callbacks=[common.tpk_clock(blocks)], steps_per_epoch=blocks.steps, max_epoch=blocks.count, run_dir="run"
    )


def linear(batch: Callable[[], list[Any]]) -> dict[str, Contender]:
    return {
        RAW: partial(session, batch=batch, make_step=lambda sess, train_op: partial(sess.run, train_op)),
        CALLABLE: partial(session, batch=batch, make_step=lambda sess, train_op: sess.make_callable(train_op)),
        BY_HAND: partial(loop_by_hand, batch=batch),
        TPK: partial(tpk_linear, batch=batch, steps_per_run=STEPS_PER_RUN),
    }


# The small convolutional model


def images() -> tuple[Any, Any]:
    """Return a batch that is delivered again and again, as aligned arrays."""
    import numpy as np

    import tpk

    image, label = tpk.aligned_empty((BATCH, 8, 8, 1), np.float32), tpk.aligned_empty((BATCH,), np.int32)
    image[...] = np.random.default_rng(0).normal(size=image.shape)
    label[...] = np.arange(BATCH) % 10
    return image, label


def image_signature() -> list[Any]:
    import tensorflow as tf

    return [tf.TensorSpec([BATCH, 8, 8, 1], tf.float32, "image"), tf.TensorSpec([BATCH], tf.int32, "label")]


def convolution_cost(image: Any, label: Any) -> Any:
    import tensorflow as tf

    from tpk import layers

    net = layers.conv2d(image, 16, 3, padding="same", activation=tf.nn.relu)
    net = layers.max_pooling2d(net, 2, 2)
    net = layers.conv2d(net, 32, 3, padding="same", activation=tf.nn.relu)
    logits = layers.dense(layers.flatten(net), 10)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))


def convolution_fed(blocks: Blocks) -> None:
    import tensorflow as tf

    import tpk

    with tf.Graph().as_default(), tf.compat.v1.Session(config=tpk.default_session_config()) as sess:
        inputs = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in image_signature()]
        train_op = common.sgd().minimize(convolution_cost(*inputs))
        sess.run(tf.compat.v1.global_variables_initializer())
        feeds = dict(zip(inputs, images(), strict=True))
        blocks.run(lambda: sess.run(train_op, feeds))


def stored_images() -> list[Any]:
    """Read the batch from variables."""
    import tensorflow as tf

    def variable(spec: Any, initial: Any) -> Any:
        with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=tf.compat.v1.AUTO_REUSE):
            return tf.compat.v1.get_variable(
                f"all_{spec.name}", spec.shape, spec.dtype, lambda *_, **__: initial, trainable=False, use_resource=True
            )

    return [variable(spec, initial).read_value() for spec, initial in zip(image_signature(), images(), strict=True)]


def convolution_constant(blocks: Blocks) -> None:
    import tensorflow as tf

    import tpk

    with tf.Graph().as_default(), tf.compat.v1.Session(config=tpk.default_session_config()) as sess:
        train_op = common.sgd().minimize(convolution_cost(*stored_images()))
        sess.run(tf.compat.v1.global_variables_initializer())
        blocks.run(sess.make_callable(train_op))


def convolution_tpk(blocks: Blocks, **options: Any) -> None:
    import tpk

    train_tpk(blocks, image_signature(), tpk.QueueInput([images()]), convolution_cost, **options)


def convolution_keras(blocks: Blocks) -> None:
    import keras
    import numpy as np

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input([8, 8, 1]),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2, 2),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    image, label = images()
    x, y = np.tile(image, (blocks.steps, 1, 1, 1)), np.tile(label, blocks.steps)
    fit_keras(blocks, model, keras.losses.SparseCategoricalCrossentropy(from_logits=True), x, y)


MODELS: dict[str, dict[str, Contender]] = {
    "drawn": {**linear(drawn), KERAS: keras_linear},
    "variable": linear(constant),
    "compiled": {
        **{name: contender for name, contender in linear(stateless).items() if name in (RAW, CALLABLE)},
        BY_HAND_COMPILED: compiled_by_hand,
        TPK_XLA: partial(tpk_linear, batch=stateless, steps_per_run=STEPS_PER_RUN, xla=True),
        f"{TPK_XLA}, drawn in each step": partial(
            tpk_linear, batch=stateless_by_step, steps_per_run=STEPS_PER_RUN, xla=True
        ),
    },
    "convolution": {
        FEED: convolution_fed,
        "no delivery, make_callable": convolution_constant,
        f"no delivery, {BY_HAND}": partial(loop_by_hand, batch=stored_images, cost=convolution_cost),
        "tpk, QueueInput": convolution_tpk,
        f"{TPK}, QueueInput": partial(convolution_tpk, steps_per_run=STEPS_PER_RUN),
        f"{TPK_XLA}, QueueInput": partial(convolution_tpk, steps_per_run=STEPS_PER_RUN, xla=True),
        KERAS: convolution_keras,
    },
}
"""The linear model of step_overhead.py, by where its batches come from; and a small convolutional one."""

REACH = {
    "drawn": [(TPK, 0.62, True)],
    "variable": [(TPK, 0.18, True)],
    "compiled": [(TPK_XLA, 0.05, True)],
    "convolution": [(f"{TPK}, QueueInput", 1.4, False)],
}
"""Of which contender what is wanted: a time at most, or a rate at least, in relation to the first of its model."""


if __name__ == "__main__":
    main()
