from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.callbacks.factory import CallbackFactory
from tpk.callbacks.graph_ops import RunOp
from tpk.callbacks.session_hooks import CallbackToHook, HookToCallback
from tpk.callbacks.triggers import PeriodicCallback
from tpk.errors import HookError

SessionRunHook = tf.compat.v1.train.SessionRunHook
SessionRunArgs = tf.compat.v1.train.SessionRunArgs

NUMBER = "number/Read/ReadVariableOp:0"


def double_a_number():
    """Return an op that doubles the variable that `NUMBER` reads, after that is read."""
    number = tf.compat.v1.get_variable("number", initializer=1.0, use_resource=True)
    with tf.control_dependencies([tf.compat.v1.get_default_graph().get_tensor_by_name(NUMBER)]):
        return number.assign(2 * number, read_value=False)


class Doubling(tpk.Trainer):
    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.train_op = double_a_number()

    def run(self, *callbacks, steps_per_epoch=2, max_epoch=2):
        self.train(callbacks=list(callbacks), monitors=[], steps_per_epoch=steps_per_epoch, max_epoch=max_epoch)


def test_a_hook_gets_graph_session_and_coordinator_of_the_training():
    seen = {}

    class Hook(SessionRunHook):
        def begin(self):
            seen["graph"] = tf.compat.v1.get_default_graph()
            self.one = tf.constant(1.0, name="in_no_scope")

        def after_create_session(self, session, coord):
            seen["session"], seen["coord"] = session, coord
            seen["is_finalized"] = session.graph.finalized
            seen["initial"] = session.run(NUMBER)

        def before_run(self, run_context):
            return SessionRunArgs(self.one)

        def after_run(self, run_context, run_values):
            seen["one"] = run_values.results

        def end(self, session):
            seen["final"] = session.run(NUMBER)

    trainer = Doubling()
    trainer.run(HookToCallback(Hook()))
    assert seen["graph"] is trainer.graph
    assert trainer.graph.get_operation_by_name("in_no_scope")
    assert isinstance(seen["session"], tf.compat.v1.Session) and seen["session"].graph is trainer.graph
    assert isinstance(seen["coord"], tf.train.Coordinator)
    assert (seen["is_finalized"], seen["initial"], seen["one"], seen["final"]) == (True, 1.0, 1.0, 16.0)


def test_only_what_a_hook_overrides_costs_anything_in_the_step():
    class OnlyEnd(SessionRunHook):
        def end(self, session):
            pass

    class OnlyAfterRun(SessionRunHook):
        def after_run(self, run_context, run_values):
            pass

    class OnlySession(SessionRunHook):
        def after_create_session(self, session, coord):
            pass

    always = {"setup_graph", "before_train", "after_train"}
    assert set(HookToCallback(OnlyEnd()).hook_implementations()) == always
    assert set(HookToCallback(OnlyAfterRun()).hook_implementations()) == always | {"after_run"}
    assert set(HookToCallback(OnlySession()).hook_implementations()) == always | {"trigger_step"}


def test_a_hook_may_call_its_arguments_as_it_likes_and_give_them_defaults():
    seen = []

    class Hook(SessionRunHook):
        def before_run(self, ctx, extra=None):
            return SessionRunArgs(NUMBER)

        def after_run(self, _, values):
            seen.append(values.results)

    hook = Hook()
    hook.end = lambda session: seen.append("end")
    Doubling().run(HookToCallback(hook), steps_per_epoch=1)
    assert seen == [1.0, 2.0, "end"]


def test_a_hook_begins_after_the_other_callbacks_have_added_to_the_graph():
    values = []

    class Finds(SessionRunHook):
        def begin(self):
            self.tensor = tf.compat.v1.get_default_graph().get_tensor_by_name("added_later:0")

        def before_run(self, run_context):
            return SessionRunArgs(self.tensor)

        def after_run(self, run_context, run_values):
            values.append(run_values.results)

    adds = CallbackFactory(setup_graph=lambda self: tf.constant(5.0, name="added_later"))
    Doubling().run(HookToCallback(Finds()), adds)
    assert values == [5.0] * 4


def test_a_hook_ends_after_a_preemption():
    ended = []

    class Preempt(SessionRunHook):
        def after_run(self, run_context, run_values):
            os.kill(os.getpid(), signal.SIGTERM)

        def end(self, session):
            ended.append(session.run(NUMBER))

    with pytest.raises(tpk.Preempted):
        Doubling().run(HookToCallback(Preempt()))
    assert ended == [2.0]


def test_the_coordinator_is_stopped_and_its_threads_are_awaited_at_the_end():
    finished = []

    class Hook(SessionRunHook):
        def after_create_session(self, session, coord):
            def wait():
                coord.wait_for_stop()
                finished.append(True)

            thread = threading.Thread(target=wait)
            coord.register_thread(thread)
            thread.start()

    Doubling().run(HookToCallback(Hook()))
    assert finished == [True]


def test_a_hook_can_be_periodic():
    seen = []

    class Hook(SessionRunHook):
        def before_run(self, run_context):
            return SessionRunArgs("ten:0")

        def after_run(self, run_context, run_values):
            seen.append((callback.local_step, run_values.results))

    callback = PeriodicCallback(HookToCallback(Hook()), every_k_steps=3)
    ten = CallbackFactory(setup_graph=lambda self: tf.constant(10.0, name="ten"))
    Doubling().run(callback, ten, steps_per_epoch=5, max_epoch=1)
    assert seen == [(0, 10.0), (3, 10.0)]


@pytest.mark.parametrize("offered", [SessionRunHook, tpk.Callback(), None])
def test_only_a_session_run_hook_becomes_a_callback(offered):
    with pytest.raises(HookError, match=r"takes an instance of tf.compat.v1.train.SessionRunHook"):
        HookToCallback(offered)


def run_monitored(callback, steps=3):
    with tf.Graph().as_default():
        train_op = double_a_number()
        other = tf.compat.v1.get_variable("other", initializer=0.0)
        callback.setup_graph(None)
        with tf.compat.v1.train.MonitoredSession(hooks=[CallbackToHook(callback)]) as sess:
            for _ in range(steps):
                sess.run(train_op)
            return sess.run(other)


@pytest.mark.parametrize(
    "as_request",
    [
        lambda tensor: tensor,
        lambda tensor: [tensor],
        lambda tensor: {"number": tensor},
        lambda tensor: SessionRunArgs(tensor),
    ],
)
def test_a_callback_runs_under_a_monitored_session_with_any_request(as_request):
    results = []

    class Collects(tpk.Callback):
        def setup_graph(self, trainer):
            self.request = as_request(tf.compat.v1.get_default_graph().get_tensor_by_name(NUMBER))

        def before_run(self):
            return self.request

        def after_run(self, run_values):
            results.append(run_values.results)

    run_monitored(Collects())
    flat = [np.asarray(list(each.values()) if isinstance(each, dict) else each).item() for each in results]
    assert flat == [1.0, 2.0, 4.0, 8.0]


def test_an_op_of_a_callback_runs_along_under_a_monitored_session():
    add = RunOp(lambda: tf.compat.v1.global_variables()[-1].assign_add(1.0), run_step=True)
    assert run_monitored(add) >= 3.0


def test_a_callback_may_ask_for_nothing_and_only_look():
    seen = []
    run_monitored(CallbackFactory(setup_graph=lambda self, trainer: None, after_run=lambda self: seen.append(1)))
    assert len(seen) == 4
    seen.clear()
    run_monitored(CallbackFactory(setup_graph=lambda self, trainer: None, before_run=lambda self: seen.append(1)))
    assert len(seen) == 4


def test_a_callback_without_hooks_of_the_run_cannot_become_a_hook():
    with pytest.raises(HookError, match=r"implements neither .it implements trigger_epoch"):
        CallbackToHook(CallbackFactory(trigger=lambda self: None))
    with pytest.raises(HookError, match=r"takes an instance of tpk\.Callback"):
        CallbackToHook(SessionRunHook())
