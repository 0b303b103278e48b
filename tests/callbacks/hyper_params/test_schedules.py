from __future__ import annotations

import math
import pickle
import sys

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError, PluginImportError
from tpk.plugin.recorded_options import described

v1 = tf.compat.v1

POSITIONS = [0.0, 0.5, 1.0, 2.0, 3.7, 5.0, 9.9, 10.0, 11.0, 25.0]
LINE = tpk.LinearSchedule(1.0, 0.1, 10)


def of_tensorflow(decay):
    """What a function of TensorFlow 1, which takes the global step, makes of each of the positions."""
    with tf.Graph().as_default(), v1.Session() as sess:
        step = v1.placeholder(tf.float32, [])
        value = decay(step)
        return [sess.run(value() if callable(value) else value, {step: position}) for position in POSITIONS]


@pytest.mark.parametrize(
    ("schedule", "decay"),
    [
        (tpk.CosineSchedule(0.4, 0.1, 10), lambda step: v1.train.cosine_decay(0.4, step, 10, alpha=0.25)),
        (
            tpk.StepSchedule([(10, 0.1), (0, 1.0)], "linear"),
            lambda step: v1.train.polynomial_decay(1.0, step, 10, end_learning_rate=0.1),
        ),
        (LINE, lambda step: v1.train.polynomial_decay(1.0, step, 10, end_learning_rate=0.1)),
        (
            tpk.PolynomialSchedule(0.4, 0.1, 10, power=0.9),
            lambda step: v1.train.polynomial_decay(0.4, step, 10, end_learning_rate=0.1, power=0.9),
        ),
        (
            tpk.PolynomialSchedule(0.0, 2.0, 10, power=2),
            lambda step: v1.train.polynomial_decay(0.0, step, 10, end_learning_rate=2.0, power=2.0),
        ),
        (tpk.ExponentialSchedule(0.4, 0.9, 3), lambda step: v1.train.exponential_decay(0.4, step, 3, 0.9)),
        (
            tpk.ExponentialSchedule(0.4, 0.5, 3, staircase=True),
            lambda step: v1.train.exponential_decay(0.4, step, 3, 0.5, staircase=True),
        ),
        (
            tpk.StepSchedule([(0, 0.4), (3, 0.2), (9.95, 0.1)]),
            lambda step: v1.train.piecewise_constant(step, [3.0, 9.95], [0.4, 0.2, 0.1]),
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_values_are_those_of_tensorflow(schedule, decay):
    np.testing.assert_allclose([schedule(position) for position in POSITIONS], of_tensorflow(decay), rtol=1e-5)


def one_cycle_of_torch(step, peak, steps, pct_start, div_factor, final_div_factor):
    """Torch's `OneCycleLR` from its documentation; with `steps` + 1 in all, as its last step is one before the end."""
    start, up = peak / div_factor, pct_start * steps
    if step <= up:
        return peak + (start - peak) / 2 * (1 + math.cos(math.pi * step / up))
    down = (step - up) / (steps - up)
    return start / final_div_factor + (peak - start / final_div_factor) / 2 * (1 + math.cos(math.pi * down))


def test_a_cycle_is_that_of_torch():
    schedule = tpk.OneCycleSchedule(0.5, 20, pct_start=0.25, div_factor=10, final_div_factor=100)
    expected = [one_cycle_of_torch(step, 0.5, 20, 0.25, 10, 100) for step in range(21)]
    np.testing.assert_allclose([schedule(step) for step in range(21)], expected, rtol=1e-12)
    assert [schedule(0), schedule(5), schedule(20), schedule(99)] == pytest.approx([0.05, 0.5, 5e-4, 5e-4])


def test_schedules_follow_each_other_and_begin_at_their_boundaries():
    joined = LINE.then(tpk.ExponentialSchedule(2.0, 0.5)).then(tpk.StepSchedule([(0, 7.0), (2, 9.0)]), at=12)
    assert [joined(position) for position in (0, 5, 10, 11, 12, 13.9, 14, 99)] == pytest.approx(
        [1.0, 0.55, 2.0, 1.0, 7.0, 7.0, 9.0, 9.0]
    )
    assert joined.boundaries == (10, 12)
    assert len(joined.schedules) == 3
    assert joined.length == math.inf
    assert tpk.OneCycleSchedule(1.0, 5).then(joined).boundaries == (5, 15, 17)
    assert LINE.then(tpk.CosineSchedule(0.1, 0.0, 5)).length == 15


@pytest.mark.parametrize(
    "schedule",
    [
        LINE,
        tpk.CosineSchedule(0.4, 0.1, 10),
        tpk.ExponentialSchedule(0.4, 0.9),
        tpk.StepSchedule([(0, 0.4), (2, 0.1)]),
        tpk.OneCycleSchedule(0.5, 20),
        LINE.then(tpk.CosineSchedule(0.1, 0.0, 5)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_warmup_is_a_line_to_the_first_value_and_comes_before_all_of_it(schedule):
    warm = schedule.after_warmup(4, start=0.02)
    rise = (schedule(0) - 0.02) / 4
    assert [warm(position) for position in (0, 1, 3)] == pytest.approx([0.02, 0.02 + rise, 0.02 + 3 * rise])
    assert [warm(4 + position) for position in POSITIONS] == [schedule(position) for position in POSITIONS]


def test_what_comes_before_the_beginning_is_the_beginning():
    for schedule in (LINE, tpk.ExponentialSchedule(0.4, 0.9), tpk.StepSchedule([(0, 0.4), (3, 0.2)])):
        assert schedule(-3) == schedule(0)


EVERY_KIND = [
    tpk.StepSchedule([(0, 0.4), (3, 0.2)]),
    LINE,
    tpk.CosineSchedule(0.4, 0.1, 10),
    tpk.PolynomialSchedule(0.4, 0.1, 10, 0.9),
    tpk.ExponentialSchedule(0.4, 0.9, staircase=True),
    tpk.OneCycleSchedule(0.5, 20),
    LINE.then(tpk.StepSchedule([(0, 0.4), (3, 0.2)])).after_warmup(2),
]


@pytest.mark.parametrize("schedule", EVERY_KIND, ids=lambda each: type(each).__name__)
def test_a_schedule_is_a_value_that_is_pickled_and_lies_in_the_description_of_a_run(schedule):
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert described(schedule)["name"] == type(schedule).__name__
    assert hash(schedule) == hash(pickle.loads(pickle.dumps(schedule)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tpk.LinearSchedule(1.0, 0.1, 0), r"LinearSchedule\(length=0\): expected a positive number"),
        (lambda: tpk.CosineSchedule(1.0, 0.1, -5), r"CosineSchedule\(length=-5\): expected a positive"),
        (lambda: tpk.CosineSchedule("1", 0.1, 5), r"start='1'\): expected a finite number"),
        (lambda: tpk.LinearSchedule(1.0, math.nan, 5), r"end=nan\): expected a finite number"),
        (lambda: tpk.LinearSchedule(True, 0.1, 5), r"start=True\): expected a finite number"),
        (lambda: tpk.PolynomialSchedule(1.0, 0.1, 5, 0), r"power=0\): expected a positive"),
        (lambda: tpk.ExponentialSchedule(1.0, -0.1), r"factor=-0.1\): expected a positive"),
        (lambda: tpk.ExponentialSchedule(1.0, 0.1, period=0), r"period=0\): expected a positive"),
        (lambda: tpk.OneCycleSchedule(1.0, 10, pct_start=1), r"pct_start=1\): expected a number between 0 and 1"),
        (lambda: tpk.OneCycleSchedule(0, 10), r"peak=0\): expected a positive"),
        (lambda: tpk.StepSchedule([]), "expected pairs"),
        (lambda: tpk.StepSchedule([0.1, 0.2]), "expected pairs"),
        (lambda: tpk.StepSchedule([(0, "high")]), "expected pairs"),
        (lambda: tpk.StepSchedule([(-1, 0.1)]), "must be different and not negative"),
        (lambda: tpk.StepSchedule([(0, 0.1), (5, 0.2), (5, 0.3)]), "must be different and not negative"),
        (lambda: tpk.StepSchedule([(0, 0.1)], "cubic"), "interp must be None, 'linear' or a function, not 'cubic'"),
        (lambda: tpk.StepSchedule([(0, 0.1)]).then(LINE), r"has no end.* \.then\(schedule, at=40\)"),
        (lambda: LINE.then(0.1), "expected two schedules or more"),
        (lambda: LINE.then(LINE, at=0), "expected 1 positive numbers"),
        (lambda: LINE.then(LINE).then(LINE, at=5), "in increasing order"),
        (
            lambda: tpk.JoinedSchedule([LINE, LINE], [5, 10]),
            "expected 1 positive numbers in increasing order, one for each schedule",
        ),
        (lambda: tpk.JoinedSchedule([LINE], []), "expected two schedules"),
        (lambda: tpk.JoinedSchedule([LINE, LINE], 5), "expected 1 positive numbers"),
        (lambda: LINE.after_warmup(0), r"length=0\): expected a positive"),
        (lambda: LINE.plot(length=0), r"plot\(length=0\): expected a positive"),
        (lambda: tpk.StepSchedule([(0, 0.1)]).plot(), r"plot\(length=inf\): expected a positive number: the last"),
    ],
)
def test_what_cannot_be_is_an_error(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_schedule_of_ones_own_needs_a_length_and_a_call():
    class Triangle(tpk.Schedule):
        length = 4.0

        def __call__(self, position):
            return 1 - abs(2 * min(position / self.length, 1) - 1)

    assert [Triangle().after_warmup(2)(position) for position in (0, 2, 4, 6)] == [0, 0, 1, 0]


def test_a_picture_shows_the_whole_schedule(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    for schedule, end in [(LINE, 10), (LINE.after_warmup(5), 15)]:
        axes = schedule.plot()
        (line,) = axes.lines
        assert line.get_xdata()[-1] == end
        assert list(line.get_ydata()[[0, -1]]) == [schedule(0), schedule(end)]
        matplotlib.pyplot.close(axes.figure)
    axes = LINE.then(tpk.ExponentialSchedule(0.1, 0.5)).plot(length=12)
    assert axes.lines[0].get_xdata()[-1] == 12
    matplotlib.pyplot.close(axes.figure)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(PluginImportError, match=r"schedule.plot\(\) needs matplotlib.* pip install matplotlib"):
        LINE.plot()
