from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import struct
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.callbacks.statistics import progress_bar as progress
from tpk.callbacks.statistics.progress_bar import ProgressBar
from tpk.errors import ConfigError, TowerError
from tpk.tower import TowerFunc, TrainTowerContext


class Terminal(io.StringIO):
    def isatty(self):
        return True

    @property
    def drawings(self):
        """Each state that the bar was drawn in, without the carriage returns."""
        return [part.strip() for part in re.split(r"[\r\n]+", self.getvalue()) if part.strip()]


class Timed(tpk.Trainer):
    """Each step takes some seconds of its own clock; its cost is 10 times the number of the run."""

    def __init__(self, seconds_per_step=0.1):
        super().__init__()
        self.seconds_per_step = seconds_per_step
        self.now = 0.0
        self.fetched = []
        with self.graph.as_default():
            count = tf.compat.v1.get_variable("count", initializer=0.0)
            self.train_op = count.assign_add(1.0, read_value=False)
            with tf.control_dependencies([self.train_op]):
                self.cost = tf.multiply(count.read_value(), 10.0, name="tower0/cost")
            tf.constant([1.5, 2.5], name="pair")

    def run_step(self):
        self.now += self.seconds_per_step
        super().run_step()

    def run(self, names, *, steps_per_epoch=20, max_epoch=1, callbacks=(), file=None):
        """Train with a bar; return what standard error is, by default a terminal."""
        file = file or Terminal()
        bar = ProgressBar(names, clock=lambda: self.now)
        with contextlib.redirect_stderr(file):
            self.train(
                callbacks=[bar, Watch(bar), *callbacks],
                monitors=[],
                steps_per_epoch=steps_per_epoch,
                max_epoch=max_epoch,
            )
        return file


class Watch(tpk.Callback):
    """Records in which steps the bar asked for its tensors."""

    def __init__(self, bar):
        self.bar = bar

    def before_run(self, run_context):
        if self.bar.before_run(run_context) is not None:
            self.trainer.fetched.append((self.epoch_num, self.local_step))


def shown(terminal):
    """The step and what stands behind the times, of each drawing."""
    times = r"[^,]*,[^,\]]*(?:, run: [\d:]+ left)?"
    found = [re.search(rf" (\d+)/\d+ \[{times}(?:, (.*))?\]", each) for each in terminal.drawings]
    return [(int(each[1]), each[2]) for each in found if each]


def test_the_bar_fetches_only_before_it_refreshes():
    trainer = Timed(seconds_per_step=0.1)
    trainer.run(["tower0/cost"], steps_per_epoch=20)
    # The first and the last step; and else, one step after half a second has passed since the last drawing.
    assert trainer.fetched == [(1, 0), (1, 6), (1, 12), (1, 18), (1, 19)]


def test_the_bar_shows_step_and_values_of_the_very_step():
    trainer = Timed(seconds_per_step=0.1)
    terminal = trainer.run(["tower0/cost"], steps_per_epoch=10)
    values = dict.fromkeys(drawing for drawing in shown(terminal) if drawing[1])
    assert list(values) == [(1, "now: cost=10"), (7, "now: cost=70"), (10, "now: cost=100")]
    assert terminal.drawings[-1].startswith("epoch 1/1: 100%")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
@pytest.mark.parametrize(("lines", "columns"), [(0, 0), (30, 100)])
def test_the_bar_shows_in_a_terminal_whether_its_size_is_known_or_not(lines, columns):
    import fcntl
    import termios

    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    with os.fdopen(theirs, "w") as terminal:
        Timed().run(["tower0/cost"], file=terminal, steps_per_epoch=2)
    drawings = re.split(r"[\r\n]+", read_to_end(ours).strip())
    assert re.search(r"^epoch 1/1: 100%\|.*\| 2/2 .*cost=20", drawings[-1])


def read_to_end(terminal):
    """Return all that was written to a pseudo-terminal whose other side is closed."""
    read = b""
    with os.fdopen(terminal, "rb", buffering=0) as file:
        try:
            while chunk := file.read(4096):
                read += chunk
        except OSError:  # How Linux says that the other side is closed.
            pass
    return read.decode()


@pytest.mark.parametrize("seconds_per_step", [0.001, 0.3, 5.0])
def test_the_bar_refreshes_as_often_as_it_shall_however_long_the_steps_take(seconds_per_step):
    trainer = Timed(seconds_per_step)
    trainer.run(["tower0/cost"], steps_per_epoch=1000)
    # Every drawing needs a step that fetches, and then half a second.
    period = np.ceil(0.5 / seconds_per_step) + 1
    assert len(trainer.fetched) == pytest.approx(1000 / period, rel=0.1, abs=3)


def test_the_bar_does_not_wait_when_steps_get_slower():
    class Slower(Timed):
        def run_step(self):
            self.seconds_per_step = 0.001 if self.local_step < 499 else 2.0
            super().run_step()

    trainer = Slower()
    trainer.run(["tower0/cost"], steps_per_epoch=507)
    assert [step for _, step in trainer.fetched if step > 499] == [500, 502, 504, 506]


def test_each_epoch_ends_with_the_values_of_its_last_step():
    terminal = Timed(seconds_per_step=0.001).run(["tower0/cost"], steps_per_epoch=4, max_epoch=3)
    finished = [line for line in terminal.drawings if "100%" in line]
    for epoch in (1, 2, 3):
        last = [line for line in finished if line.startswith(f"epoch {epoch}/3")][-1]
        assert "4/4" in last and f"cost={40 * epoch}" in last


def test_a_bar_without_names_fetches_nothing_and_has_no_hooks_in_the_run():
    trainer = Timed()
    terminal = trainer.run((), steps_per_epoch=10)
    assert trainer.fetched == []
    assert (5, None) in shown(terminal) and (10, None) in shown(terminal)
    assert not {"before_run", "after_run"} & set(ProgressBar(()).hook_implementations())


def test_names_may_have_an_output_number_and_may_be_tensors():
    trainer = Timed()
    assert shown(trainer.run([trainer.cost], steps_per_epoch=1))[-1] == (1, "now: cost=10")
    assert shown(Timed().run(["pair:0"], steps_per_epoch=1))[-1] == (1, "now: pair=[1.5 2.5]")


def test_a_single_name_needs_no_list():
    assert shown(Timed().run("tower0/cost", steps_per_epoch=1))[-1] == (1, "now: cost=10")


def test_names_that_are_alike_at_their_end_are_shown_whole(caplog):
    trainer = Timed(seconds_per_step=60.0)
    with trainer.graph.as_default():
        tf.constant(3, name="other/cost")
    with caplog.at_level(logging.INFO, "tpk.callbacks"):
        trainer.run(["tower0/cost", "other/cost"], file=io.StringIO(), steps_per_epoch=2)
    assert log_lines(caplog)[-1].endswith(", now: tower0/cost=20, other/cost=3]")


def test_a_name_that_is_none_of_a_tensor_is_an_error_before_the_first_step():
    trainer = Timed()
    with pytest.raises(ConfigError, match=r"ProgressBar should show 'accuracy'"):
        trainer.run(["accuracy"])
    assert trainer.global_step == 0


def test_the_bar_works_where_a_step_runs_no_session():
    class NoSession(Timed):
        def run_step(self):
            self.now += 0.1

    terminal = NoSession().run(["tower0/cost"], steps_per_epoch=20)
    assert [step for step, _ in shown(terminal) if 0 < step < 20]
    assert shown(terminal)[-1] == (20, None)


def test_the_bar_is_closed_where_the_training_breaks_off():
    class Breaks(tpk.Callback):
        def trigger_step(self):
            if self.local_step == 3:
                raise RuntimeError("broken")

    trainer, terminal = Timed(), Terminal()
    with pytest.raises(RuntimeError, match=r"broken"):
        trainer.run([], file=terminal, callbacks=[Breaks()])
    assert shown(terminal)[-1] == (4, None)
    assert terminal.getvalue().endswith("\n")


def test_a_training_without_an_end_has_no_number_of_epochs():
    class Stops(tpk.Callback):
        def trigger_epoch(self):
            raise tpk.StopTraining

    terminal = Timed().run((), callbacks=[Stops()], max_epoch=2**63 - 1)
    assert terminal.drawings[-1].startswith("epoch 1: 100%")


def log_lines(caplog):
    return [each.getMessage() for each in caplog.records if each.name == "tpk.callbacks.statistics.progress_bar"]


def test_without_a_terminal_it_logs_a_line_now_and_then(caplog):
    trainer, file = Timed(seconds_per_step=6.0), io.StringIO()
    with caplog.at_level(logging.INFO, "tpk.callbacks"):
        trainer.run(["tower0/cost"], file=file, steps_per_epoch=35)
    assert file.getvalue() == ""
    assert log_lines(caplog) == [
        "epoch 1/1: 11/35 [01:06<02:24, 0.1667 steps/s, now: cost=110]",
        "epoch 1/1: 22/35 [02:12<01:18, 0.1667 steps/s, now: cost=220]",
        "epoch 1/1: 33/35 [03:18<00:12, 0.1667 steps/s, now: cost=330]",
    ]
    assert trainer.fetched == [(1, 10), (1, 21), (1, 32)]


class Takes(tpk.Callback):
    """Takes some seconds before an epoch and after it."""

    def before_epoch(self, trainer):
        trainer.now += 10.0

    def after_epoch(self, trainer):
        trainer.now += 30.0


def test_the_time_left_of_the_run_includes_the_time_between_epochs(caplog):
    trainer = Timed(seconds_per_step=30.0)
    with caplog.at_level(logging.INFO, "tpk.callbacks"):
        trainer.run((), file=io.StringIO(), steps_per_epoch=4, max_epoch=3, callbacks=[Takes()])
    # At first, 2 steps have taken 70 seconds, and 10 steps are left. In epoch 2, 8 have taken 290, and 4 are left.
    assert log_lines(caplog) == [
        "epoch 1/3: 2/4 [01:00<01:00, 0.03333 steps/s, run: 05:50 left]",
        "epoch 1/3: 4/4 [02:00<00:00, 0.03333 steps/s, run: 04:20 left]",
        "epoch 2/3: 2/4 [01:00<01:00, 0.03333 steps/s, run: 03:50 left]",
        "epoch 2/3: 4/4 [02:00<00:00, 0.03333 steps/s, run: 02:25 left]",
        "epoch 3/3: 2/4 [01:00<01:00, 0.03333 steps/s]",
        "epoch 3/3: 4/4 [02:00<00:00, 0.03333 steps/s]",
    ]


def test_a_run_without_max_epoch_shows_no_time_left(caplog):
    class Stops(tpk.Callback):
        def trigger_epoch(self):
            raise tpk.StopTraining

    with caplog.at_level(logging.INFO, "tpk.callbacks"):
        Timed(30.0).run((), file=io.StringIO(), steps_per_epoch=2, max_epoch=2**63 - 1, callbacks=[Stops()])
    assert log_lines(caplog) == ["epoch 1: 2/2 [01:00<00:00, 0.03333 steps/s]"]


def test_the_bar_shows_the_speed_of_the_statistics():
    trainer = Timed(seconds_per_step=0.3)
    tracker = tpk.ThroughputTracker(clock=lambda: trainer.now)
    terminal = trainer.run((), steps_per_epoch=7, max_epoch=2, callbacks=[tracker, Takes()])
    speeds = [f"{speed:.4g} steps/s" for speed in trainer.history["steps_per_second"]]
    assert speeds == ["3.333 steps/s"] * 2
    finished = [line for line in terminal.drawings if "7/7" in line]
    assert finished and all(", 3.333 steps/s" in line for line in finished)


def test_without_a_terminal_an_epoch_that_is_over_soon_is_quiet(caplog):
    trainer = Timed(seconds_per_step=0.1)
    with caplog.at_level(logging.INFO, "tpk.callbacks"):
        trainer.run(["tower0/cost"], file=io.StringIO(), max_epoch=10)
    assert log_lines(caplog) == [] and trainer.fetched == []


def test_by_default_a_trainer_without_towers_shows_no_tensor():
    trainer = Timed()
    terminal = trainer.run(None, steps_per_epoch=2)
    assert trainer.fetched == [] and shown(terminal)[-1] == (2, None)


def test_the_request_is_the_same_object_each_time():
    """So the step engine recognizes it, and compiles two runs in all: one with the tensors, and one without."""
    trainer = Timed()
    seen = []

    class Collect(tpk.Callback):
        def before_run(self, run_context):
            request = self.trainer.bar.before_run(run_context)
            if request is not None:
                seen.append(request)

    trainer.bar = ProgressBar(["tower0/cost"], clock=lambda: trainer.now)
    with contextlib.redirect_stderr(Terminal()):
        trainer.train(callbacks=[trainer.bar, Collect()], monitors=[], steps_per_epoch=30, max_epoch=2)
    assert len(seen) > 4 and len(set(map(id, seen))) == 1


def test_there_is_one_bar_for_all_epochs(monkeypatch):
    class Counted(progress.tqdm):
        def __init__(self, *args, **options):
            made.append(options["desc"])
            super().__init__(*args, **options)

    made = []
    monkeypatch.setattr(progress, "tqdm", Counted)
    terminal = Timed().run((), steps_per_epoch=2, max_epoch=3)
    assert made == ["epoch 1/3"]
    assert terminal.getvalue().count("\n") == 1 and terminal.getvalue().endswith("\n"), "it leaves a single line"


def test_between_two_epochs_the_line_is_free_for_others():
    class Evaluates(tpk.Callback):
        def trigger_epoch(self):
            terminal.write(f"evaluated {self.epoch_num}\n")

    trainer, terminal = Timed(), Terminal()
    trainer.run((), file=terminal, callbacks=[Evaluates()], steps_per_epoch=2, max_epoch=2)
    assert [line for line in terminal.drawings if "evaluated" in line] == ["evaluated 1", "evaluated 2"]


def test_a_notebook_has_a_bar(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    file = io.StringIO()
    Timed().run((), file=file, steps_per_epoch=2, max_epoch=2)
    assert "epoch 2/2: 100%" in file.getvalue() and "2/2" in file.getvalue()


class Bowl(tpk.ModelDesc):
    """Its cost is the datapoint."""

    def inputs(self):
        return [tf.TensorSpec([], tf.float32, "x")]

    def build_graph(self, x):
        return tf.add(x, 0.0 * tf.compat.v1.get_variable("w", initializer=1.0), name="total")

    def optimizer(self):
        return tf.compat.v1.train.GradientDescentOptimizer(0.1)


def test_the_cost_is_shown_as_log_and_statistics_have_it(tmp_path):
    now, terminal = [0.0], Terminal()

    class Tick(tpk.Callback):
        def trigger_step(self):
            now[0] += 1.0

    config = tpk.TrainConfig(
        model=Bowl(),
        data=tpk.FeedInput([[np.float32(each)] for each in (1, 2, 6, 4, 5, 9)]),
        callbacks=[Tick()],
        extra_callbacks=["EpochMeans", ProgressBar(clock=lambda: now[0])],
        steps_per_epoch=3,
        max_epoch=2,
        run_dir=tmp_path,
    )
    with contextlib.redirect_stderr(terminal):
        tpk.launch_train_with_config(config, "SimpleTrainer")
    drawn = list(dict.fromkeys(each for each in shown(terminal) if each[1]))
    assert drawn == [(1, "cost=1"), (2, "cost=1.5"), (3, "cost=3"), (1, "cost=4"), (2, "cost=4.5"), (3, "cost=6")]
    rows = [json.loads(line) for line in (tmp_path / "stats.jsonl").read_text().splitlines()]
    assert [row["cost"] for row in rows] == [3, 6]


def test_the_bar_is_closed_even_if_the_session_is(caplog):
    class Closes(tpk.Callback):
        def trigger_step(self, trainer):
            trainer.sess.close()

    config = tpk.TrainConfig(
        model=Bowl(), data=tpk.FeedInput([[np.float32(1)]]), callbacks=[Closes()], steps_per_epoch=3, max_epoch=1
    )
    terminal = Terminal()
    with contextlib.redirect_stderr(terminal), pytest.raises(RuntimeError, match="closed"):
        tpk.launch_train_with_config(config, "SimpleTrainer")
    assert "ProgressBar failed" not in caplog.text
    assert terminal.drawings[-1].startswith("epoch 1/1:  33%")


class WithTower(Timed):
    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.tower_func = TowerFunc(self.build, [tf.TensorSpec([], tf.float32, "x")])
            with TrainTowerContext(ns_name="towerA"):
                self.tower_func(tf.constant(3.0))

    @property
    def towers(self):
        return self.tower_func.towers

    def build(self, x):
        tf.identity(x + 1, name="next")
        return self.output_of(x)

    def output_of(self, x):
        return tf.multiply(x, x, name="total_cost")


def test_by_default_the_cost_of_the_main_training_tower_is_shown():
    assert shown(WithTower().run(None, steps_per_epoch=1))[-1] == (1, "now: cost=9")


def test_an_output_that_is_no_cost_is_not_shown_by_default():
    class TwoOutputs(WithTower):
        def output_of(self, x):
            return {"a": x, "b": x}

    assert shown(TwoOutputs().run(None, steps_per_epoch=1))[-1] == (1, None)


def test_names_are_those_inside_of_the_tower():
    assert shown(WithTower().run(["next", "total_cost:0"], steps_per_epoch=1))[-1] == (
        1,
        "now: next=4, total_cost=9",
    )


def test_a_name_that_is_in_no_tower_and_not_in_the_graph_is_an_error_with_the_nearest():
    with pytest.raises(TowerError, match=r"no tensor 'totl_cost'.*total_cost"):
        WithTower().run(["totl_cost"])
