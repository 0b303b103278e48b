from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError

START = 1.0


class WithLearningRate(tpk.Trainer):
    """Its steps do nothing; it records the learning rate with which each ran."""

    def __init__(self):
        super().__init__()
        self.rates = []
        with self.graph.as_default():
            self.rate = tf.compat.v1.get_variable("learning_rate", initializer=START, trainable=False)
            self.epochs = tf.compat.v1.get_variable("warm_up_epochs", initializer=3, trainable=False)
            self.vector = tf.compat.v1.get_variable("vector", initializer=[1.0, 2.0], trainable=False)
            self.train_op = tf.no_op()

    def run_step(self):
        self.rates.append(round(float(self.sess.run(self.rate)), 6))
        super().run_step()


class Human(tpk.Callback):
    """Writes the file while an epoch is under way: what to, by the number of the epoch."""

    def __init__(self, path, texts):
        self.path, self.texts = path, texts

    def before_epoch(self, trainer):
        text = self.texts.get(trainer.epoch_num)
        if text is not None:
            self.path.write_bytes(text if isinstance(text, bytes) else text.encode())


def rates(run_dir, *callbacks, texts=(), max_epoch=5, **options):
    trainer = WithLearningRate()
    trainer.train(
        callbacks=[Human(run_dir / "hyper.txt", dict(texts)), *callbacks],
        monitors=[],
        steps_per_epoch=1,
        max_epoch=max_epoch,
        run_dir=run_dir,
        **options,
    )
    return trainer.rates


def test_an_edit_holds_from_the_end_of_the_epoch_on(tmp_path, caplog):
    texts = {2: "# slower\nlearning_rate: 0.5  # for now\n\n", 4: "learning_rate : 1e-3"}
    with caplog.at_level("INFO", "tpk.callbacks"):
        assert rates(tmp_path, tpk.HumanHyperParamSetter("learning_rate"), texts=texts) == [1, 1, 0.5, 0.5, 0.001]
    assert [line for line in caplog.messages if "is set" in line] == [
        "after epoch 2, learning_rate is set to 0.5",
        "after epoch 4, learning_rate is set to 0.001",
    ]
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_file_that_is_there_before_holds_from_the_beginning(tmp_path):
    (tmp_path / "hyper.txt").write_text("learning_rate: 0.25\n")
    assert rates(tmp_path, tpk.HumanHyperParamSetter("learning_rate"), max_epoch=2) == [0.25, 0.25]


def test_without_a_file_or_a_line_the_value_is_left_alone(tmp_path):
    others = tpk.HyperParamSetterWithFunc("learning_rate", lambda epoch, rate: rate / 2)
    texts = {2: "another: 0.25"}
    assert rates(tmp_path, others, tpk.HumanHyperParamSetter("learning_rate"), texts=texts, max_epoch=3) == (
        [0.5, 0.25, 0.125]
    )


def test_a_line_holds_against_others_while_it_is_there(tmp_path):
    others = tpk.ScheduledHyperParamSetter("learning_rate", [(0, 0.5), (2, 0.25), (4, 0.125)])
    texts = {1: "learning_rate: 0.75", 4: ""}
    assert rates(tmp_path, others, tpk.HumanHyperParamSetter("learning_rate"), texts=texts) == (
        [0.5, 0.75, 0.75, 0.75, 0.125]
    )


def test_the_last_line_counts(tmp_path):
    texts = {1: "learning_rate: 0.5\nlearning_rate: 0.25"}
    assert rates(tmp_path, tpk.HumanHyperParamSetter("learning_rate"), texts=texts, max_epoch=2) == [1, 0.25]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("learning_rate: high", "line 1, 'learning_rate: high': could not convert string to float: 'high'"),
        ("learning_rate: nan", "'nan' is not a finite number"),
        ("learning_rate:", "could not convert string to float: ''"),
        ("learning_rate = 0.5", "'learning_rate = 0.5': expected a name before a colon"),
        ("\n: 0.5", "line 2, ': 0.5': expected a name before a colon"),
        (b"learning_rate: \xff", "cannot be read, and is ignored"),
    ],
)
def test_a_bad_line_is_reported_once_and_ignored(tmp_path, caplog, text, complaint):
    good = text + (b"\nlearning_rate: 0.5" if isinstance(text, bytes) else "\nlearning_rate: 0.5")
    is_unreadable = isinstance(text, bytes)
    assert rates(tmp_path, tpk.HumanHyperParamSetter("learning_rate"), texts={1: text, 3: good}, max_epoch=4) == (
        [1, 1, 1, 1 if is_unreadable else 0.5]
    )
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert complaint in warning


def test_a_whole_number_stays_one_if_it_is_a_variable(tmp_path, caplog):
    target, seen = SimpleNamespace(batches=4), []
    setters = [
        tpk.HumanHyperParamSetter("warm_up_epochs"),
        tpk.HumanHyperParamSetter(tpk.ObjAttrParam(target, "batches")),
    ]

    def look(self):
        seen.append((setters[0].param.get_value(), target.batches))

    texts = {1: "warm_up_epochs: 5\nbatches: 8", 2: "warm_up_epochs: 5.5\nbatches: 0.5"}
    rates(tmp_path, *setters, tpk.CallbackFactory(before_epoch=look), texts=texts, max_epoch=3)
    assert seen == [(3, 4), (5, 8), (5, 0.5)]
    assert "'warm_up_epochs: 5.5': invalid literal for int()" in caplog.text


def test_the_file_may_be_elsewhere(tmp_path):
    (tmp_path / "elsewhere.txt").write_text("learning_rate: 0.25\n")
    trainer = WithLearningRate()
    setter = tpk.HumanHyperParamSetter("learning_rate", tmp_path / "elsewhere.txt")
    trainer.train(callbacks=[setter], monitors=[], steps_per_epoch=1, max_epoch=1)
    assert trainer.rates == [0.25]


def test_without_a_place_for_the_file_there_is_an_error():
    with pytest.raises(ConfigError, match=r"HumanHyperParamSetter needs the directory of the run"):
        WithLearningRate().train(
            callbacks=[tpk.HumanHyperParamSetter("learning_rate")], monitors=[], steps_per_epoch=1, max_epoch=1
        )


def test_what_is_no_number_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"HumanHyperParamSetter sets numbers, but vector is \[1.0, 2.0\]"):
        rates(tmp_path, tpk.HumanHyperParamSetter("vector"))


def test_a_training_that_is_resumed_has_the_values_of_one_that_was_never_interrupted(tmp_path):
    texts = {1: "learning_rate: 0.5", 3: "learning_rate: 0.25"}

    def train(name, stop_after=None, **options):
        def stop(self):
            if self.epoch_num == stop_after:
                raise tpk.StopTraining("here")

        callbacks = [tpk.HumanHyperParamSetter("learning_rate"), "ModelSaver", tpk.CallbackFactory(trigger_epoch=stop)]
        return rates(tmp_path / name, *callbacks, texts=texts, **options)

    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    assert train("parts", stop_after=3) + train("parts", resume="must") == train("whole") == [1, 0.5, 0.5, 0.25, 0.25]
