from __future__ import annotations

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


def test_any_structure_may_be_the_train_op():
    class T(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                self.train_op = [tf.no_op(), {"x": tf.constant(1.0)}]

    ends = Ends()
    T().train(callbacks=[ends], steps_per_epoch=3, max_epoch=1)
    assert (ends.counted, ends.completed) == (3, 3)


def test_a_restored_step_goes_on(tmp_path):
    class T(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                self.train_op = tf.no_op()

    T().train(callbacks=["ModelSaver"], steps_per_epoch=3, max_epoch=1, run_dir=tmp_path / "a")
    ends = Ends()
    T().train(callbacks=[ends], steps_per_epoch=2, max_epoch=1, session_init=tmp_path / "a")
    assert (ends.counted, ends.completed) == (5, 5)
