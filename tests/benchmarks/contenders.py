"""The contenders of step_overhead.py: the same small linear model, trained in each of the ways that are compared."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

BATCH, FEATURES, RATE = 32, 64, 0.01
RAW = "Session.run(train_op)"
CALLABLE = "Session.make_callable(train_op)"
UNTUNED = "the same, with TensorFlow's own config"
BARE = "tpk, bare"
DEFAULTS = "tpk, all defaults"
TENSORPACK = "tensorpack 0.11, its defaults"
STAND_IN = "the same, with tpk_tensorpack"


# The clock of a contender


class Blocks:
    """The blocks of steps of one contender: each begins when the parent process says so, and is timed.

    Args:
        connection: to the parent, which gets the µs per step of a block once the contender is back for the next one.
        steps: how many steps a block has.
        count: how many blocks there are.
    """

    def __init__(self, connection: Connection, steps: int, count: int) -> None:
        self.steps, self.count = steps, count
        self._connection = connection
        self._start = 0.0
        self.last: float | None = None

    def begin(self) -> None:
        """Tell how long the last block took, wait for the turn, and start the clock."""
        self._connection.send(self.last)
        self._connection.recv()
        self._start = time.perf_counter()

    def end(self) -> None:
        """Stop the clock."""
        self.last = (time.perf_counter() - self._start) / self.steps * 1e6

    def run(self, step: Callable[[], Any]) -> None:
        """Do all blocks of a contender whose steps are calls of `step`."""
        for _ in range(self.count):
            self.begin()
            for _ in range(self.steps):
                step()
            self.end()


# The model in graph mode


def batch() -> list[Any]:
    """Make inputs and labels in the graph."""
    import tensorflow as tf

    return [tf.random.normal([BATCH, FEATURES]), tf.random.normal([BATCH, 1])]


def cost(x: Any, y: Any) -> Any:
    """Build the linear model; return its cost."""
    import tensorflow as tf

    weights = tf.compat.v1.get_variable("weights", [FEATURES, 1])
    bias = tf.compat.v1.get_variable("bias", [1], initializer=tf.compat.v1.zeros_initializer())
    return tf.reduce_mean((x @ weights + bias - y) ** 2, name="cost")


def sgd() -> Any:
    import tensorflow as tf

    return tf.compat.v1.train.GradientDescentOptimizer(RATE)


def signature() -> list[Any]:
    import tensorflow as tf

    return [tf.TensorSpec([BATCH, FEATURES], tf.float32, "x"), tf.TensorSpec([BATCH, 1], tf.float32, "y")]


# The contenders


def tensorflow_session(
    blocks: Blocks, make_step: Callable[[Any, Any], Callable[[], Any]], config_of_tpk: bool = True
) -> None:
    import tensorflow as tf

    import tpk

    config = tpk.default_session_config() if config_of_tpk else None
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as sess:
        train_op = sgd().minimize(cost(*batch()))
        sess.run(tf.compat.v1.global_variables_initializer())
        blocks.run(make_step(sess, train_op))


def monitored_session(blocks: Blocks) -> None:
    import tensorflow as tf

    import tpk

    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step()
        train_op = sgd().minimize(cost(*batch()), global_step=step)
        creator = tf.compat.v1.train.ChiefSessionCreator(config=tpk.default_session_config())
        with tf.compat.v1.train.MonitoredSession(creator) as sess:
            blocks.run(partial(sess.run, train_op))


def keras_fit(blocks: Blocks) -> None:
    import keras
    import tensorflow as tf

    if int(keras.__version__.split(".")[0]) < 3:
        raise ImportError(f"Keras is {keras.__version__}, which is not 3")
    model = keras.Sequential([keras.Input([FEATURES]), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(RATE), "mse")
    clock = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: blocks.begin(), on_epoch_end=lambda epoch, logs: blocks.end()
    )
    rows = BATCH * blocks.steps
    x, y = tf.random.normal([rows, FEATURES]), tf.random.normal([rows, 1])
    model.fit(x, y, batch_size=BATCH, shuffle=False, epochs=blocks.count, verbose=0, callbacks=[clock])


def tensorpack_defaults(blocks: Blocks, package: str = "tensorpack") -> None:
    import tensorflow as tf

    tensorpack: Any = importlib.import_module(package)

    class Clock(tensorpack.Callback):
        def _before_epoch(self) -> None:
            blocks.begin()

        def _after_epoch(self) -> None:
            blocks.end()

    def summarized_cost(x: Any, y: Any) -> Any:
        value = cost(x, y)
        tensorpack.tfutils.summary.add_moving_summary(value)
        return value

    tensorpack.logger.set_logger_dir("train_log", action="d")
    with tf.Graph().as_default():
        trainer = tensorpack.SimpleTrainer()
        trainer.setup_graph(signature(), tensorpack.TensorInput(batch, size=blocks.steps), summarized_cost, sgd)
        trainer.train_with_defaults(callbacks=[Clock()], steps_per_epoch=blocks.steps, max_epoch=blocks.count)


def tpk_bare(blocks: Blocks) -> None:
    import tpk

    trainer = tpk.Trainer()
    with trainer.graph.as_default():
        trainer.train_op = sgd().minimize(cost(*batch()))
    trainer.train(callbacks=[tpk_clock(blocks)], steps_per_epoch=blocks.steps, max_epoch=blocks.count)


def tpk_defaults(blocks: Blocks, summarize: bool = True, more_callbacks: Callable[[], list[Any]] = list) -> None:
    import tpk

    def summarized_cost(x: Any, y: Any) -> Any:
        value = cost(x, y)
        tpk.add_moving_summary(value)
        return value

    trainer = tpk.SimpleTrainer()
    trainer.setup_graph(signature(), tpk.TensorInput(batch), summarized_cost if summarize else cost, sgd)
    trainer.train_with_defaults(
        callbacks=[tpk_clock(blocks), *more_callbacks()],
        steps_per_epoch=blocks.steps,
        max_epoch=blocks.count,
        run_dir="run",
    )


def tpk_clock(blocks: Blocks) -> Any:
    import tpk

    return tpk.CallbackFactory(before_epoch=lambda self: blocks.begin(), after_epoch=lambda self: blocks.end())


def ten_callbacks() -> list[Any]:
    """Make seven callbacks that count the steps and three that fetch the cost in each."""
    import tpk

    class CountSteps(tpk.Callback):
        count = 0

        def trigger_step(self, trainer: Any) -> None:
            self.count += 1

    class KeepCost(tpk.Callback):
        def before_train(self, trainer: Any) -> None:
            self.cost = trainer.towers.training()[0].output

        def before_run(self, run_context: Any) -> Any:
            return self.cost

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.last = run_values.results

    return [*(CountSteps() for _ in range(7)), *(KeepCost() for _ in range(3))]


CONTENDERS: dict[str, Callable[[Blocks], None]] = {
    RAW: partial(tensorflow_session, make_step=lambda sess, train_op: partial(sess.run, train_op)),
    CALLABLE: partial(tensorflow_session, make_step=lambda sess, train_op: sess.make_callable(train_op)),
    UNTUNED: partial(
        tensorflow_session, make_step=lambda sess, train_op: sess.make_callable(train_op), config_of_tpk=False
    ),
    "MonitoredSession.run(train_op)": monitored_session,
    "Keras 3, fit": keras_fit,
    TENSORPACK: tensorpack_defaults,
    STAND_IN: partial(tensorpack_defaults, package="tpk_tensorpack"),
    BARE: tpk_bare,
    "tpk, all defaults, nothing to summarize": partial(tpk_defaults, summarize=False),
    DEFAULTS: tpk_defaults,
    "tpk, all defaults and 10 callbacks": partial(tpk_defaults, more_callbacks=ten_callbacks),
}


def contender(name: str) -> Callable[[Blocks], None]:
    """Return the function of a contender, of this file or of `steps_in_a_run.py`."""
    if name in CONTENDERS:
        return CONTENDERS[name]
    from steps_in_a_run import MODELS

    model, _, own_name = name.partition(": ")
    return MODELS[model][own_name]
