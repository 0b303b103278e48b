"""Values of tensors in steps: those of the very run, once, in the steps that were asked for, on every strategy."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf
from guarded_trainings import REPLICATED, SIGNATURE, assert_same, cost, data, momentum, train, two_costs

import tpk
from tpk.callbacks import DumpTensors, ProcessTensors, TensorPrinter
from tpk.errors import ConfigError, TowerError
from tpk.graph.objective import Objective

v1 = tf.compat.v1
TWO = ["replicated", "parameter_server"]


class Seen:
    """What a `ProcessTensors` has seen: the step, and the values."""

    def __init__(self, tensors, **options):
        self.steps, self.values = [], []
        self.callback = ProcessTensors(tensors, self, **options)

    def __call__(self, *values):
        self.steps.append(self.callback.global_step)
        self.values.append(values)


# Which values.


@pytest.mark.parametrize(
    ("strategy", "make_input"),
    [("single", tpk.FeedInput), *((strategy, tpk.QueueInput) for strategy in ("single", *TWO, "async"))],
)
def test_values_are_those_of_the_step_and_nothing_is_taken_twice(strategy, make_input):
    towers = 2 if strategy in TWO else 1
    options = {"strategy": strategy if strategy == "single" else tpk.use(strategy, devices=towers)}
    plain = train(tpk.CallbackFactory(before_train=lambda self: None), make_input=make_input, **options)
    seen = Seen(["x", "cost", "distance:0"])
    looked_at = train(seen.callback, make_input=make_input, **options)
    assert seen.steps == [1, 2, 3, 4, 5, 6]
    rows = data()
    for step, (x, value, distance) in enumerate(seen.values):
        np.testing.assert_array_equal(x, rows[step * towers][0])
        np.testing.assert_allclose(value, distance.mean(), rtol=1e-6)
    for one, other in zip(plain.steps, looked_at.steps, strict=True):
        assert_same(one, other)


def test_a_tensor_that_no_update_needs_belongs_to_the_run_that_takes_its_data():
    def func(x):
        tf.reduce_max(x, name="greatest")
        return cost(x)

    seen = Seen("greatest")
    train(seen.callback, func=func, make_input=tpk.QueueInput)
    np.testing.assert_array_equal([value for (value,) in seen.values], [row.max() for (row,) in data()[:6]])


@pytest.mark.parametrize(
    ("k", "steps_per_run", "expected"), [(1, 1, range(1, 13)), (5, 1, [5, 10]), (4, 3, [6, 9, 12])]
)
def test_every_k_th_step_is_looked_at_or_the_run_that_passes_it(k, steps_per_run, expected):
    seen = Seen("x", every_k_steps=k)
    with tf.Graph().as_default():
        trainer = tpk.SingleCostTrainer(steps_per_run=steps_per_run)
        trainer.setup_graph(SIGNATURE, tpk.QueueInput(data()), cost, momentum)
        trainer.train(callbacks=[seen.callback], steps_per_epoch=6, max_epoch=2)
    assert seen.steps == list(expected)
    np.testing.assert_array_equal([x for (x,) in seen.values], [data()[step - 1][0] for step in expected])


def test_nothing_is_fetched_in_other_steps():
    seen = Seen(["x", "cost"], every_k_steps=4)
    requests = []
    spy = tpk.CallbackFactory(
        before_run=lambda self, run_context: requests.append(seen.callback.before_run(run_context))
    )
    train(seen.callback, callbacks=[spy], epochs=2)
    assert [step for step, request in enumerate(requests, 1) if request is not None] == [4, 8, 12]


@pytest.mark.parametrize("k", [1, 3])
def test_of_objectives_in_turn_a_step_counts_that_computes_all(k):
    seen = Seen(["cost_of_first", "cost_of_second"], every_k_steps=k)
    with tf.Graph().as_default():
        trainer = tpk.MultiObjectiveTrainer(update="in_turn")
        objectives = [
            Objective(lambda: v1.train.GradientDescentOptimizer(0.1), name=name, variables=name, every=every)
            for name, every in (("first", 1), ("second", 2))
        ]
        trainer.setup_graph(SIGNATURE, tpk.QueueInput(data(count=40)), two_costs, objectives)
        trainer.train(callbacks=[seen.callback], steps_per_epoch=8, max_epoch=1)
    # The second objective has its turn in every other step.
    assert seen.steps == {1: [2, 4, 6, 8], 3: [4, 6]}[k]


class TwoRuns(tpk.Trainer):
    """Each step runs the session twice."""

    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            count = v1.get_variable("count", initializer=0.0, trainable=False)
            self.doubled = tf.identity(2 * count, name="doubled")
            with tf.control_dependencies([self.doubled]):
                self.train_op = count.assign_add(1.0)

    def run_step(self):
        super().run_step()
        super().run_step()


def test_of_a_step_with_several_runs_the_first_counts():
    seen, every_third = Seen("doubled"), Seen("doubled", every_k_steps=3)
    TwoRuns().train(callbacks=[seen.callback, every_third.callback], steps_per_epoch=4, max_epoch=2)
    assert (seen.steps, [float(value) for (value,) in seen.values]) == ([*range(1, 9)], [*range(0, 32, 4)])
    assert (every_third.steps, [float(value) for (value,) in every_third.values]) == ([3, 6], [8, 20])


def test_a_callback_that_is_enabled_in_the_middle_of_an_epoch_looks_at_the_steps_from_there_on():
    seen = Seen("x", every_k_steps=2)
    gate = tpk.EnableCallbackIf(seen.callback, lambda self: 3 < self.global_step < 9)
    train(gate, epochs=2)
    assert seen.steps == [5, 6, 8]


@pytest.mark.parametrize("stop_at", [4, 8])
def test_a_resumed_training_looks_at_the_same_steps(tmp_path, stop_at):
    def run(run_dir, stop=None):
        seen = Seen(["x"], every_k_steps=3)
        end = tpk.CallbackFactory(trigger_step=lambda self: stop_if(self.global_step == stop))
        train(seen.callback, run_dir, make_input=tpk.QueueInput, epochs=2, resume="auto", callbacks=[end])
        return [(step, x.tolist()) for step, (x,) in zip(seen.steps, seen.values, strict=True)]

    def stop_if(is_time):
        if is_time:
            raise tpk.StopTraining("enough")

    whole = run(tmp_path / "whole")
    parts = run(tmp_path / "parts", stop_at) + run(tmp_path / "parts")
    assert parts == whole
    assert [step for step, _ in whole] == [3, 6, 9, 12]


def test_what_was_still_to_come_comes_after_a_restart():
    callback = ProcessTensors("x", print, every_k_steps=100)
    train(callback)
    callback.load_state_dict({"due_at": 7})
    assert callback.state_dict() == {"due_at": 7}


def test_the_function_can_end_the_training():
    def fn(value):
        if value > 0:
            raise tpk.StopTraining("seen enough")

    assert train(ProcessTensors("cost", fn)).final_step == 1


# Where they go.


def test_the_printer_writes_values_and_shortens_arrays(caplog):
    def func(x):
        tf.tile(x[:1] * 0 + 1, [50], name="long")
        return cost(x)

    caplog.set_level(logging.INFO, "tpk")
    train(TensorPrinter(["long", "distance"], every_k_steps=6), func=func)
    (line,) = [record.getMessage() for record in caplog.records if "distance" in record.getMessage()]
    assert line.startswith("step 6: long = [1. 1. ... 1. 1.], distance = [")


def test_scalars_are_printed_with_six_digits(caplog, run_steps):
    caplog.set_level(logging.INFO, "tpk")
    run_steps(TensorPrinter("cost"), 2)
    assert [line for line in caplog.messages if "cost" in line] == ["step 1: cost = 1", "step 2: cost = 0.64"]


@pytest.mark.parametrize("strategy", ["single", REPLICATED], ids=str)
def test_dumps_hold_the_values_by_the_names_that_were_given(tmp_path, strategy):
    def func(x):
        tf.cast(x, tf.bfloat16, name="scope/half")
        tf.strings.as_string(tf.cast(x, tf.int32), name="text")
        tf.identity(x[0], name="file")
        return cost(x)

    seen = Seen("x", every_k_steps=3)
    dump = DumpTensors(["x:0", "scope/half", "text", "file"], every_k_steps=3)
    train(dump, tmp_path, func=func, strategy=strategy, callbacks=[seen.callback])
    assert {path.name for path in tmp_path.glob("*DumpTensor*")} == {"DumpTensor-3.npz", "DumpTensor-6.npz"}
    with np.load(tmp_path / "DumpTensor-6.npz") as values:
        assert set(values) == {"x", "scope/half", "text", "file"}
        np.testing.assert_array_equal(values["x"], seen.values[1][0])
        np.testing.assert_allclose(values["scope/half"], seen.values[1][0], rtol=1e-2)
        assert (values["scope/half"].dtype, values["file"].shape) == (np.float32, ())
        assert values["text"].tolist() == [b"1", b"1"]


# What is refused.


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ("cots", TowerError, r"no tensor 'cots'\. Nearest: .*cost"),
        (["x", "a:b:c"], TowerError, "no tensor 'a:b:c'"),
        ("train_op", TowerError, "no tensor 'train_op'"),
        (7, ConfigError, "ProcessTensors: expected the name of a tensor, .* got 7"),
        ("w", ConfigError, r"'w:0' is a variable.*tf\.identity\(w"),
    ],
)
def test_what_is_no_tensor_is_told(tensors, error, message):
    with pytest.raises(error, match=message):
        train(ProcessTensors(tensors, print))


def test_names_are_those_of_the_tower_or_the_graph():
    seen = Seen(["cost", "tower1/cost"])
    train(seen.callback, strategy=REPLICATED)
    assert all(first != second for first, second in seen.values)


def test_without_towers_the_nearest_name_in_the_graph_is_told(run_steps):
    with pytest.raises(ConfigError, match=r"the graph has no tensor 'csot'\. Nearest: 'cost'"):
        run_steps(TensorPrinter("csot"))


def test_a_tensor_of_another_graph_is_told():
    with tf.Graph().as_default():
        other = tf.zeros([])
    with pytest.raises(ConfigError, match="a tensor of the trainer's graph"):
        train(ProcessTensors(other, print))


def test_a_tensor_that_no_step_of_the_loop_can_compute_is_told():
    """It belongs to a tower that a thread of its own trains."""
    strategy = tpk.use("async", devices=2)
    with pytest.raises(ConfigError, match=r"no step takes the data on which tower1/cost depends.*main training tower"):
        train(ProcessTensors("tower1/cost", print), strategy=strategy, make_input=tpk.QueueInput)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ProcessTensors([], print), "expected at least one tensor"),
        (lambda: ProcessTensors("x", "print"), "fn='print'.*expected a function"),
        (lambda: DumpTensors("x", every_k_steps=0), "DumpTensors: every_k_steps must be an integer, 1 or more, not 0"),
        (lambda: DumpTensors("x", every_k_steps=True), "every_k_steps must be an integer, 1 or more, not True"),
    ],
)
def test_wrong_options_are_told(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_dump_needs_a_directory():
    with pytest.raises(ConfigError, match=r"DumpTensors needs the directory of the run.*Give the trainer a run_dir"):
        train(DumpTensors("x"))
