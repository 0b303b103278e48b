"""Steps that run the raw session, or none: their hooks are not called, which is said once."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tpk

v1 = tf.compat.v1


class Model(tpk.Trainer):
    """Runs its steps by the session that `name` has."""

    def __init__(self, name):
        super().__init__()
        self._name = name
        with self.graph.as_default():
            self.train_op = v1.get_variable("w", [], initializer=v1.zeros_initializer()).assign_add(1.0).op

    def run_step(self):
        getattr(self, self._name).run(self.train_op)


class AnyLoop(tpk.Trainer):
    def run_step(self):
        pass


class Fetch(tpk.Callback):
    def before_run(self, run_context):
        return None


def warnings_of(trainer, caplog, callbacks):
    trainer.train(callbacks=callbacks, steps_per_epoch=3, max_epoch=2)
    return [each.getMessage() for each in caplog.records if "trainer.hooked_sess" in each.getMessage()]


def test_hooks_that_are_left_out_are_named_once(caplog):
    (message,) = warnings_of(Model("sess"), caplog, [Fetch()])
    assert message.startswith("step 1 did not run trainer.hooked_sess, so before_run and after_run of Fetch were not")
    assert message.endswith("use self.hooked_sess instead of self.sess.")


@pytest.mark.parametrize(
    ("trainer", "callbacks"),
    [(lambda: Model("hooked_sess"), [Fetch()]), (lambda: Model("sess"), []), (AnyLoop, [Fetch()])],
    ids=["hooked", "nobody to call", "no model"],
)
def test_where_nothing_is_left_out_nothing_is_said(caplog, trainer, callbacks):
    assert warnings_of(trainer(), caplog, callbacks) == []
