"""The loop: the order of hooks, the counters, and every way in which a training can end."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.train.run.attempts import read_attempts

v1 = tf.compat.v1


class Counting(tpk.Trainer):
    """Each step adds one to a variable."""

    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.counter = v1.get_variable("counter", initializer=0)
            self.train_op = self.counter.assign_add(1, read_value=False)


class Recorder(tpk.Callback):
    def __init__(self, log):
        self.log = log

    def _note(self, hook):
        self.log.append((hook, self.epoch_num, self.local_step, self.global_step))

    def setup_graph(self, trainer):
        self.log.append(("setup_graph", trainer.is_chief))

    def before_train(self, trainer):
        self._note("before_train")

    def before_epoch(self, trainer):
        self._note("before_epoch")

    def before_run(self, run_context):
        self._note("before_run")

    def after_run(self, run_context, run_values):
        self._note("after_run")

    def trigger_step(self, trainer):
        self._note("trigger_step")

    def after_epoch(self, trainer):
        self._note("after_epoch")

    def trigger_epoch(self, trainer):
        self._note("trigger_epoch")

    def after_train(self, trainer):
        self._note("after_train")


def test_hooks_and_counters_are_as_the_docstring_of_the_loop_draws_them():
    log = []
    Counting().train(callbacks=[Recorder(log)], steps_per_epoch=2, max_epoch=4, starting_epoch=3)
    expected = [("setup_graph", True), ("before_train", 2, -1, 0)]
    for epoch, done in ((3, 0), (4, 2)):
        expected.append(("before_epoch", epoch, -1, done))
        for step in (0, 1):
            expected.append(("before_run", epoch, step, done + step))
            expected.append(("after_run", epoch, step, done + step + 1))
            expected.append(("trigger_step", epoch, step, done + step + 1))
        expected.append(("after_epoch", epoch, 1, done + 2))
        expected.append(("trigger_epoch", epoch, 1, done + 2))
    expected.append(("after_train", 4, 1, 4))
    assert log == expected


def test_list_order_is_call_order():
    calls = []

    class Named(tpk.Callback):
        def __init__(self, label):
            self.label = label

        def before_epoch(self, trainer):
            calls.append(("before_epoch", self.label))

        def trigger_step(self, trainer):
            calls.append(("trigger_step", self.label))

    Counting().train(callbacks=[Named(1), Named(2), Named(3)], steps_per_epoch=1, max_epoch=1)
    assert calls == [(hook, label) for hook in ("before_epoch", "trigger_step") for label in (1, 2, 3)]


def test_a_registered_callback_comes_before_those_of_train_and_too_late_is_an_error():
    log = []

    class First(tpk.Callback):
        def setup_graph(self, trainer):
            with pytest.raises(
                tpk.TrainerStateError, match=r"too late: .* being set up\. Register it before train\(\)"
            ):
                trainer.register_callback(First())

        def before_train(self, trainer):
            log.append("first")
            with pytest.raises(tpk.TrainerStateError, match="too late"):
                trainer.register_callback(First())

    class Second(tpk.Callback):
        def before_train(self, trainer):
            log.append("second")

    trainer = Counting()
    trainer.register_callback(First)
    trainer.train(callbacks=[Second()], steps_per_epoch=1, max_epoch=1)
    assert log == ["first", "second"]


# Ends.


class Raise(tpk.Callback):
    def __init__(self, error, at_step=3):
        self.error, self.at_step = error, at_step

    def trigger_step(self, trainer):
        if trainer.global_step == self.at_step:
            raise self.error


class Ending(tpk.Callback):
    """Keeps how the training ended, seen from its last hook."""

    def after_train(self, trainer):
        self.failure = trainer.loop.failure
        self.steps = trainer.global_step
        self.session_is_open = not trainer.sess._closed


def check_closed(trainer):
    with pytest.raises(tpk.TrainerStateError, match="this Counting has a session only while it trains"):
        _ = trainer.sess


def test_stop_training_ends_in_good_order(caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    trainer, ending = Counting(), Ending()
    trainer.train(callbacks=[Raise(tpk.StopTraining("enough")), ending], steps_per_epoch=2, max_epoch=9)
    assert (ending.steps, ending.failure, ending.session_is_open) == (3, None, True)
    check_closed(trainer)
    assert "training ended in epoch 2, after 1 of its 2 steps (3 in all): enough" in caplog.messages


@pytest.mark.parametrize("trace", ["0", "1"])
def test_a_step_without_more_data_ends_in_good_order(caplog, monkeypatch, trace):
    monkeypatch.setenv("TPK_TRACE", trace)
    caplog.set_level(logging.INFO, logger="tpk.train")

    class Feeds(tpk.Callback):
        data = iter(range(3))

        def before_run(self, run_context):
            next(self.data)

    trainer, ending = Counting(), Ending()
    trainer.train(callbacks=[Feeds(), ending], steps_per_epoch=2, max_epoch=9)
    assert (ending.steps, ending.failure) == (3, None)
    assert isinstance(trainer.loop.ended_by, tf.errors.OutOfRangeError)
    (message,) = [message for message in caplog.messages if "the data ended" in message]
    assert message.startswith(
        "the data ended in epoch 2, after 1 of its 2 steps (3 in all): a step has no more data (StopIteration)"
    )
    assert message.endswith("; in callback 'Feeds', hook 'before_run'")


def test_a_loop_over_an_iterator_of_its_own_ends_in_good_order():
    class Loops(tpk.Trainer):
        data = iter("abc")

        def run_step(self):
            self.last = next(self.data)

    trainer = Loops()
    trainer.train(steps_per_epoch=10, max_epoch=1)
    assert (trainer.last, trainer.local_step, trainer.loop.failure) == ("c", 2, None)


def test_a_stray_stop_iteration_is_no_end_of_data():
    class Stray(tpk.Callback):
        def trigger_epoch(self, trainer):
            next(iter(()))

    with pytest.raises(StopIteration):
        Counting().train(callbacks=[Stray()], steps_per_epoch=2, max_epoch=2)


def test_the_end_of_the_input_ends_in_good_order(caplog):
    caplog.set_level(logging.INFO, logger="tpk")

    class Limited(tpk.Trainer):
        def __init__(self):
            super().__init__()
            with self.graph.as_default():
                dataset = v1.data.make_initializable_iterator(tf.data.Dataset.range(3))
                v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, dataset.initializer)
                self.train_op = dataset.get_next().op

    ending = Ending()
    Limited().train(callbacks=[ending], steps_per_epoch=10, max_epoch=1)
    assert (ending.steps, ending.failure) == (3, None)
    (message,) = [message for message in caplog.messages if "the data ended" in message]
    assert message == "the data ended in epoch 1, after 3 of its 10 steps (3 in all)"


@pytest.mark.parametrize(
    ("error", "level", "message"),
    [
        (ValueError("broken"), "ERROR", "training failed in epoch 2, step 1"),
        (KeyboardInterrupt(), "WARNING", "interrupted in epoch 2, after 1 of its 2 steps (3 in all); nothing is saved"),
    ],
    ids=["error", "ctrl-c"],
)
def test_an_error_is_raised_again_after_everybody_has_cleaned_up(error, level, message, caplog):
    trainer, ending = Counting(), Ending()
    with pytest.raises(type(error)) as raised:
        trainer.train(callbacks=[ending, Raise(error)], steps_per_epoch=2, max_epoch=9)
    assert raised.value is error
    assert (ending.failure, ending.steps, ending.session_is_open) == (error, 3, True)
    check_closed(trainer)
    assert error.__notes__ == ["in callback 'Raise', hook 'trigger_step'"]
    assert [record.levelname for record in caplog.records if record.message.startswith(message)] == [level]


def out_of_range_label():
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 6], logits=tf.zeros([2, 2]))


def missing_feed():
    return v1.placeholder(tf.float32, [], name="keep") + 1


def failures_on_two_devices():
    made = []
    for device in ("/cpu:0", "/cpu:1"):
        with tf.device(device):
            made.append(v1.check_numerics(tf.constant(float("nan")), "a cost"))
    return tf.add_n(made)


@pytest.mark.parametrize(
    ("make_op", "said"),
    [
        (failures_on_two_devices, "a cost : Tensor had NaN values"),
        (out_of_range_label, "Received a label value of 6 which is outside the valid range of [0, 2)"),
        (missing_feed, "You must feed a value for placeholder tensor 'keep'"),
    ],
)
def test_the_failure_of_an_op_says_in_one_line_what_went_wrong(make_op, said, tmp_path, caplog):
    trainer = Counting()
    with trainer.graph.as_default():
        trainer.train_op = make_op()
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        config = v1.ConfigProto(device_count={"CPU": 2})
        trainer.train(steps_per_epoch=1, max_epoch=1, run_dir=tmp_path, session_config=config)
    expected = f"InvalidArgumentError: {said}"
    (logged,) = [message for message in caplog.messages if message.startswith("training failed")]
    assert logged.startswith(f"training failed in epoch 1, step 1: {expected}")
    assert raised.value.__notes__[-1].startswith(expected)
    (attempt,) = read_attempts(tmp_path)
    assert attempt.reason.startswith(expected) and attempt.reason.count(said) == 1


def test_an_error_in_an_epoch_hook_names_callback_and_hook():
    class Broken(tpk.Callback):
        def before_epoch(self, trainer):
            raise ValueError

    with pytest.raises(ValueError) as raised:
        Counting().train(callbacks=[Broken, Broken()], steps_per_epoch=1, max_epoch=1)
    assert raised.value.__notes__ == ["in callback 'Broken', hook 'before_epoch'"]


def test_one_failing_after_train_does_not_rob_the_others():
    class Broken(tpk.Callback):
        def after_train(self, trainer):
            raise OSError("disk full")

    ending, trainer = Ending(), Counting()
    with pytest.raises(OSError, match="disk full"):
        trainer.train(callbacks=[Broken(), ending], steps_per_epoch=1, max_epoch=1)
    assert ending.steps == 1
    check_closed(trainer)


def test_a_failing_after_train_does_not_hide_the_error_of_the_training():
    class Broken(tpk.Callback):
        def after_train(self, trainer):
            raise OSError("disk full")

    with pytest.raises(ValueError, match="first"):
        Counting().train(callbacks=[Broken(), Raise(ValueError("first"))], steps_per_epoch=3, max_epoch=1)


def test_a_hook_may_ask_for_the_end():
    class Ask(tpk.Callback):
        def after_run(self, run_context, run_values):
            if self.global_step == 2:
                run_context.request_stop()

    ending = Ending()
    Counting().train(callbacks=[Ask(), ending], steps_per_epoch=10, max_epoch=1)
    assert (ending.steps, ending.failure) == (2, None)


def test_an_error_in_setup_closes_what_is_open():
    class Broken(tpk.Callback):
        def setup_graph(self, trainer):
            raise ValueError("no")

    logger = logging.getLogger("tpk")
    handlers = list(logger.handlers)
    with pytest.raises(ValueError, match="no"):
        Counting().train(callbacks=[Broken()], steps_per_epoch=1, max_epoch=1)
    assert logger.handlers == handlers


def test_a_trainer_trains_once():
    trainer = Counting()
    trainer.train(steps_per_epoch=1, max_epoch=1)
    with pytest.raises(tpk.TrainerStateError, match="a trainer trains once"):
        trainer.train(steps_per_epoch=1, max_epoch=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps_per_epoch": -1}, "steps_per_epoch=-1"),
        ({"steps_per_epoch": float("inf")}, "steps_per_epoch=inf"),
        ({"steps_per_epoch": "many"}, "steps_per_epoch='many'"),
        ({"steps_per_epoch": 1.5}, "steps_per_epoch=1.5"),
        ({"steps_per_epoch": 1, "starting_epoch": 0}, "starting_epoch=0"),
        ({"steps_per_epoch": 1, "max_epoch": -1}, "max_epoch=-1"),
    ],
)
def test_a_count_that_is_none_is_an_error_that_names_it(options, message):
    with pytest.raises(tpk.ConfigError, match=message):
        Counting().train(**options)


# The loop assumes nothing.


def test_a_trainer_without_train_op_says_what_to_do():
    with pytest.raises(tpk.TrainerStateError, match=r"override run_step\(\)"):
        tpk.Trainer().train(steps_per_epoch=1, max_epoch=1)


def test_a_step_may_be_anything():
    class Bisection(tpk.Trainer):
        """Finds the square root of two without TensorFlow."""

        low, high = 0.0, 2.0

        def run_step(self):
            middle = (self.low + self.high) / 2
            if middle * middle < 2:
                self.low = middle
            else:
                self.high = middle

    log = []
    trainer = Bisection()
    trainer.train(callbacks=[Recorder(log)], steps_per_epoch=25, max_epoch=2)
    assert trainer.low == pytest.approx(2**0.5)
    assert ("trigger_step", 2, 24, 50) in log
    assert trainer.global_step == 50


def test_a_step_may_run_the_session_several_times():
    class Twice(Counting):
        def run_step(self):
            self.hooked_sess.run(self.train_op)
            self.hooked_sess.run([self.train_op, self.counter])

    class Read(tpk.Callback):
        def after_train(self, trainer):
            self.values = trainer.sess.run([trainer.counter, v1.train.get_global_step()])

    ending, read = Ending(), Read()
    Twice().train(callbacks=[ending, read], steps_per_epoch=3, max_epoch=1)
    assert (ending.steps, read.values) == (3, [6, 3])


class Raw(Counting):
    """Runs the raw session, so that no hook takes part in its steps."""

    def run_step(self):
        self.sess.run(self.train_op)


class ReadGlobalStep(tpk.Callback):
    def __init__(self):
        self.values = []

    def trigger_step(self, trainer):
        self.values.append((trainer.global_step, int(trainer.sess.run(v1.train.get_global_step(trainer.graph)))))


@pytest.mark.parametrize("trainer_class", [Counting, Raw])
def test_every_step_counts_in_the_graph_too(trainer_class):
    read = ReadGlobalStep()
    trainer_class().train(callbacks=[read], steps_per_epoch=3, max_epoch=2)
    assert read.values == [(step, step) for step in range(1, 7)]


def test_what_a_callback_runs_through_the_hooks_is_no_step():
    class RunsMore(tpk.Callback):
        def trigger_step(self, trainer):
            trainer.hooked_sess.run(trainer.train_op)

        trigger_epoch = trigger_step

        def after_train(self, trainer):
            self.values = trainer.sess.run([trainer.counter, v1.train.get_global_step()])

    more, trainer = RunsMore(), Counting()
    trainer.train(callbacks=[more], steps_per_epoch=3, max_epoch=1)
    assert (trainer.global_step, more.values) == (3, [7, 3])


def test_a_step_that_is_not_completed_does_not_count(tmp_path):
    class Halves(Counting):
        """Runs the session twice in each step, but for the last, which ends in between."""

        def run_step(self):
            self.hooked_sess.run(self.train_op)
            if self.local_step == 2:
                raise tf.errors.OutOfRangeError(None, None, "no more")
            self.hooked_sess.run(self.train_op)

    trainer = Halves()
    trainer.train(callbacks=["ModelSaver"], steps_per_epoch=9, max_epoch=1, run_dir=tmp_path)
    assert (trainer.global_step, trainer.local_step) == (2, 1)
    assert tf.train.load_checkpoint(str(tmp_path)).get_tensor("global_step") == 2
    assert tf.train.load_checkpoint(str(tmp_path)).get_tensor("counter") == 5


def test_steps_without_a_session_are_what_periods_and_checkpoints_count(tmp_path):
    class Nothing(tpk.Trainer):
        def run_step(self):
            pass

    seen = []

    class Note(tpk.Callback):
        def trigger(self):
            seen.append(self.global_step)

    callbacks = [tpk.PeriodicTrigger(Note(), every_k_steps=2), tpk.ModelSaver()]
    Nothing().train(callbacks=callbacks, steps_per_epoch=3, max_epoch=2, run_dir=tmp_path)
    assert seen == [2, 4, 6]
    assert sorted(path.stem for path in tmp_path.glob("model-*.index")) == ["model-3", "model-6"]
    assert tf.train.load_checkpoint(str(tmp_path)).get_tensor("global_step") == 6


@pytest.mark.parametrize("steps", [3.0, np.int64(3), np.float32(3)], ids=repr)
def test_a_whole_number_of_any_type_is_a_count(steps):
    trainer = Counting()
    trainer.train(steps_per_epoch=steps, max_epoch=np.int32(2))
    assert (trainer.global_step, trainer.loop.steps_per_epoch, type(trainer.loop.steps_per_epoch)) == (6, 3, int)


def test_an_epoch_of_no_steps_is_one_of_callbacks_only_with_one_warning(caplog):
    class Reports(tpk.Callback):
        def trigger_epoch(self, trainer):
            trainer.monitors.put_scalar("constant", 1.0)

    log, trainer = [], Counting()
    trainer.train(callbacks=[Reports(), Recorder(log)], steps_per_epoch=0, max_epoch=2)
    hooks = ["before_epoch", "after_epoch", "trigger_epoch"]
    assert [hook for hook, *_ in log[2:]] == [*hooks, *hooks, "after_train"]
    assert list(trainer.history["constant"]) == [1, 1]
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["steps_per_epoch=0: an epoch has no steps. Callbacks run, but nothing is trained."]


# Whatever ends a training in good order, nothing learned is lost.


STOPPING = ["before_train", "before_epoch", "after_run", "trigger_step", "after_epoch", "trigger_epoch"]


def stopping_in(hook, how, at_step):
    """Return a callback that ends the training in that hook."""

    class Stops(tpk.Callback):
        pass

    def stop(self):
        if self.global_step >= at_step:
            if how == "raise":
                raise tpk.StopTraining("enough")
            self.trainer.request_stop("enough")

    setattr(Stops, hook, stop)
    return Stops()


@pytest.mark.parametrize("trace", ["0", "1"])
@pytest.mark.parametrize("how", ["raise", "request"])
@pytest.mark.parametrize("hook", STOPPING)
def test_a_stop_lets_the_hooks_of_the_moment_finish(hook, how, trace, monkeypatch, caplog):
    monkeypatch.setenv("TPK_TRACE", trace)
    caplog.set_level(logging.INFO, logger="tpk.train")
    log = []
    at_step = 0 if hook in ("before_train", "before_epoch") else 3 if hook in ("after_run", "trigger_step") else 4
    trainer = Counting()
    callbacks = [stopping_in(hook, how, at_step), Recorder(log)]
    trainer.train(callbacks=callbacks, steps_per_epoch=4, max_epoch=5)
    last = {"before_train": "before_train", "before_epoch": "before_epoch", "after_run": "trigger_step",
            "trigger_step": "trigger_step"}.get(hook, "trigger_epoch")  # fmt: skip
    assert [name for name, *_ in log[-2:]] == [last, "after_train"]
    assert trainer.global_step == at_step
    assert str(trainer.loop.ended_by) == "enough"
    assert sum(message.endswith("enough") for message in caplog.messages) == 1


@pytest.mark.parametrize("trace", ["0", "1"])
@pytest.mark.parametrize("hook", STOPPING)
def test_a_stop_without_a_reason_names_who_has_raised_it(hook, trace, monkeypatch):
    monkeypatch.setenv("TPK_TRACE", trace)

    def stop(self):
        raise tpk.StopTraining

    trainer = Counting()
    trainer.train(callbacks=[type("Stops", (tpk.Callback,), {hook: stop})()], steps_per_epoch=1, max_epoch=2)
    assert str(trainer.loop.ended_by) == f"StopTraining was raised in callback 'Stops', hook '{hook}'"


@pytest.mark.parametrize("how", ["raise", "request"])
@pytest.mark.parametrize(("hook", "step"), [("after_run", 3), ("trigger_step", 3), ("trigger_epoch", 4)])
def test_a_stop_leaves_a_checkpoint_of_the_last_step(hook, how, step, tmp_path):
    trainer = Counting()
    callbacks = [stopping_in(hook, how, step), "ModelSaver"]
    trainer.train(callbacks=callbacks, steps_per_epoch=4, max_epoch=5, run_dir=tmp_path)
    checkpoint = tf.train.latest_checkpoint(str(tmp_path))
    assert checkpoint == f"{tmp_path}/model-{step}"
    assert tf.train.load_checkpoint(checkpoint).get_tensor("counter") == step
    again = Counting()
    again.train(callbacks=["ModelSaver"], steps_per_epoch=4, max_epoch=2, run_dir=tmp_path, resume="must")
    assert again.global_step == 8


@pytest.mark.parametrize("weights_only", [False, True])
def test_the_last_step_is_saved_though_the_saver_was_not_due(weights_only, tmp_path):
    saver = tpk.ModelSaver(when=tpk.Every(epochs=4), weights_only=weights_only)
    Counting().train(callbacks=[saver], steps_per_epoch=2, max_epoch=5, run_dir=tmp_path)
    assert sorted(path.stem for path in tmp_path.glob("model-*.index")) == ["model-10", "model-8"]


def test_a_failure_leaves_no_checkpoint_of_its_own(tmp_path):
    with pytest.raises(ValueError, match="broken"):
        callbacks = ["ModelSaver", Raise(ValueError("broken"))]
        Counting().train(callbacks=callbacks, steps_per_epoch=2, max_epoch=9, run_dir=tmp_path)
    assert sorted(path.stem for path in tmp_path.glob("model-*.index")) == ["model-2"]


def test_a_monitor_that_asks_for_the_end_does_not_cut_a_report_short():
    class Enough(tpk.Monitor):
        def process_scalar(self, name, value):
            raise tpk.StopTraining("enough")

    class Report(tpk.Callback):
        def trigger_epoch(self, trainer):
            trainer.monitors.put_scalar("first", 1)
            trainer.monitors.put_scalar("second", 2)

    trainer = Counting()
    trainer.train(callbacks=[Report()], monitors=[Enough()], steps_per_epoch=2, max_epoch=9)
    assert (trainer.monitors.names, trainer.epoch_num) == (["first", "second"], 1)


# The graph.


@pytest.mark.tf2_only("without eager mode there is always an active graph")
def test_a_trainer_takes_the_active_graph_or_makes_its_own():
    with tf.Graph().as_default() as graph:
        assert tpk.Trainer().graph is graph
    one, other = tpk.Trainer(), tpk.Trainer()
    assert one.graph is not other.graph
    assert tf.executing_eagerly()


@pytest.mark.tf2_only("there is no eager mode to come back to")
def test_eager_code_around_a_training_stays_eager():
    Counting().train(steps_per_epoch=1, max_epoch=1)
    assert tf.executing_eagerly()
    assert int(tf.constant(1) + 1) == 2


def test_hooks_run_with_the_graph_and_session_of_the_trainer():
    class Look(tpk.Callback):
        def before_epoch(self, trainer):
            assert v1.get_default_graph() is trainer.graph
            assert v1.get_default_session() is trainer.sess
            assert trainer.graph.finalized
            self.value = trainer.counter.eval()

    look = Look()
    Counting().train(callbacks=[look], steps_per_epoch=1, max_epoch=1)
    assert look.value == 0
