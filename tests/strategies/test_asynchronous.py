from __future__ import annotations

import threading
import traceback

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.strategies.asynchronous import AsyncStrategy, Workers

v1 = tf.compat.v1


class Counting(tpk.ModelDesc):
    """Its gradient is the input, so that with a rate of 1 and inputs of 1 `w` counts the updates backwards."""

    def inputs(self):
        return [tf.TensorSpec([], tf.float32, "x")]

    def build_graph(self, x):
        return v1.get_variable("w", initializer=np.float32(0)) * x

    def optimizer(self):
        return v1.train.GradientDescentOptimizer(1.0, use_locking=True)


class Final(tpk.Callback):
    def after_train(self, trainer):
        (w,) = v1.trainable_variables()
        self.w = trainer.sess.run(w)
        self.failure = trainer.loop.failure


class Pauses(tpk.Callback):
    """Looks whether the variables stand still between epochs."""

    def trigger_epoch(self, trainer):
        (w,) = v1.trainable_variables()
        first = trainer.sess.run(w)
        self.still = all(trainer.sess.run(w) == first for _ in range(50))


def train(strategy, source=None, model=None, steps=200, callbacks=(), max_epoch=2):
    model = model or Counting()
    final = Final()
    trainer = tpk.SingleCostTrainer(strategy)
    source = source or tpk.TensorInput(lambda: [tf.constant(1.0)])
    trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
    trainer.train(callbacks=[*callbacks, final], steps_per_epoch=steps, max_epoch=max_epoch)
    return final


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_every_towers_updates_arrive():
    strategy, pauses = AsyncStrategy(3, scale_gradient=False), Pauses()
    final = train(strategy, callbacks=[pauses], steps=3000)
    assert strategy.updates[0] == 6000
    assert min(strategy.updates) > 0
    assert -final.w == sum(strategy.updates)
    assert pauses.still


def test_gradients_are_scaled_by_the_number_of_towers():
    strategy = AsyncStrategy(4)
    final = train(strategy)
    assert -final.w == sum(strategy.updates) / 4


def test_sparse_gradients_are_scaled_too():
    class Embedding(Counting):
        def build_graph(self, x):
            table = v1.get_variable("w", [2], initializer=v1.zeros_initializer())
            return tf.reduce_sum(tf.gather(table, [1])) * x

    strategy = AsyncStrategy(2)
    final = train(strategy, model=Embedding())
    assert final.w.tolist() == [0, -sum(strategy.updates) / 2]


def test_one_tower_is_a_tower_like_any_other():
    strategy = AsyncStrategy(1)
    assert -train(strategy).w == 400
    assert strategy.updates == [400]


def test_every_datapoint_of_a_queue_is_used_once():
    strategy = AsyncStrategy(3, scale_gradient=False)
    data = [[np.float32(1)]] * 300
    final = train(strategy, source=tpk.QueueInput(data, infinite=False), steps=10_000)
    assert sum(strategy.updates) == -final.w == 300
    assert final.failure is None


def test_a_failure_in_a_worker_ends_the_training_with_its_traceback():
    calls = []

    def explode():
        calls.append(None)
        if len(calls) > 3:
            raise ZeroDivisionError("in the worker")
        return np.float32(1)

    class Explosive(Counting):
        def build_graph(self, x):
            if tpk.get_current_tower_context().index == 1:
                x = tf.numpy_function(explode, [], tf.float32)
                x.set_shape([])
            return super().build_graph(x)

    with pytest.raises(tf.errors.UnknownError, match="in the worker") as raised:
        train(AsyncStrategy(2), model=Explosive(), steps=10_000_000)
    assert "asynchronous.py" in "".join(traceback.format_tb(raised.value.__traceback__))


def test_a_failure_of_the_data_arrives_as_itself():
    def data():
        yield [np.float32(1)]
        raise KeyError("in the data")

    with pytest.raises(KeyError, match="in the data"):
        train(AsyncStrategy(2), source=tpk.QueueInput(tpk.DataFromGenerator(data)))


def test_fed_data_is_an_error():
    with pytest.raises(tpk.InputError, match=r"'tower0/x:0' is fed.*QueueInput"):
        train("async", source=tpk.FeedInput([[np.float32(1)]]))


def test_several_objectives_are_an_error():
    with pytest.raises(tpk.ConfigError, match="trains one objective"):
        AsyncStrategy(2).build(None, None, [None, None], [(0,), (1,)])


def test_synchronized_statistics_are_an_error():
    class Synchronized(Counting):
        def build_graph(self, x):
            normal = tpk.layers.batch_normalization(tf.ones([2, 3]) * x, training=True, sync=True)
            return super().build_graph(tf.reduce_sum(normal))

    with pytest.raises(tpk.TowerError, match="async"):
        train(AsyncStrategy(2), model=Synchronized())


# Workers.


def test_workers_run_only_between_resume_and_pause():
    called = threading.Event()
    workers = Workers([called.set])
    assert workers.counts == [0]
    workers.resume()
    assert called.wait(60)
    workers.pause()
    count = workers.counts[0]
    called.clear()
    workers.stop()
    assert workers.counts[0] == count > 0
    assert not called.is_set()


def test_a_worker_that_meets_its_end_does_so_quietly():
    def end():
        raise StopIteration

    workers = Workers([end], ends=(StopIteration,))
    workers.resume()
    workers.stop()
    workers.raise_failure()


def test_a_call_that_never_returns_is_left_behind_with_a_warning(caplog):
    entered, release = threading.Event(), threading.Event()

    def hang():
        entered.set()
        release.wait()

    workers = Workers([hang], timeout=0.01)
    workers.resume()
    assert entered.wait(60)
    workers.stop()
    assert "tpk-worker-1 has not ended its call" in caplog.text
    release.set()
    for thread in threading.enumerate():
        if thread.name == "tpk-worker-1":
            thread.join(60)
