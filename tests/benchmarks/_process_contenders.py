"""The contenders of processes.py, as that starts them by `tpk launch`: the same models, trained by processes that talk.

tpk launch -n 2 _process_contenders.py CONTENDER MODEL SOCKET STEPS BLOCKS together|apart
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np

RATE = 1e-6
"""Low, so that nothing overflows, which would change how long arithmetic takes."""

RAW = "raw-horovod"
HOROVOD = "tpk-horovod"
COLLECTIVE = "tpk-collective"
RING = "tpk-collective ring"
COMPRESSED = "tpk-collective fp16"
KERAS = "keras"

TOGETHER, APART = "together", "apart"


def main() -> None:
    """Be one of the processes."""
    name, model, address, steps, blocks, relation = sys.argv[1:]
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        # The first process without peers also has a block alone.
        count = int(blocks) * (2 if relation == APART and rank == 0 else 1)
        parent = Blocks(connection, rank, int(steps), count)
        if relation == APART:
            leave_cluster()
        try:
            CONTENDERS[name](parent, MODELS[model])
            parent.tell_last()
        except ImportError as error:
            parent.say(absent=str(error), is_failure=False)
        except Exception:
            parent.say(absent=traceback.format_exc(), is_failure=True)


def leave_cluster() -> None:
    """Make this process a separate cluster."""
    config = json.loads(os.environ["TF_CONFIG"])
    workers = [config["cluster"]["worker"][config["task"]["index"]]]
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}}
    os.environ["TF_CONFIG"] = json.dumps(config)


class Blocks:
    """The blocks of steps of one process: each begins when the parent process says so, and is timed.

    Args:
        connection: to the parent, which gets the seconds per step of a block, and those that all threads have
            computed, once this process is back for the next.
        rank: the number of this process.
        steps: how many steps a block has.
        count: how many blocks there are.
    """

    def __init__(self, connection: socket.socket, rank: int, steps: int, count: int) -> None:
        self.rank, self.steps, self.count = rank, steps, count
        self._stream = connection.makefile("rw")
        self._start = self._last = (0.0, 0.0)
        self.say(rank=rank, pid=os.getpid())

    def say(self, **message: Any) -> None:
        """Tell the parent something."""
        self._stream.write(json.dumps(message) + "\n")
        self._stream.flush()

    def begin(self) -> None:
        """Tell how long the last block took, wait for the turn, and start the clock."""
        self.tell_last()
        if not self._stream.readline():
            # The parent is gone; the others end with this process.
            os._exit(1)
        self._start = _clock()

    def end(self) -> None:
        """Stop the clock."""
        seconds, computed = ((end - start) / self.steps for start, end in zip(self._start, _clock(), strict=True))
        self._last = (seconds, computed)

    def tell_last(self) -> None:
        """Tell how long the last block took."""
        seconds, computed = self._last
        self.say(seconds=seconds, computed=computed)

    def run(self, step: Callable[[], Any]) -> None:
        """Do all blocks of a contender whose steps are calls of `step`."""
        for _ in range(self.count):
            self.begin()
            for _ in range(self.steps):
                step()
            self.end()


def _clock() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


# The models


@attrs.frozen
class Model:
    """What is trained.

    Attributes:
        batch: the datapoints of a step, in each process.
        shape: of one datapoint.
        labels: how many classes there are, or how many numbers are the label of a datapoint.
        is_classifier: which of the two.
        outputs: adds the model to the graph, in tpk's layers.
        keras: the same from Keras' layers: the tensor of the inputs to that of the outputs.
    """

    batch: int
    shape: tuple[int, ...]
    labels: int
    is_classifier: bool
    outputs: Callable[[Any], Any]
    keras: Callable[[Any], Any]

    def inputs(self) -> list[Any]:
        """Make data and labels in the graph."""
        import tensorflow as tf

        rng = np.random.default_rng(0)
        x = tf.constant(rng.normal(size=(self.batch, *self.shape)), tf.float32)
        if self.is_classifier:
            y = tf.constant(rng.integers(0, self.labels, self.batch))
        else:
            y = tf.constant(rng.normal(size=(self.batch, self.labels)), tf.float32)
        # Constants would be folded away.
        return [x + tf.random.uniform([]), y]

    def signature(self) -> list[Any]:
        """Return the specs of data and labels."""
        import tensorflow as tf

        shape, dtype = ([self.batch], tf.int64) if self.is_classifier else ([self.batch, self.labels], tf.float32)
        return [tf.TensorSpec([self.batch, *self.shape], tf.float32, "x"), tf.TensorSpec(shape, dtype, "y")]

    def cost(self, x: Any, y: Any) -> Any:
        """Add model and cost to the graph; return the cost."""
        import tensorflow as tf

        outputs = self.outputs(x)
        if self.is_classifier:
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=outputs))
        return tf.reduce_mean((outputs - y) ** 2)

    def of_keras(self) -> Any:
        """Make the Keras model, compiled."""
        import keras

        inputs = keras.Input(self.shape)
        model = keras.Model(inputs, self.keras(inputs))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True) if self.is_classifier else "mse"
        model.compile(keras.optimizers.SGD(RATE), loss)
        return model


STAGES, WIDTH, DEPTH = (16, 32, 64), 2500, 4


def resnet(x: Any) -> Any:
    """Build 20 layers as He et al. (2015, https://arxiv.org/abs/1512.03385) have them for CIFAR-10.

    But for the two shortcuts from one width to the next, which are projections.
    """
    import tensorflow as tf

    from tpk import layers

    def convolution(x: Any, filters: int, size: int, strides: int = 1) -> Any:
        x = layers.conv2d(x, filters, size, strides, padding="same", use_bias=False)
        return layers.batch_normalization(x, training=True)

    x = tf.nn.relu(convolution(x, STAGES[0], 3))
    for stage, filters in enumerate(STAGES):
        for block in range(3):
            strides = 2 if stage > 0 and block == 0 else 1
            inner = tf.nn.relu(convolution(x, filters, 3, strides))
            shortcut = convolution(x, filters, 1, strides) if strides > 1 else x
            x = tf.nn.relu(convolution(inner, filters, 3) + shortcut)
    return layers.dense(tf.reduce_mean(x, [1, 2]), 10)


def keras_resnet(x: Any) -> Any:
    from keras import layers

    def convolution(x: Any, filters: int, size: int, strides: int = 1) -> Any:
        x = layers.Conv2D(filters, size, strides, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    x = layers.ReLU()(convolution(x, STAGES[0], 3))
    for stage, filters in enumerate(STAGES):
        for block in range(3):
            strides = 2 if stage > 0 and block == 0 else 1
            inner = layers.ReLU()(convolution(x, filters, 3, strides))
            shortcut = convolution(x, filters, 1, strides) if strides > 1 else x
            x = layers.ReLU()(layers.Add()([convolution(inner, filters, 3), shortcut]))
    return layers.Dense(10)(layers.GlobalAveragePooling2D()(x))


def dense(x: Any) -> Any:
    """Build four layers with 25 million weights, which are 100 MB."""
    import tensorflow as tf

    from tpk import layers

    for number in range(DEPTH):
        x = layers.dense(x, WIDTH, activation=tf.nn.relu if number < DEPTH - 1 else None, use_bias=False)
    return x


def keras_dense(x: Any) -> Any:
    from keras import layers

    for number in range(DEPTH):
        x = layers.Dense(WIDTH, activation="relu" if number < DEPTH - 1 else None, use_bias=False)(x)
    return x


MODELS = {
    "resnet20": Model(32, (32, 32, 3), 10, True, resnet, keras_resnet),
    "dense": Model(4, (WIDTH,), WIDTH, False, dense, keras_dense),
}


# The contenders


def sgd() -> Any:
    import tensorflow as tf

    return tf.compat.v1.train.GradientDescentOptimizer(RATE)


def one_thread() -> Any:
    """Return the config of a session that computes in one thread, as `tpk launch --threads 1` has it elsewhere."""
    import tpk

    config = tpk.default_session_config()
    config.intra_op_parallelism_threads = config.inter_op_parallelism_threads = 1
    return config


def raw_horovod(blocks: Blocks, model: Model) -> None:
    """Train as Horovod's own examples for graphs do, in a loop that does nothing else."""
    import horovod.tensorflow as hvd
    import tensorflow as tf
    from tpk_distributed import Timeouts, as_cluster
    from tpk_horovod import bootstrap

    v1 = tf.compat.v1
    # What `horovodrun` does, which is not there; with the training it has nothing to do.
    cluster = as_cluster(None)
    with bootstrap.environment(bootstrap.placement(cluster)), bootstrap.rendezvous_server(cluster):
        board = bootstrap.Board.of_environment(cluster.rank, cluster.world_size, 0, cluster)
        assert board is not None
        board.meet(Timeouts(start=60.0))
        hvd.init()
        with tf.Graph().as_default():
            optimizer = hvd.DistributedOptimizer(sgd())
            minimize = optimizer.minimize(model.cost(*model.inputs()))
            train_op = tf.group(minimize, *v1.get_collection(v1.GraphKeys.UPDATE_OPS))
            broadcast = hvd.broadcast_variables(v1.global_variables(), root_rank=0)
            with v1.Session(config=one_thread()) as sess:
                sess.run(v1.global_variables_initializer())
                sess.run(broadcast)
                blocks.run(sess.make_callable(train_op))
        hvd.shutdown()


def tpk_strategy(name: str, package: str = "tpk", **options: Any) -> Callable[[Blocks, Model], None]:
    """Return the contender that is a training of tpk with this strategy, which a package brings."""

    def train(blocks: Blocks, model: Model) -> None:
        import tpk

        importlib.import_module(package)

        class Clock(tpk.Callback):
            chief_only = False

            def before_epoch(self, trainer: Any) -> None:
                blocks.begin()

            def after_epoch(self, trainer: Any) -> None:
                blocks.end()

        trainer = tpk.SingleCostTrainer(tpk.use(name, **options))
        trainer.setup_graph(model.signature(), tpk.TensorInput(model.inputs), model.cost, sgd)
        trainer.train_with_defaults(
            callbacks=[Clock()],
            steps_per_epoch=blocks.steps,
            max_epoch=blocks.count,
            session_config=one_thread(),
            run_dir=Path(f"run{blocks.rank}"),
        )

    return train


def keras_train_step(blocks: Blocks, model: Model) -> None:
    """Train by the model's own `train_step`, compiled: `fit` of Keras 3 fails if there are several workers."""
    import keras
    import tensorflow as tf

    # Before all else that uses TensorFlow's eager runtime, as it demands.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        network = model.of_keras()
        network.optimizer.build(network.trainable_variables)
        if int(keras.__version__.split(".")[0]) >= 3:
            specs = [keras.KerasTensor(spec.shape, spec.dtype.name) for spec in model.signature()]
            network._symbolic_build(data_batch=tuple(specs))

    @tf.function
    def step() -> None:
        strategy.run(lambda: network.train_step(tuple(model.inputs())))

    blocks.run(step)


CONTENDERS: dict[str, Callable[[Blocks, Model], None]] = {
    RAW: raw_horovod,
    HOROVOD: tpk_strategy("horovod", package="tpk_horovod"),
    COLLECTIVE: tpk_strategy("collective"),
    RING: tpk_strategy("collective", communication="ring"),
    COMPRESSED: tpk_strategy("collective", compression="fp16"),
    KERAS: keras_train_step,
}


if __name__ == "__main__":
    main()
