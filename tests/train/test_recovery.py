from __future__ import annotations

import logging

import pytest
import tensorflow as tf

import tpk
from tpk.checkpoint.files import newest_complete

v1 = tf.compat.v1


class Fragile(tpk.Trainer):
    """Fails once in its fourth step."""

    def __init__(self):
        super().__init__()
        self.failed = False
        with self.graph.as_default():
            self.counter = v1.get_variable("counter", initializer=0)
            self.train_op = self.counter.assign_add(1, read_value=False)

    def run_step(self):
        if self.global_step == 3 and not self.failed:
            self.failed = True
            self.sess.run(self.counter.initializer)
            raise ArithmeticError("bad number")
        super().run_step()


class GoBack(tpk.Callback):
    def __init__(self, can=True):
        self.can, self.errors = can, []

    def before_train(self, trainer):
        pass

    def recover(self, error):
        self.errors.append(str(error))
        if self.can:
            self.trainer.checkpoints.restore_variables(self.trainer.checkpoints.newest().prefix)
        return self.can


class Final(tpk.Callback):
    def after_train(self, trainer):
        self.values = trainer.sess.run([trainer.counter, v1.train.get_global_step()])


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_step_is_taken_anew_if_a_callback_can_put_things_right(tmp_path, elsewhere):
    callback, final = GoBack(), Final()
    directory = tmp_path / "a" if elsewhere else None
    saver = tpk.ModelSaver(when=tpk.Every(steps=2), asynchronous=True, checkpoint_dir=directory)
    Fragile().train(callbacks=[saver, callback, final], steps_per_epoch=6, max_epoch=1, run_dir=tmp_path)
    assert callback.errors == ["bad number"]
    # The variables went back to step 2; time did not.
    assert final.values == [5, 6]


def test_otherwise_the_error_stays(tmp_path):
    with pytest.raises(ArithmeticError, match="bad number"):
        Fragile().train(callbacks=[GoBack(can=False)], steps_per_epoch=6, max_epoch=1)


def test_nothing_is_saved_that_a_callback_objects_to(tmp_path):
    class Object(tpk.Callback):
        def before_train(self, trainer):
            pass

        def before_checkpoint(self):
            if self.global_step >= 2:
                raise ArithmeticError("not this one")

    for options in ({}, {"weights_only": True}):
        run_dir = tmp_path / str(len(options))
        with pytest.raises(ArithmeticError, match="not this one"):
            trainer = Fragile()
            trainer.train(
                callbacks=[tpk.ModelSaver(when=tpk.Every(steps=1), **options), Object()],
                steps_per_epoch=6,
                max_epoch=1,
                run_dir=run_dir,
            )
        assert [path.name for path in run_dir.glob("model-*.index")] == ["model-1.index"]


def test_without_any_checkpoint_there_is_no_newest(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="tpk")

    class Look(tpk.Callback):
        def after_train(self, trainer):
            self.found = trainer.checkpoints.newest()

    look = Look()
    trainer = Fragile()
    trainer.failed = True
    trainer.train(callbacks=["ModelSaver", look], steps_per_epoch=2, max_epoch=1, run_dir=tmp_path)
    assert look.found == newest_complete(tmp_path)
    trainer = Fragile()
    trainer.train(callbacks=[look], steps_per_epoch=1, max_epoch=1)
    assert look.found is None
