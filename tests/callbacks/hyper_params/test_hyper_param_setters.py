from __future__ import annotations

import json
import logging
import math
from types import SimpleNamespace

import pytest
import tensorflow as tf

import tpk
from tpk.callbacks.factory import CallbackFactory
from tpk.callbacks.hyper_params.setters import (
    HyperParamSetter,
    HyperParamSetterWithFunc,
    ObjAttrParam,
    ScheduledHyperParamSetter,
    StatMonitorParamSetter,
)
from tpk.callbacks.triggers import PeriodicTrigger
from tpk.errors import ConfigError

START = 1.0


class WithLearningRate(tpk.Trainer):
    """Its steps do nothing; it records the learning rate with which each ran."""

    def __init__(self):
        super().__init__()
        self.rates = []
        with self.graph.as_default():
            self.rate = tf.compat.v1.get_variable("learning_rate", initializer=START, trainable=False)
            self.train_op = tf.no_op()

    def run_step(self):
        self.rates.append(round(float(self.sess.run(self.rate)), 6))
        super().run_step()


def rates(*callbacks, max_epoch=6, steps_per_epoch=1, starting_epoch=1, session_init=None):
    trainer = WithLearningRate()
    trainer.train(
        callbacks=list(callbacks),
        monitors=[],
        steps_per_epoch=steps_per_epoch,
        max_epoch=max_epoch,
        starting_epoch=starting_epoch,
        session_init=session_init,
    )
    return trainer.rates


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ([(0, 0.5), (2, 0.25), (4, 0.125)], [0.5, 0.5, 0.25, 0.25, 0.125, 0.125]),
        ([(4, 0.125), (2, 0.25)], [START, START, 0.25, 0.25, 0.125, 0.125]),
        ([(6, 0.5)], [START] * 6),
        ([(0, 0.5)], [0.5] * 6),
    ],
)
def test_a_schedule_sets_each_value_from_the_end_of_its_epoch_on(schedule, expected):
    assert rates(ScheduledHyperParamSetter("learning_rate", schedule)) == expected


@pytest.mark.parametrize("starting_epoch", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("interp", [None, "linear"])
def test_a_training_that_starts_in_the_middle_has_the_values_of_the_whole_one(starting_epoch, interp):
    schedule = [(1, 0.5), (4, 0.25)]
    whole = rates(ScheduledHyperParamSetter("learning_rate", schedule, interp))
    rest = rates(ScheduledHyperParamSetter("learning_rate", schedule, interp), starting_epoch=starting_epoch)
    assert rest == whole[starting_epoch - 1 :]


@pytest.mark.parametrize(
    ("interp", "expected"),
    [
        ("linear", [START, 1.0, 0.75, 0.5, 0.25, 0.0]),
        (lambda done: done**2, [START, 1.0, 1 - 1 / 16, 1 - 4 / 16, 1 - 9 / 16, 0.0]),
        (lambda done: (1 - math.cos(math.pi * done)) / 2, [START, 1.0, 0.853553, 0.5, 0.146447, 0.0]),
    ],
)
def test_a_schedule_is_interpolated(interp, expected):
    schedule = [(1, 1.0), (5, 0.0)]
    assert rates(ScheduledHyperParamSetter("learning_rate", schedule, interp)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("interp", "expected"),
    [
        (None, [START, START, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]),
        ("linear", [START, START, 0.5, 0.4375, 0.375, 0.3125, 0.25, 0.25]),
    ],
)
def test_a_schedule_may_count_steps(interp, expected):
    setter = ScheduledHyperParamSetter("learning_rate", [(2, 0.5), (6, 0.25)], interp, step_based=True)
    assert rates(setter, steps_per_epoch=4, max_epoch=2) == expected


def test_a_schedule_of_steps_goes_on_in_the_middle():
    setter = ScheduledHyperParamSetter("learning_rate", [(2, 0.5), (6, 0.25)], "linear", step_based=True)
    resumed = rates(setter, steps_per_epoch=4, max_epoch=2, starting_epoch=2, session_init={"global_step": 4})
    assert resumed == [0.375, 0.3125, 0.25, 0.25]


def test_a_schedule_of_steps_counts_steps_though_each_runs_the_session_twice():
    class Twice(WithLearningRate):
        def run_step(self):
            super().run_step()
            self.hooked_sess.run(self.train_op)

    trainer = Twice()
    setter = ScheduledHyperParamSetter("learning_rate", [(3, 0.5), (5, 0.25)], step_based=True)
    trainer.train(callbacks=[setter], monitors=[], steps_per_epoch=4, max_epoch=1)
    assert trainer.rates == [START, START, START, 0.5]


def test_a_schedule_leaves_the_value_alone_between_its_points():
    others = HyperParamSetterWithFunc("learning_rate", lambda epoch, value: 0.75)
    setter = ScheduledHyperParamSetter("learning_rate", [(0, 0.5), (3, 0.25)])
    assert rates(others, setter, max_epoch=5) == [0.5, 0.75, 0.75, 0.25, 0.75]


def test_an_attribute_of_an_object_is_set_as_well():
    target = SimpleNamespace(epsilon=1.0)
    seen = []
    look = CallbackFactory(before_epoch=lambda self: seen.append(target.epsilon))
    rates(ScheduledHyperParamSetter(ObjAttrParam(target, "epsilon"), [(0, 0.5), (2, 0.25)]), look, max_epoch=3)
    assert seen == [0.5, 0.5, 0.25]


def test_a_change_is_logged_once(caplog):
    with caplog.at_level(logging.INFO, "tpk.callbacks"):
        rates(ScheduledHyperParamSetter("learning_rate", [(0, 0.5), (2, 0.25)]))
    assert [record.getMessage() for record in caplog.records if "is set" in record.getMessage()] == [
        "after epoch 0, learning_rate is set to 0.5",
        "after epoch 2, learning_rate is set to 0.25",
    ]


def test_what_is_set_by_the_step_is_logged_with_the_step(caplog):
    with caplog.at_level(logging.INFO, "tpk.callbacks"):
        trainer = WithLearningRate()
        setter = ScheduledHyperParamSetter("learning_rate", [(3, 0.5), (5, 0.25)], step_based=True)
        trainer.train(callbacks=[setter], monitors=[], steps_per_epoch=4, max_epoch=2)
    assert [record.getMessage() for record in caplog.records if "is set" in record.getMessage()] == [
        "after step 3, learning_rate is set to 0.5",
        "after step 5, learning_rate is set to 0.25",
    ]


def test_a_line_of_steps_is_not_logged_as_what_holds_after_an_epoch(caplog):
    with caplog.at_level(logging.INFO, "tpk"):
        trainer = tpk.SingleCostTrainer()

        def cost(x):
            return tf.reduce_mean(x * tf.compat.v1.get_variable("w", initializer=0.5))

        def optimizer():
            rate = tf.compat.v1.get_variable("learning_rate", initializer=1.0, trainable=False)
            return tf.compat.v1.train.GradientDescentOptimizer(rate)

        source = tpk.TensorInput(lambda: [tf.ones([2])])
        trainer.setup_graph([tf.TensorSpec([2], tf.float32, "x")], source, cost, optimizer)
        setter = ScheduledHyperParamSetter("learning_rate", [(0, 1.0), (8, 0.5)], interp="linear", step_based=True)
        trainer.train(
            callbacks=[setter, "LearningRateMonitor"], monitors=["ScalarPrinter"], steps_per_epoch=4, max_epoch=2
        )
    assert [line for line in caplog.messages if "is set" in line] == ["after step 0, learning_rate is set to 1"]
    assert [line for line in caplog.messages if line.startswith("epoch")] == [
        "epoch 1/2, step 4 | lr 0.75",
        "epoch 2/2, step 8 | lr 0.5",
    ]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ([], "expected pairs"),
        ([(1, 0.1), (1, 0.2)], "must be different and not negative"),
        ([(-1, 0.1)], "must be different and not negative"),
        ([(1, "high")], "expected pairs of a position"),
        ([1, 2], "expected pairs of a position"),
        (3, "expected pairs of a position"),
        (
            tpk.use("CosineSchedule", start=1),
            r"got use\('CosineSchedule'.*its name with the module, as in 'tpk:CosineSchedule'",
        ),
        (lambda epoch: 0.1 / epoch, "A function is for HyperParamSetterWithFunc"),
    ],
)
def test_a_bad_schedule_is_an_error(schedule, message):
    with pytest.raises(ConfigError, match=message):
        ScheduledHyperParamSetter("learning_rate", schedule)


def test_a_bad_interpolation_or_parameter_is_an_error():
    with pytest.raises(ConfigError, match="interp must be None, 'linear' or a function"):
        ScheduledHyperParamSetter("learning_rate", [(0, 1.0)], "cubic")
    with pytest.raises(ConfigError, match="expected a HyperParam or the name of a variable"):
        ScheduledHyperParamSetter(0.1, [(0, 1.0)])


def test_a_function_of_epoch_and_value_is_called_before_the_training_and_after_each_epoch():
    calls = []

    def halve(epoch, value):
        calls.append((epoch, value))
        return value / 2 if epoch != 2 else None

    assert rates(HyperParamSetterWithFunc("learning_rate", halve), max_epoch=4) == [0.5, 0.25, 0.25, 0.125]
    assert calls == [(0, 1.0), (1, 0.5), (2, 0.25), (3, 0.25), (4, 0.125)]


def test_a_setter_can_be_triggered_at_other_times():
    halve = HyperParamSetterWithFunc("learning_rate", lambda epoch, value: value / 2)
    setter = PeriodicTrigger(halve, every_k_steps=2)
    assert rates(setter, steps_per_epoch=4, max_epoch=1) == [0.5, 0.5, 0.25, 0.25]


def test_a_new_kind_of_setter_says_what_to_set():
    class Constant(HyperParamSetter):
        def get_value_to_set(self):
            return 0.1 * self.last_epoch

    assert rates(Constant("learning_rate"), max_epoch=3) == pytest.approx([0.0, 0.1, 0.2])


WARM = tpk.LinearSchedule(0.5, 0.0, 4).after_warmup(2, start=0.1)


def test_a_schedule_that_is_a_value_sets_what_holds_after_each_epoch():
    expected = [WARM(epoch) for epoch in range(8)]
    assert rates(ScheduledHyperParamSetter("learning_rate", WARM), max_epoch=8) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("starting_epoch", [2, 4])
def test_a_schedule_that_is_a_value_goes_on_in_the_middle(starting_epoch):
    whole = rates(ScheduledHyperParamSetter("learning_rate", WARM))
    assert (
        rates(ScheduledHyperParamSetter("learning_rate", WARM), starting_epoch=starting_epoch)
        == (whole[starting_epoch - 1 :])
    )


def test_a_schedule_that_is_a_value_may_count_steps():
    expected = [WARM(step) for step in range(8)]
    setter = ScheduledHyperParamSetter("learning_rate", WARM, step_based=True)
    assert rates(setter, steps_per_epoch=4, max_epoch=2) == pytest.approx(expected, abs=1e-6)


def test_a_schedule_of_epochs_may_be_looked_at_within_them():
    schedule = WARM.then(tpk.StepSchedule([(0, 0.75), (0.3, 0.25)]), at=3)
    setter = ScheduledHyperParamSetter("learning_rate", schedule, every_k_steps=2)
    steps = [0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14, 16, 16, 18, 18]
    expected = [schedule(step / 5) for step in steps]
    assert rates(setter, steps_per_epoch=5, max_epoch=4) == pytest.approx(expected, abs=1e-6)


def test_where_several_steps_make_a_run_the_value_holds_for_all_of_them():
    trainer = tpk.SingleCostTrainer(steps_per_run=3)
    seen = []

    def cost(x):
        return tf.reduce_mean(x * tf.compat.v1.get_variable("w", initializer=0.5))

    def optimizer():
        rate = tf.compat.v1.get_variable("learning_rate", initializer=1.0, trainable=False)
        return tf.compat.v1.train.GradientDescentOptimizer(rate)

    trainer.setup_graph([tf.TensorSpec([2], tf.float32, "x")], tpk.TensorInput(lambda: [tf.ones([2])]), cost, optimizer)
    setter = ScheduledHyperParamSetter("learning_rate", tpk.LinearSchedule(1.0, 0.0, 10), step_based=True)
    look = CallbackFactory(trigger_step=lambda self: seen.append((self.global_step, setter.param.get_value())))
    trainer.train(callbacks=[setter, look], monitors=[], steps_per_epoch=7, max_epoch=1)
    assert seen == [(step, pytest.approx(1 - step / 10)) for step in (3, 6, 7)]


def _warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_an_epoch_in_which_a_warmup_stays_at_zero_is_warned_of(caplog):
    rise = tpk.LinearSchedule(0.5, 0.5, 4).after_warmup(2)
    assert rates(ScheduledHyperParamSetter("learning_rate", rise, every_k_steps=1), max_epoch=1)[0] == 0
    assert not _warnings(caplog)
    assert rates(ScheduledHyperParamSetter("learning_rate", rise), max_epoch=3) == [0, 0.25, 0.5]
    assert [line.split(",")[0] for line in _warnings(caplog)] == ["learning_rate is 0 for the whole of epoch 1"]


def test_what_goes_by_itself_is_logged_where_it_ends(caplog):
    schedule = tpk.LinearSchedule(0.5, 0.25, 3).then(tpk.StepSchedule([(0, 0.25), (2, 0.125)]))
    with caplog.at_level(logging.INFO, "tpk.callbacks"):
        rates(ScheduledHyperParamSetter("learning_rate", schedule, step_based=True), steps_per_epoch=4, max_epoch=2)
    assert [line for line in caplog.messages if "is set" in line] == [
        "after step 0, learning_rate is set to 0.5",
        "after step 5, learning_rate is set to 0.125",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interp": "linear"}, "interp='linear' is for a list of points"),
        ({"every_k_steps": 0}, "every_k_steps must be an integer, 1 or more, not 0"),
        ({"every_k_steps": 1.5}, "every_k_steps must be an integer, 1 or more, not 1.5"),
    ],
)
def test_bad_options_of_a_schedule_are_errors(options, message):
    with pytest.raises(ConfigError, match=message):
        ScheduledHyperParamSetter("learning_rate", WARM, **options)


@pytest.mark.parametrize("stop_at", [4, 5, 8])
@pytest.mark.parametrize(
    "options", [{"step_based": True}, {"step_based": True, "every_k_steps": 3}, {"every_k_steps": 3}, {}], ids=str
)
def test_a_training_that_is_resumed_has_the_values_of_one_that_was_never_interrupted(tmp_path, stop_at, options):
    schedule = tpk.CosineSchedule(0.5, 0.1, 9 if "step_based" in options else 2.5).after_warmup(1.5, start=0.25)

    def train(*callbacks, resume="never"):
        trainer, target, seen = WithLearningRate(), SimpleNamespace(epsilon=1.0), []
        setters = [
            ScheduledHyperParamSetter(each, schedule, **options)
            for each in ("learning_rate", ObjAttrParam(target, "epsilon"))
        ]
        look = CallbackFactory(before_run=lambda self: seen.append(target.epsilon))
        trainer.train(
            callbacks=[*setters, look, *callbacks],
            monitors=[],
            steps_per_epoch=5,
            max_epoch=3,
            run_dir=tmp_path / "run" if callbacks else None,
            resume=resume,
        )
        return trainer.rates, seen

    def stop(self):
        if self.global_step == stop_at:
            raise tpk.StopTraining("here")

    whole = train()
    first = train("ModelSaver", CallbackFactory(trigger_step=stop))
    rest = train("ModelSaver", resume="must")
    assert len(first[0]) == stop_at
    assert [begin + end for begin, end in zip(first, rest, strict=True)] == list(whole)


class Statistic(tpk.Callback):
    """Writes one value of a statistic per epoch."""

    def __init__(self, *values):
        self.values = values

    def trigger_epoch(self, trainer):
        trainer.monitors.put_scalar("error", self.values[trainer.epoch_num - 1])


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        # Better each time by more than the threshold.
        ([1.0, 0.8, 0.6, 0.4, 0.2], {}, [1, 1, 1, 1, 1]),
        # Not better over two epochs; then it waits for two epochs.
        ([1.0, 1.0, 1.0, 1.0, 1.0], {}, [1, 1, 1, 0.5, 0.5]),
        # Better, but not by enough.
        ([1.0, 0.96, 0.95, 0.1, 0.0], {}, [1, 1, 1, 0.5, 0.5]),
        # It was better for one epoch of the two.
        ([1.0, 0.5, 1.0, 1.0, 1.0], {}, [1, 1, 1, 1, 0.5]),
        ([0.0, 0.2, 0.4, 0.6, 0.8], {"mode": "max"}, [1, 1, 1, 1, 1]),
        ([0.8, 0.6, 0.4, 0.2, 0.0], {"mode": "max"}, [1, 1, 1, 0.5, 0.5]),
    ],
)
def test_a_statistic_that_does_not_improve_changes_the_value(values, options, expected):
    setter = StatMonitorParamSetter("learning_rate", "error", lambda rate: rate / 2, 0.1, 2, **options)
    assert rates(Statistic(*values), setter, max_epoch=5) == expected


def test_the_statistic_is_read_after_it_is_written_whatever_the_order():
    values = [1.0, 1.0, 1.0, 1.0, 1.0]

    def setter():
        return StatMonitorParamSetter("learning_rate", "error", lambda rate: rate / 2, 0.1, 2)

    before = rates(setter(), Statistic(*values), max_epoch=5)
    assert before == rates(Statistic(*values), setter(), max_epoch=5) == [1, 1, 1, 0.5, 0.5]


def test_bad_thresholds_and_counts_are_errors():
    with pytest.raises(ConfigError, match="threshold must be a number that is not negative"):
        StatMonitorParamSetter("learning_rate", "error", lambda rate: rate, -0.1, 2)
    with pytest.raises(ConfigError, match="last_k must be an integer, 1 or more"):
        StatMonitorParamSetter("learning_rate", "error", lambda rate: rate, 0.1, 0)
    with pytest.raises(ConfigError, match="mode must be one of 'min', 'max', not True"):
        StatMonitorParamSetter("learning_rate", "error", lambda rate: rate, 0.1, 2, True)


def with_state(setter, state):
    """Return the setter, and a callback that loads its state as in a resumed training."""
    return setter, CallbackFactory(before_train=lambda self: setter.load_state_dict(state))


def interrupted(make, after):
    """Return the rates of a training that goes on, in a new process so to say, after the epoch `after`."""
    first, saved = make(), {}

    def save(self):
        if self.epoch_num == after:
            saved["state"] = json.loads(json.dumps(first.state_dict()))
            saved["learning_rate"] = self.trainer.sess.run(self.trainer.rate)

    head = rates(first, CallbackFactory(trigger_epoch=save), max_epoch=after)
    tail = rates(
        *with_state(make(), saved["state"]),
        starting_epoch=after + 1,
        session_init={"learning_rate": saved["learning_rate"], "global_step": after},
    )
    return head + tail


@pytest.mark.parametrize("after", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "make",
    [
        lambda: HyperParamSetterWithFunc("learning_rate", lambda epoch, value: value / 2),
        lambda: ScheduledHyperParamSetter("learning_rate", [(2, 0.5), (4, 0.25)]),
        lambda: ScheduledHyperParamSetter("learning_rate", [(1, 0.5), (5, 0.25)], "linear"),
        lambda: ScheduledHyperParamSetter("learning_rate", [(2, 0.5), (4, 0.25)], step_based=True),
    ],
    ids=["func", "schedule", "linear", "steps"],
)
def test_a_training_that_goes_on_has_the_values_of_one_that_was_never_stopped(make, after):
    assert interrupted(make, after) == rates(make())


def test_an_attribute_comes_back_with_the_state():
    target = SimpleNamespace(epsilon=1.0)
    setter = HyperParamSetterWithFunc(ObjAttrParam(target, "epsilon"), lambda epoch, value: value / 2)
    rates(setter, max_epoch=2)
    state = setter.state_dict()
    fresh = SimpleNamespace(epsilon=1.0)
    seen = []
    resumed = HyperParamSetterWithFunc(ObjAttrParam(fresh, "epsilon"), lambda epoch, value: value / 2)
    look = CallbackFactory(before_epoch=lambda self: seen.append(fresh.epsilon))
    rates(*with_state(resumed, state), look, starting_epoch=3, max_epoch=4)
    assert seen == [0.125, 0.0625]


def test_what_another_callback_has_changed_stays_so_unless_the_schedule_says_something_new():
    state = {"value": 0.0625, "_scheduled": 0.5, "_position": 2}
    same = ScheduledHyperParamSetter("learning_rate", [(0, 0.5), (4, 0.25)])
    assert rates(*with_state(same, state), starting_epoch=3, max_epoch=5) == [0.0625, 0.0625, 0.25]
    changed = ScheduledHyperParamSetter("learning_rate", [(0, 0.75), (4, 0.25)])
    assert rates(*with_state(changed, state), starting_epoch=3, max_epoch=5) == [0.75, 0.75, 0.25]


def test_a_statistic_changes_nothing_right_after_a_restart_that_follows_a_change():
    def make():
        return StatMonitorParamSetter("learning_rate", "error", lambda rate: rate / 2, 0.1, 2)

    first, state = make(), {}
    save = CallbackFactory(after_train=lambda self: state.update(first.state_dict()))
    rates(Statistic(*[1.0] * 3), first, save, max_epoch=3)
    assert (state["value"], state["_epoch_of_last_change"]) == (0.5, 3)
    second = with_state(make(), json.loads(json.dumps(state)))
    assert rates(Statistic(*[1.0] * 6), *second, starting_epoch=4, max_epoch=6) == [0.5, 0.5, 0.5]


def test_a_list_with_nan_is_refused():
    with pytest.raises(ConfigError, match=r"expected pairs of a position .* and a finite number"):
        tpk.ScheduledHyperParamSetter("learning_rate", [(0, 0.1), (3, float("nan"))])
