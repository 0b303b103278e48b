"""The count of steps in the graph."""

from __future__ import annotations

import threading

import pytest
import tensorflow as tf

import tpk

v1 = tf.compat.v1


class Ends(tpk.Callback):
    def after_train(self, trainer):
        self.counted = int(trainer.sess.run(v1.train.get_global_step(trainer.graph)))
        self.completed = trainer.global_step


def test_the_variable_counts_the_runs():
    class T(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                self.train_op = tf.no_op()

    ends = Ends()
    T().train(callbacks=[ends], steps_per_epoch=4, max_epoch=2)
    assert (ends.counted, ends.completed) == (8, 8)


def test_a_schedule_reads_the_step_before_it_is_counted():
    class T(tpk.Trainer):
        """Its train op sums up the global step, through something slow."""

        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                step = v1.train.get_or_create_global_step()
                self.total = v1.get_variable("total", initializer=0.0)
                noise = tf.random.uniform([300, 300])  # constants would be folded away
                slow = tf.linalg.matmul(noise, noise)
                with tf.control_dependencies([slow]):
                    rate = v1.train.polynomial_decay(0.0, step.read_value(), 1000, 1000.0)
                self.train_op = self.total.assign_add(rate, read_value=False)

    class Total(Ends):
        def after_train(self, trainer):
            self.total = trainer.sess.run(trainer.total)

    total = Total()
    T().train(callbacks=[total], steps_per_epoch=50, max_epoch=1)
    assert abs(total.total - sum(range(50))) < 1e-2


def test_a_train_op_that_counts_by_itself_is_not_counted_twice(caplog):
    class T(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                w = v1.get_variable("w", initializer=1.0)
                step = v1.train.get_or_create_global_step()
                self.train_op = v1.train.GradientDescentOptimizer(0.1).minimize(w * w, global_step=step)

    ends = Ends()
    T().train(callbacks=[ends], steps_per_epoch=3, max_epoch=1)
    assert (ends.counted, ends.completed) == (3, 3)


def with_loss(trainer):
    return [trainer.train_op, trainer.loss]


RUNS = {
    "as it is": lambda trainer: trainer.train_op,
    "list": with_loss,
    "tuple": lambda trainer: (trainer.loss, trainer.train_op),
    "dict": lambda trainer: {"loss": trainer.loss, "step": [trainer.train_op]},
    "name": lambda trainer: trainer.train_op.name,
    "what depends on it": lambda trainer: trainer.loss_afterwards,
    "equal lists, with and without": lambda trainer: trainer.choose(),
}


@pytest.mark.parametrize("counts", ["itself", "in a branch", "by assign", "not"])
@pytest.mark.parametrize("run", RUNS)
def test_however_the_train_op_is_run_a_run_counts_once(run, counts):
    class T(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                w = v1.get_variable("w", initializer=1.0)
                step = v1.train.get_or_create_global_step()
                self.loss = w * w
                optimizer = v1.train.GradientDescentOptimizer(0.1)
                if counts == "in a branch":
                    self.train_op = tf.cond(
                        w < 1e9, lambda: optimizer.minimize(w * w, global_step=step), lambda: tf.no_op()
                    ).op
                else:
                    self.train_op = optimizer.minimize(self.loss, global_step=step if counts == "itself" else None)
                if counts == "by assign":
                    with tf.control_dependencies([self.train_op]):
                        self.train_op = step.assign(step + 1, read_value=False)
                with tf.control_dependencies([self.train_op]):
                    self.loss_afterwards = tf.identity(self.loss)

        def choose(self):
            # The two lists are equal in structure only.
            return [self.train_op, self.loss] if self.local_step % 2 else [self.loss, self.loss]

        def run_step(self):
            self.hooked_sess.run(RUNS[run](self))

    ends = Ends()
    T().train(callbacks=[ends], steps_per_epoch=4, max_epoch=1)
    assert (ends.counted, ends.completed) == (4, 4)


def test_several_train_ops_in_one_run_are_all_done_before_it_counts():
    class T(tpk.Trainer):
        """Its train ops sum up the global step, one of them through something slow."""

        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                step = v1.train.get_or_create_global_step()
                self.totals = [v1.get_variable(f"total{number}", initializer=0) for number in range(2)]
                noise = tf.random.uniform([300, 300])
                with tf.control_dependencies([tf.linalg.matmul(noise, noise)]):
                    slow = self.totals[0].assign_add(tf.cast(step.read_value(), tf.int32), read_value=False)
                fast = self.totals[1].assign_add(tf.cast(step.read_value(), tf.int32), read_value=False)
                self.both = [fast, slow]

        @property
        def train_ops(self):
            return self.both

        def run_step(self):
            self.hooked_sess.run(self.both)

    class Totals(Ends):
        def after_train(self, trainer):
            super().after_train(trainer)
            self.totals = trainer.sess.run(trainer.totals)

    totals = Totals()
    T().train(callbacks=[totals], steps_per_epoch=50, max_epoch=1)
    assert (totals.totals, totals.counted) == ([sum(range(50))] * 2, 50)


def test_a_step_that_a_thread_counts_by_way_of_a_queue_is_not_counted_twice():
    """As under `SyncReplicasOptimizer`: a thread updates and counts, and the train op waits for its tokens."""

    class T(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                step = v1.train.get_or_create_global_step()
                tokens = tf.queue.FIFOQueue(100, [tf.int64], shapes=[()])
                with tf.control_dependencies([step.assign_add(1)]):
                    self.sync_op = tokens.enqueue(step.read_value())
                self.train_op = tf.group(tokens.dequeue())

    class Syncs(Ends):
        def before_train(self, trainer):
            runs = [trainer.sess.make_callable(trainer.sync_op)] * 5
            self.thread = threading.Thread(target=lambda: [run() for run in runs])
            self.thread.start()

        def after_train(self, trainer):
            self.thread.join()
            super().after_train(trainer)

    ends = Syncs()
    T().train(callbacks=[ends], steps_per_epoch=5, max_epoch=1)
    assert (ends.counted, ends.completed) == (5, 5)


def test_any_structure_may_be_the_train_op():
    class T(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                self.train_op = [tf.no_op(), {"x": tf.constant(1.0)}]

    ends = Ends()
    T().train(callbacks=[ends], steps_per_epoch=3, max_epoch=1)
    assert (ends.counted, ends.completed) == (3, 3)


def test_a_restored_step_continues(tmp_path):
    class T(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                self.train_op = tf.no_op()

    T().train(callbacks=["ModelSaver"], steps_per_epoch=3, max_epoch=1, run_dir=tmp_path / "a")
    ends = Ends()
    T().train(callbacks=[ends], steps_per_epoch=2, max_epoch=1, session_init=tpk.SaverRestore(tmp_path / "a"))
    assert (ends.counted, ends.completed) == (5, 5)


class Counting(tpk.Trainer):
    """Creates the global step itself, and its train op counts it."""

    def __init__(self, initial=0, **options):
        super().__init__()
        with self.graph.as_default():
            self.step = v1.Variable(initial, name="global_step", **options)
            cost = tf.square(v1.get_variable("w", []))
            self.train_op = v1.train.GradientDescentOptimizer(0.1).minimize(cost, global_step=self.step)


@pytest.mark.parametrize("options", [{"trainable": False}, {}, {"dtype": tf.int64}])
def test_a_variable_of_that_name_becomes_the_global_step(tmp_path, options):
    for max_epoch in (1, 2):
        with tf.Graph().as_default():
            ends, trainer = Ends(), Counting(**options)
            trainer.train(
                callbacks=[ends, "ModelSaver"],
                steps_per_epoch=3,
                max_epoch=max_epoch,
                run_dir=tmp_path / "run",
                resume="auto",
            )
            assert v1.train.get_global_step(trainer.graph) is trainer.step
        assert (ends.counted, ends.completed) == (3 * max_epoch, 3 * max_epoch)


@pytest.mark.parametrize(("initial", "kind"), [(0.0, "does not have integer type"), ([0, 0], "is not scalar")])
def test_a_variable_of_that_name_that_cannot_count_is_an_error(initial, kind):
    with tf.Graph().as_default():
        v1.Variable(initial, name="global_step")
        with pytest.raises(tpk.ConfigError, match=rf"global_step. {kind}.*Write .*get_or_create_global_step\(\)"):
            tpk.graph.get_global_step_var()
