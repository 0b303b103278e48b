"""The state of plugins in checkpoints, as they declare it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tpk
from tpk.checkpoint.encoding import decode, encode
from tpk.testing import check_callback


class Counts(tpk.Callback):
    state_attributes = ("count", "last")

    def __init__(self):
        self.count, self.last, self.not_kept = 0, (), 0

    def trigger_step(self, trainer):
        self.count += 1
        self.not_kept += 1
        self.last = (trainer.epoch_num, np.float32(trainer.local_step))


class CountsMore(Counts):
    state_attributes = ("lowest",)

    def __init__(self):
        super().__init__()
        self.lowest = float("nan")


def stored(plugin):
    """The state after its way into a file and back."""
    return decode(json.loads(json.dumps(encode(plugin.state_dict()))))


def test_a_checkpoint_keeps_the_attributes_that_a_plugin_names_and_those_of_its_bases():
    before, after = CountsMore(), CountsMore()
    before.count, before.last, before.not_kept = 3, (1, np.float32(0.5)), 7
    after.load_state_dict(stored(before))
    assert (after.count, after.last, after.not_kept) == (3, (1, np.float32(0.5)), 0)
    assert np.isnan(after.lowest)
    assert CountsMore.state_attributes == ("count", "last", "lowest")


def test_a_plugin_without_them_has_no_state():
    assert tpk.NanGuard("cost", "stop").state_dict().keys() == {"rollbacks", "_skipped"}
    assert tpk.RunUpdateOps().state_dict() == {}


def test_a_method_may_add_to_the_declared_state():
    class Both(Counts):
        def state_dict(self):
            return {**super().state_dict(), "more": 5}

    assert Both().state_dict() == {"count": 0, "last": (), "more": 5}


def test_an_attribute_that_does_not_exist_is_an_error_that_names_it():
    class Late(Counts):
        state_attributes = ("later",)

    with pytest.raises(AttributeError, match="later"):
        Late().state_dict()


def test_a_declared_state_follows_the_rules_of_callbacks():
    check_callback(CountsMore)


class Walk(tpk.Trainer):
    state_attributes = ("position",)

    def __init__(self):
        super().__init__()
        self.position = 0

    def run_step(self):
        self.position = 3 * self.position + self.epoch_num


def test_a_resumed_run_continues_from_what_trainer_and_callback_declare(tmp_path):
    def run(directory, max_epoch):
        trainer, counts = Walk(), Counts()
        options = {"steps_per_epoch": 2, "run_dir": directory, "resume": "auto"}
        trainer.train(callbacks=[tpk.ModelSaver(), counts], max_epoch=max_epoch, **options)
        return trainer.position, counts.count, counts.last

    run(tmp_path / "cut", 1)
    assert run(tmp_path / "cut", 3) == run(tmp_path / "whole", 3)
