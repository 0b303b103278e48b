from __future__ import annotations

import pytest
import tensorflow as tf

import tpk
from tpk.callbacks.factory import CallbackFactory
from tpk.errors import HookError
from tpk.plugin.callback import HOOK_NAMES


def train(callback):
    trainer = tpk.Trainer()
    with trainer.graph.as_default():
        trainer.train_op = tf.constant(7.0, name="seven").op
    trainer.train(callbacks=[callback], monitors=[], steps_per_epoch=1, max_epoch=1)


def test_each_function_is_the_hook_of_its_name_and_gets_the_callback():
    calls = []

    def recording(name):
        return lambda self: calls.append((name, self))

    callback = CallbackFactory(**{name: recording(name) for name in HOOK_NAMES})
    train(callback)
    called = (
        "setup_graph before_train before_epoch before_run after_run trigger_step after_epoch trigger_epoch after_train"
    )
    assert calls == [(name, callback) for name in called.split()]


def test_functions_may_take_the_arguments_of_the_hook():
    seen = {}

    def before_run(self, run_context):
        return run_context.session.graph.get_tensor_by_name("seven:0")

    def after_run(self, run_context, run_values):
        seen["value"] = run_values.results

    def after_train(self, trainer):
        seen["trainer"] = trainer

    callback = CallbackFactory(before_run=before_run, after_run=after_run, after_train=after_train)
    train(callback)
    assert seen == {"value": 7.0, "trainer": callback.trainer}


def test_only_the_given_functions_are_hooks():
    callback = CallbackFactory(before_train=lambda self: None, after_epoch=lambda self: None)
    assert set(callback.hook_implementations()) == {"before_train", "after_epoch"}


def test_trigger_is_called_at_the_end_of_each_epoch():
    epochs = []
    callback = CallbackFactory(trigger=lambda self: epochs.append(self.epoch_num))
    assert set(callback.hook_implementations()) == {"trigger_epoch"}
    train(callback)
    assert epochs == [1]


def test_something_else_than_a_function_is_an_error():
    with pytest.raises(HookError, match=r"CallbackFactory\(trigger=\.\.\.\) takes a function"):
        CallbackFactory(trigger=3)


def test_an_unknown_hook_is_an_error_with_the_nearest_names():
    with pytest.raises(HookError, match=r"no such hook\. Nearest: 'before_epoch'"):
        CallbackFactory(before_epochs=lambda self: None)
