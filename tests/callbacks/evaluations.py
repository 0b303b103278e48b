"""A small training for tests of evaluations, in one process, or in several that are threads."""

from __future__ import annotations

import threading

import numpy as np
import tensorflow as tf

import tpk
from tpk.errors import PeerError
from tpk.strategies import ProcessGroup
from tpk.strategies.single import SingleStrategy

v1 = tf.compat.v1

SIGNATURE = [tf.TensorSpec([None], tf.float32, "x"), tf.TensorSpec([None], tf.int64, "y")]

_rng = np.random.default_rng(0)
# Batches of different sizes.
BATCHES = [[_rng.normal(size=size).astype(np.float32), _rng.integers(0, 2, size)] for size in (3, 1, 4, 1, 5, 2, 6)]


def build(x, y):
    """Its weight is the number of the step."""
    w = v1.get_variable("w", initializer=0.0)
    score = tf.sigmoid(x * (w + 1), name="score")
    tf.identity(w, name="weight")
    tf.reduce_mean(score, name="average")
    tf.cast(tf.not_equal(score > 0.5, y > 0), tf.float32, name="incorrect_vector")
    return tf.negative(w, name="cost")


class Last(tpk.Callback):
    """Keeps the history of all scalars."""

    chief_only = False

    def after_train(self, trainer):
        monitors = trainer.monitors
        self.history = {name: [value for _, value in monitors.get_history(name)] for name in monitors.names}
        self.steps = {name: [step for step, _ in monitors.get_history(name)] for name in monitors.names}


def train(*callbacks, strategy="single", steps=2, epochs=2, optimizer=None, last=None, **options):
    """Train, and return the values of each statistic."""
    last = last or Last()
    trainer = tpk.SingleCostTrainer(strategy)
    data = tpk.FeedInput([[np.float32([1.0]), np.int64([1])]])
    trainer.setup_graph(SIGNATURE, data, build, optimizer or (lambda: v1.train.GradientDescentOptimizer(1.0)))
    trainer.train(callbacks=[*callbacks, last], steps_per_epoch=steps, max_epoch=epochs, **options)
    return last.history


class Meeting:
    """Where the threads of `train_together` process_group values."""

    def __init__(self, count):
        self.given = [[] for _ in range(count)]
        self.gone = set()
        self.news = threading.Condition()

    def leave(self, rank):
        with self.news:
            self.gone.add(rank)
            self.news.notify_all()


class ThreadExchange(ProcessGroup):
    def __init__(self, meeting, rank):
        super().__init__(rank, len(meeting.given))
        self._meeting = meeting

    def gather_bytes(self, data):
        meeting = self._meeting
        own = meeting.given[self.rank]
        with meeting.news:
            own.append(data)
            number = len(own)
            meeting.news.notify_all()

            def late():
                return {rank for rank, given in enumerate(meeting.given) if len(given) < number}

            meeting.news.wait_for(lambda: not late() or late() & meeting.gone, timeout=60)
            if late():
                raise PeerError(f"rank {late()} has not come")
        return [given[number - 1] for given in meeting.given]


class ThreadStrategy(SingleStrategy):
    """One of several processes that train the same, each in a thread."""

    def __init__(self, meeting, rank):
        super().__init__()
        self._process_group = ThreadExchange(meeting, rank)

    rank = property(lambda self: self._process_group.rank)
    world_size = property(lambda self: self._process_group.world_size)
    process_group = property(lambda self: self._process_group)


def train_together(count, make_callbacks, **options):
    """Train in several threads; return for each rank the values of its statistics, or its error.

    Args:
        count: how many.
        make_callbacks: given a rank, returns its callbacks.
    """
    meeting, outcomes = Meeting(count), [None] * count

    def run(rank):
        try:
            outcomes[rank] = train(*make_callbacks(rank), strategy=ThreadStrategy(meeting, rank), **options)
        except Exception as error:
            outcomes[rank] = error
        finally:
            meeting.leave(rank)

    threads = [threading.Thread(target=run, args=[rank], daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    return outcomes
