"""Functions that the tests run in processes: ``python trainings.py FUNCTION RESULT [ARGUMENT ...]``."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from tpk_distributed import Timeouts
from tpk_horovod.elastic import run_elastic
from tpk_horovod.strategy import HorovodStrategy

import tpk
from tpk.errors import PeerError
from tpk.testing import check_strategy

v1 = tf.compat.v1

REDUCED = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
BROADCAST = (*REDUCED, *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))

STEPS = 20
OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.05, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
    "accumulating": lambda: tpk.AccumGradOptimizer(v1.train.MomentumOptimizer(0.05, 0.9), niter=4),
}


class Regression(tpk.ModelDesc):
    """A small network; with `rows`, its first layer is an embedding, whose gradient is sparse."""

    def __init__(self, optimizer="sgd", rows=False):
        self.optimizer_name = optimizer
        self.rows = rows

    def inputs(self):
        x = tf.TensorSpec([None], tf.int32, "x") if self.rows else tf.TensorSpec([None, 3], tf.float32, "x")
        return [x, tf.TensorSpec([None, 1], tf.float32, "y")]

    def build_graph(self, x, y):
        def weights(name, shape, seed):
            return v1.get_variable(name, shape, initializer=v1.random_normal_initializer(stddev=0.5, seed=seed))

        table = weights("table", [10, 4], 1) if self.rows else None
        hidden = tf.nn.embedding_lookup(table, x) if self.rows else x @ weights("hidden", [3, 4], 1)
        bias = v1.get_variable("bias", [4], initializer=v1.zeros_initializer())
        prediction = tf.tanh(hidden + bias) @ weights("output", [4, 1], 2)
        # Its gradient is a constant, which TensorFlow could evaluate before training.
        slope = v1.get_variable("slope", [], initializer=v1.zeros_initializer())
        return tf.reduce_mean((prediction - y) ** 2, name="cost") + 0.1 * slope

    def optimizer(self):
        return OPTIMIZERS[self.optimizer_name]()


def datapoints(count, batch=4, rows=False):
    rng = np.random.default_rng(7)
    return [
        [
            rng.integers(0, 10, batch, np.int32) if rows else rng.normal(size=(batch, 3)).astype(np.float32),
            rng.normal(size=(batch, 1)).astype(np.float32),
        ]
        for _ in range(count)
    ]


def concatenated(points, count):
    return [
        [np.concatenate(parts) for parts in zip(*points[start : start + count], strict=True)]
        for start in range(0, len(points), count)
    ]


class Scalar(tpk.Callback):
    """Reports a scalar in each epoch."""

    def trigger_epoch(self):
        self.trainer.monitors.put_scalar("epoch", self.epoch_num)


class Variables(tpk.Callback):
    """Records the values of the variables after training."""

    chief_only = False

    def after_train(self):
        variables = {each.name: each for each in (*v1.global_variables(), *v1.local_variables())}
        self.values = self.trainer.sess.run(variables)


class Normalized(Regression):
    """A network whose batch normalization is synchronized across all towers."""

    def build_graph(self, x, y):
        w = v1.get_variable("w", [3, 1], initializer=v1.random_normal_initializer(stddev=0.5, seed=1))
        x = tpk.layers.batch_normalization(x, training=True, sync=True, momentum=0.5, name="norm")
        return tf.reduce_mean((tf.tanh(x @ w) - y) ** 2, name="cost")


def train(strategy, points, optimizer="sgd", rows=False, model=None, **options):
    """Train for one epoch, by default with one step per datapoint; return the values of the variables."""
    variables = Variables()
    options = {"max_epoch": 1, "monitors": [], "extra_callbacks": [], **options}
    config = tpk.TrainConfig(
        model=model or Regression(optimizer, rows),
        data=tpk.QueueInput(points),
        callbacks=[variables, *options.pop("callbacks", [])],
        seed=3,
        **options,
    )
    tpk.launch_train_with_config(config, strategy)
    return variables.values


def waits(seconds, start=200):
    """Return timeouts of `seconds` after the start, with an earlier warning about late processes."""
    return Timeouts(start=start, heartbeat=seconds, late_warning=seconds / 3, barrier=seconds)


def horovod(**options):
    return tpk.use("horovod", **{"timeouts": waits(60), **options})


def train_many_ways():
    """Train in several ways, one after the other, in the same processes."""
    points = datapoints(4 * STEPS)
    results = {name: train(horovod(devices=2), points, name, steps_per_epoch=STEPS) for name in OPTIMIZERS}
    fp16 = tpk.use("HorovodTrainer", devices=2, compression="fp16", timeouts=waits(60))
    results["fp16"] = train(fp16, points, steps_per_epoch=STEPS)
    results["sparse"] = train(
        horovod(devices=2), datapoints(4 * STEPS, rows=True), "momentum", rows=True, steps_per_epoch=STEPS
    )
    results["synchronized"] = train(horovod(devices=2), points, model=Normalized(), steps_per_epoch=STEPS)
    many_steps = {"steps_per_epoch": STEPS, "steps_per_run": 8}
    results["many steps in a run"] = train(horovod(devices=2), points, "momentum", **many_steps)
    results["objectives"] = train_two_objectives(horovod(devices=2), points)
    results["files"] = sorted(os.listdir())
    return results


def check_rules():
    """Check the rules of strategies in one process; return the names of the rules."""
    return check_strategy(lambda: HorovodStrategy(devices=["/cpu:0", "/cpu:1"]), num_towers=2, optimizers=["momentum"])


def train_two_objectives(strategy, points):
    """Train a model with two costs alternately."""

    def get_costs(x, y):
        ours = v1.get_variable("ours/w", [3, 1], initializer=v1.zeros_initializer())
        theirs = v1.get_variable("theirs/w", [1, 1], initializer=v1.ones_initializer())
        return {"ours": tf.reduce_mean((x @ ours - y) ** 2), "theirs": tf.reduce_mean((x @ ours @ theirs + y) ** 2)}

    trainer = tpk.MultiObjectiveTrainer(strategy)
    objectives = [tpk.Objective(OPTIMIZERS["momentum"], name=name, variables=name) for name in ("ours", "theirs")]
    trainer.setup_graph(Regression().inputs(), tpk.QueueInput(points), get_costs, objectives)
    variables = Variables()
    trainer.train(callbacks=[variables], steps_per_epoch=STEPS // 2, max_epoch=1)
    return variables.values


def operations():
    """Broadcast, reduce and gather objects without training."""
    strategy = HorovodStrategy(timeouts=waits(60))
    strategy.join()
    rank = strategy.rank
    exchanged = [strategy.process_group.gather_object("numbers", "x" * 1000 * size * rank) for size in (0, 1, 100)]
    try:
        strategy.process_group.gather_object(f"something of {rank}", None)
    except PeerError as error:
        exchanged.append(str(error))
    with tf.Graph().as_default(), v1.Session() as sess:
        variables = [
            v1.get_variable(name, initializer=tf.cast(tf.fill([2], 1 - rank), name)) for name in (*BROADCAST, "bool")
        ]
        variables.append(v1.get_variable("scalar", initializer=1.0 - rank))
        variables.append(v1.get_variable("empty", initializer=tf.zeros([0, 3])))
        broadcast = strategy.broadcast_from_chief(variables)
        given = [v1.placeholder(name, [2], f"given_{name}") for name in REDUCED]
        count = v1.placeholder(tf.int32, [])
        slices = tf.IndexedSlices(tf.fill([count, 1], 2.0), tf.range(count), tf.constant([4, 1]))
        means = strategy.reduce_over_processes([*given, slices])
        sess.run(v1.global_variables_initializer())
        sess.run(broadcast)
        feeds = {each: np.array([1 + 2 * rank, 4]) for each in given}
        reduced = [sess.run(means, {**feeds, count: 3 * rank}) for _ in range(3)][-1]
        values = [array.astype(complex) for array in sess.run(variables)]
    strategy.leave()
    return {
        "exchanged": exchanged,
        "broadcast": values,
        "means": [mean.astype(complex) for mean in reduced[:-1]],
        "slices": tuple(reduced[-1]),
        "local": (strategy.local_rank, strategy.local_size),
    }


class Act(tpk.Callback):
    """Calls a function in one process after a number of steps."""

    chief_only = False

    def __init__(self, rank, step, act):
        self.rank, self.step, self.act = rank, step, act

    def trigger_step(self):
        if self.global_step == self.step and self.trainer.strategy.process_group.rank == self.rank:
            self.act()


def kill_one(rank):
    """Train; one process dies."""
    act = Act(int(rank), 5, lambda: os.kill(os.getpid(), signal.SIGKILL))
    train(horovod(), datapoints(8), steps_per_epoch=1000, callbacks=[act])


def train_simply():
    return train(horovod(), datapoints(3 * STEPS), "adam", steps_per_epoch=STEPS)


def freeze_one(rank, timeout):
    """Train; one process is suspended."""
    act = Act(int(rank), 5, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    train(horovod(timeouts=waits(float(timeout))), datapoints(8), steps_per_epoch=1000, callbacks=[act])


def delay_one(rank, timeout):
    """Train; one process blocks until the test sends a line."""
    act = Act(int(rank), 5, lambda: sys.stdin.readline())
    train(horovod(timeouts=waits(float(timeout))), datapoints(8), steps_per_epoch=1000, callbacks=[act])


def differ():
    """Train with different models in the processes."""
    rank = int(os.environ["RANK"])
    train(horovod(), datapoints(8, rows=rank == 1), rows=rank == 1, steps_per_epoch=10)


def differ_in_options():
    """Train with different compression in the processes."""
    compression = "fp16" if os.environ["RANK"] == "1" else None
    train(horovod(compression=compression), datapoints(8), steps_per_epoch=10)


def start_only():
    train(horovod(timeouts=waits(3, start=3)), datapoints(8), steps_per_epoch=10)


def train_to_checkpoint(epochs):
    """Train or resume in a directory that all processes share."""
    return train(
        horovod(),
        datapoints(8),
        "momentum",
        steps_per_epoch=4,
        max_epoch=int(epochs),
        callbacks=[Scalar(), "ModelSaver"],
        monitors=["JSONWriter", "TFEventWriter"],
        run_dir=os.environ["SHARED"],
        resume="auto",
    )


def initialized_by_the_user():
    import horovod.tensorflow as hvd

    hvd.init()
    values = train(horovod(), datapoints(8), steps_per_epoch=4)
    return {"values": values, "is_initialized": hvd.is_initialized(), "size": hvd.size()}


class Journal(tpk.Callback):
    """Appends each step, the rank and the number of processes to a shared file."""

    chief_only = False

    def trigger_step(self):
        process_group = self.trainer.strategy.process_group
        with Path(os.environ["SHARED"], "journal").open("a") as journal:
            journal.write(f"{self.global_step} {process_group.rank} {process_group.world_size}\n")


def elastic(steps, event):
    """Train elastically; in step 10, either the process with one rank dies or another host is added, once."""
    shared = Path(os.environ["SHARED"])
    happened = shared / "happened"

    def act(trainer):
        rank = 0 if event == "join" else int(event)
        if trainer.global_step < 10 or happened.exists() or trainer.strategy.process_group.rank != rank:
            return
        happened.touch()
        if event == "join":
            (shared / "hosts_later").replace(shared / "hosts")
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    class Event(tpk.Callback):
        chief_only = False

        def trigger_step(self):
            act(self.trainer)
            hosts = (shared / "hosts").read_text().splitlines()
            if event == "join" and self.trainer.strategy.process_group.world_size < len(hosts):
                # So that training is not over before the other process has started.
                time.sleep(0.5)

    return run_elastic(lambda: train_in_epochs(int(steps) // 4, [Journal(), Event()]))


def train_in_epochs(epochs, callbacks=()):
    """Train or resume in a directory that all processes share, four steps in each epoch."""
    return train(
        horovod(timeouts=waits(900, start=900), fusion_bytes=0),  # Longer than the tests: nothing may wait for it.
        datapoints(8),
        steps_per_epoch=4,
        max_epoch=int(epochs),
        callbacks=["ModelSaver", *callbacks],
        run_dir=Path(os.environ["SHARED"]) / "run",
        resume="auto",
    )


def train_until(step):
    """Train like `train_in_epochs`, and end after a step."""

    def stop():
        raise tpk.StopTraining

    rank = int(os.environ["RANK"])
    return train_in_epochs(1000, [Act(rank, int(step), stop)])


if __name__ == "__main__":
    function, result, *arguments = sys.argv[1:]
    Path(result).write_bytes(pickle.dumps(globals()[function](*arguments)))
