"""`run_step_fn`, `close` and `with` of the step engine, held against those of TensorFlow's `MonitoredSession`."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hooked_sessions import Ask, hooked, op, t

import tpk
from tpk.errors import StopTraining

v1 = tf.compat.v1


@pytest.fixture(params=["tpk", "TensorFlow"])
def session(request, sess):
    """A session with hooks, one that counts the runs that they see, and the raw session beneath."""
    if request.param == "tpk":
        asked = Ask(t("seven"))
        return hooked(sess, asked), asked, sess

    class Hook(v1.train.SessionRunHook):
        got = []

        def before_run(self, run_context):
            return v1.train.SessionRunArgs(t("seven"))

        def after_run(self, run_context, run_values):
            self.got.append(run_values.results)

    scaffold = v1.train.Scaffold(summary_op=tf.no_op())
    Hook.got = []
    monitored = v1.train.MonitoredSession(v1.train.ChiefSessionCreator(scaffold), hooks=[Hook()])
    return monitored, Hook, monitored._tf_sess()


def test_a_step_function_runs_with_hooks_and_without(session):
    hooked_sess, hook, raw = session
    a = np.ones((3, 2), np.float32)

    def step_fn(step_context):
        assert step_context.session is raw
        before = step_context.session.run(t("pair"))
        return before.shape, step_context.run_with_hooks(t("total"), feed_dict={t("a"): a}).tolist()

    with hooked_sess as entered:
        assert entered is hooked_sess
        assert hooked_sess.run_step_fn(step_fn) == ((2, 1), (a + 1).tolist())
        assert hook.got == [7.0]
        assert not hooked_sess.should_stop()
    assert hooked_sess.should_stop()


def test_the_end_of_the_data_leaves_the_context_without_an_error(session):
    hooked_sess, _, raw = session
    with hooked_sess:
        raise tf.errors.OutOfRangeError(None, None, "no more")
    with pytest.raises(RuntimeError, match=r"(?i)closed session"):
        raw.run(t("seven"))


def test_other_errors_leave_the_context_as_they_are(session):
    with pytest.raises(ZeroDivisionError), session[0]:
        raise ZeroDivisionError


def test_a_step_function_that_asks_for_the_end_is_left_and_the_loop_ends(sess):
    steps = []

    def step_fn(step_context):
        steps.append(step_context.run_with_hooks(t("seven")))
        if len(steps) == 3:
            step_context.request_stop()
        return len(steps)

    results = []
    with hooked(sess, Ask(t("seven"))) as hooked_sess:
        while not hooked_sess.should_stop():
            results.append(hooked_sess.run_step_fn(step_fn))
    assert results == [1, 2, None]


def test_an_iterator_at_its_end_does_not_pass_for_a_wish_to_end(sess):
    with pytest.raises(StopIteration):
        hooked(sess).run_step_fn(lambda step_context: next(iter([])))


def test_a_wish_to_end_the_training_leaves_the_context(sess):
    with hooked(sess):
        raise StopTraining("good enough")


@pytest.mark.parametrize("step_fn", [lambda: 1, lambda step_context, more: 1])
def test_what_takes_no_step_context_is_refused(sess, step_fn):
    with pytest.raises(TypeError, match=r"expected a function of one argument, the step context.*run\(fetches\)"):
        hooked(sess).run_step_fn(step_fn)


def test_fetches_are_no_step_function(sess):
    with pytest.raises(TypeError, match="expected a function of one argument"):
        hooked(sess).run_step_fn(op("bump"))


def test_a_trainer_makes_its_steps_of_a_step_function():
    class Counting(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                self.count = v1.get_variable("count", initializer=0)
                self.train_op = self.count.assign_add(1).op
            self.seen = []

        def run_step(self):
            self.hooked_sess.run_step_fn(self.count_twice)

        def count_twice(self, step_context):
            step_context.session.run(self.train_op)
            step_context.run_with_hooks(self.train_op)
            self.seen.append(int(step_context.session.run(self.count)))
            if len(self.seen) == 5:
                step_context.request_stop()

    class Epochs(tpk.Callback):
        def trigger_epoch(self, trainer):
            done.append((trainer.global_step, trainer.epoch_num))

    done = []
    trainer = Counting()
    trainer.train(callbacks=[Epochs()], steps_per_epoch=4, max_epoch=10)
    assert trainer.seen == [2, 4, 6, 8, 10]
    assert done[0] == (4, 1)
    assert trainer.loop.stop_reason and trainer.global_step == 5
