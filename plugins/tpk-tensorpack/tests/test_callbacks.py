"""Callbacks: hooks with an underscore, and tensorpack's constructors and files."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tpk_tensorpack as tp

import tpk
from tpk.plugin.implementations import implementations_of

v1 = tf.compat.v1
_spec = importlib.util.spec_from_file_location("_training", Path(__file__).with_name("test_training.py"))
_training = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_training)
train, costs_of, POINTS = _training.train, _training.costs_of, _training.POINTS
QUIET = {"monitors": [], "extra_callbacks": []}


def implemented(callback):
    return {each.hook for each in implementations_of(callback)}


def test_only_what_is_overridden_is_called():
    class Fetching(tp.Callback):
        def _before_run(self, _):
            return None

    class Triggered(tp.Callback):
        def _trigger(self):
            pass

    class Plain(tp.Callback):
        def before_epoch(self, trainer):
            pass

    assert implemented(Fetching()) == {"before_run"}
    assert implemented(Triggered()) == {"trigger_epoch"}
    assert implemented(Plain()) == {"before_epoch"}
    assert implemented(tp.MovingAverageSummary()) == implemented(tpk.MovingAverageSummary())
    assert implemented(tp.MergeAllSummaries()) == implemented(tpk.MergeAllSummaries())
    assert implemented(tp.ProgressBar()) == implemented(tpk.ProgressBar(names=()))
    with pytest.raises(tpk.errors.HookError, match="implements no hook"):
        implementations_of(tp.Callback())


def test_what_is_not_overridden_is_called_without_a_detour():
    callback = tp.MovingAverageSummary()
    (method,) = (each.method for each in implementations_of(callback) if each.hook == "before_run")
    assert method.__func__ is tpk.MovingAverageSummary.before_run


def test_a_script_may_trigger_a_callback_by_itself():
    triggered = []

    class AtTheBeginning(tp.Callback):
        def _before_train(self):
            self.trigger()

        def _trigger(self):
            triggered.append(self.global_step)

    train([AtTheBeginning(), tp.PeriodicTrigger(AtTheBeginning(), every_k_steps=3)], **QUIET)
    assert triggered == [0, 0, 2, 3, 4]


def test_a_misspelt_hook_is_an_error():
    class Slip(tp.Callback):
        def _befor_run(self, _):
            return None

    with pytest.raises(tpk.errors.HookError, match="call it 'before_run'"):
        implementations_of(Slip())


def test_a_built_in_callback_can_be_refined(log_dir):
    class EverySecond(tp.ModelSaver):
        def _trigger(self):
            if self.epoch_num % 2 == 0:
                super()._trigger()

    saver = EverySecond()
    (trigger,) = (each for each in implementations_of(saver) if each.hook == "trigger_epoch")
    assert trigger.place == 1
    train([saver], max_epoch=4, **QUIET)
    assert sorted(path.stem for path in log_dir.glob("model-*.index")) == ["model-4", "model-8"]


def test_a_setter_of_ones_own_sets_what_it_says():
    class Doubling(tp.HyperParamSetter):
        def _get_value_to_set(self):
            return 2 * self.get_current_value()

    class Later(Doubling):
        _enable_before_train = False

    for setter, expected in ((Doubling, 8.0), (Later, 4.0)):
        options = type("Options", (), {"rate": 1.0})()
        train([setter(tp.ObjAttrParam(options, "rate"))], **QUIET)
        assert options.rate == expected


def test_a_hyperparameter_of_ones_own():
    class Stored(tp.HyperParam):
        _readable_name = "stored"
        value = 1.0

        def set_value(self, value):
            self.value = value

        def get_value(self):
            return self.value

    param = Stored()
    train([tp.HyperParamSetterWithFunc(param, lambda epoch, value: value + epoch)], **QUIET)
    assert (param.value, param.readable_name) == (4.0, "stored")


@pytest.mark.parametrize(("at_beginning", "expected"), [(True, [5.0, 5.0, 1.0]), (False, [0.0, 0.0, 1.0])])
def test_a_schedule_may_begin_with_its_first_change(at_beginning, expected):
    class Noting(tp.Callback):
        def __init__(self):
            self.rate, self.seen = 0.0, []

        def _trigger_step(self):
            self.seen.append(self.rate)

    noting = Noting()
    param = tp.ObjAttrParam(noting, "rate")
    setter = tp.ScheduledHyperParamSetter(param, [(0, 5.0), (2, 1.0)], step_based=True, set_at_beginning=at_beginning)
    train([noting, setter], max_epoch=1, steps_per_epoch=3, **QUIET)
    assert noting.seen == expected


@pytest.mark.parametrize(
    ("values", "last_k", "expected"),
    [([1, 1, 1], 1, [0.5, 0.25, 0.125]), ([3, 2, 2, 1, 1, 1], 2, [1.0, 1.0, 0.5, 0.5, 0.25, 0.25])],
)
def test_a_setter_looks_at_so_many_values_of_a_statistic(values, last_k, expected):
    class Noting(tp.Callback):
        def __init__(self):
            self.rate, self.seen = 1.0, []

        def _trigger_epoch(self):
            self.trainer.monitors.put_scalar("error", values[self.epoch_num - 1])

        def _before_epoch(self):
            self.seen.append(self.rate)

        def _after_train(self):
            self.seen.append(self.rate)

    noting = Noting()
    param = tp.ObjAttrParam(noting, "rate")
    setter = tp.StatMonitorParamSetter(param, "error", lambda rate: rate / 2, 0, last_k)
    train([noting, setter], max_epoch=len(values), steps_per_epoch=1, **QUIET)
    assert noting.seen[1:] == expected


def test_the_best_model_is_saved_under_its_name(log_dir):
    class Reporting(tp.Callback):
        values = (3.0, 1.0, math.nan, 2.0)

        def _trigger_epoch(self):
            self.trainer.monitors.put_scalar("score", self.values[self.epoch_num - 1])

    savers = [tp.MinSaver("score"), tp.MaxSaver("score"), tp.MinSaver("score", True, "best"), tp.MinSaver("no")]
    train([*savers, Reporting()], max_epoch=4, **QUIET)
    steps = {
        path.stem: int(tf.train.load_variable(str(path.with_suffix("")), "global_step"))
        for path in log_dir.glob("*.index")
    }
    assert steps == {"min-score": 4, "max-score": 2, "best": 2}
    assert [(value, path.name) for value, path in savers[0].best] == [(1.0, "min-score")]
    assert not list(log_dir.glob(".writing-*"))
    again = tp.MinSaver("score")
    again.load_state_dict(savers[0].state_dict())
    assert again.state_dict() == savers[0].state_dict()


def test_a_saver_of_some_collections(log_dir):
    train([tp.ModelSaver(var_collections="trainable_variables")], **QUIET)
    reader = tf.train.load_checkpoint(str(log_dir / "model-4"))
    assert set(reader.get_variable_to_shape_map()) == {"w"}


def test_evaluations_report_by_tensorpacks_names():
    class Largest(tp.Inferencer):
        def _get_fetches(self):
            return ["inner/largest"]

        def _setup_graph(self):
            self.tower_is_built = bool(self.trainer.towers.inference())

        def _before_inference(self):
            self.largest = -math.inf

        def _on_fetches(self, results):
            self.largest = max(self.largest, float(results[0]))

        def _after_inference(self):
            return {"largest": self.largest, "position": self.epoch_num + self.global_step + self.local_step}

    class Doubled(tp.ScalarStats):
        def _on_fetches(self, results):
            super()._on_fetches([2 * value for value in results])

        def _after_inference(self):
            return {"doubled": super()._after_inference()["double_cost"]}

    class Silent(tp.Inferencer):
        def _get_fetches(self):
            return ["cost:0"]

        def _on_fetches(self, results):
            pass

    largest = Largest()
    infs = [
        largest,
        Silent(),
        Doubled("cost", prefix="double"),
        tp.ScalarStats(["cost:0", "inner/largest"], prefix="test"),
        tp.ClassificationError("inner/predicted", "error"),
        tp.BinaryClassificationStats("inner/predicted", "label"),
    ]
    runner = tp.InferenceRunner(tp.DataFromList(POINTS, shuffle=False), infs, device=-1)
    monitors = train([runner], max_epoch=1, **QUIET).monitors
    found = {name: monitors.get_latest(name) for name in monitors.names}
    cost = found.pop("test_cost")
    assert 0 < cost < 1
    assert largest.tower_is_built
    assert found.pop("doubled") == pytest.approx(2 * cost)
    assert found == {
        "largest": 2.0,
        "position": 1 + 2 + 1,
        "test_inner/largest": 1.5,
        "error": 0.5,
        "val_precision": 1.0,
        "val_recall": 0.5,
    }


def test_a_mean_counts_small_batches_like_large_ones():
    data = [[np.full([size, 1], value, np.float32)] for size, value in ((3, 0.0), (1, 1.0))]
    runner = tp.InferenceRunner(tp.DataFromList(data, shuffle=False), tp.ScalarStats("inner/largest"))
    assert train([runner], max_epoch=1, **QUIET).monitors.get_latest("validation_inner/largest") == 0.5


def test_inferencers_that_are_not_complete():
    with pytest.raises(NotImplementedError, match="define _get_fetches"):
        tp.Inferencer().get_fetches(None)
    with pytest.raises(NotImplementedError, match="define _on_fetches"):
        tp.Inferencer().on_fetches([])
    with pytest.raises(NotImplementedError, match="does not name the tensors to fetch: define _get_fetches"):
        tp.Inferencer()._get_fetches()


def test_who_runs_it_in_several_processes():
    class Everywhere(tp.Callback):
        _chief_only = False

    assert tp.Callback().chief_only
    assert not Everywhere().chief_only
    assert not tp.RunUpdateOps().chief_only
    assert tp.RunUpdateOps().set_chief_only().chief_only
    callback = tp.Callback()
    callback.chief_only = False
    assert not callback.chief_only


def test_tensors_are_found_by_name_and_run_along():
    class Names(tp.Callback):
        def __init__(self):
            self.seen = []

        def _setup_graph(self):
            cost, _ = self.get_tensors_maybe_in_tower(["cost", "global_step:0"])
            assert cost.op.name == "cost"
            assert self.get_tensors_maybe_in_tower([cost]) == [cost]
            self.double = tf.multiply(cost, 2.0, name="double")
            assert self.double.op.name == "Names/double"

        def _before_run(self, _):
            return ["cost", "cost:0", self.double]

        def _after_run(self, _, run_values):
            self.seen.append(run_values.results)

    names = Names()
    train([names], **QUIET)
    expected = [[cost, cost, 2 * cost] for cost in costs_of(4)]
    np.testing.assert_allclose(names.seen, expected, rtol=1e-5)


def test_a_callback_of_functions():
    calls = []
    factory = tp.CallbackFactory(
        setup_graph=lambda self: calls.append(type(self).__name__),
        before_train=lambda self: calls.append("before"),
        trigger=lambda self: calls.append(self.epoch_num),
        after_train=lambda self: calls.append("after"),
    )
    train([factory, tp.PeriodicTrigger(tp.CallbackFactory(trigger=lambda _: calls.append("2nd")), 4)], **QUIET)
    assert calls == ["CallbackFactory", "before", 1, "2nd", 2, "after"]


def test_throughput_is_that_of_samples_if_their_number_is_known():
    monitors = train([tp.ThroughputTracker(), tp.ThroughputTracker(samples_per_step=2)], **QUIET).monitors
    assert set(monitors.names) == {"Throughput (steps/sec)", "Throughput (samples/sec)"}
    assert monitors.get_latest("Throughput (samples/sec)") > 0
    with pytest.raises(ValueError, match="samples_per_step must be positive"):
        tp.ThroughputTracker(0)


def test_several_runners_may_report_one_statistic():
    data = tp.DataFromList(POINTS, shuffle=False)
    runners = [tp.InferenceRunner(data, tp.ScalarStats("cost"), tower_name=name) for name in ("one", "two")]
    assert "validation_cost" in train(runners, **QUIET).monitors.names


def test_values_that_are_not_finite_end_the_training():
    """`CheckNumerics` checks variables, before or after the step, and nothing that needs feeds."""
    setter = tp.ScheduledHyperParamSetter("w", [(1, 0.1)])
    train([setter, tp.CheckNumerics()], **QUIET)
    for runs in ({"run_as_trigger": True}, {"run_as_trigger": False, "run_step": True}):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)CheckNumerics\['w'\].*(Inf|NaN)"):
            train([tp.CheckNumerics(**runs)], session_init={"w": 1e38}, **QUIET)


def test_monitors_take_what_is_reported(log_dir, capfd):
    class Keeping(tp.MonitorBase):
        def __init__(self):
            self.scalars, self.calls = {}, []

        def process_scalar(self, name, val):
            self.scalars[name] = val

        def _trigger_epoch(self):
            self.calls.append(self.epoch_num)

    keeping = Keeping()
    command = f"{sys.executable} -c \"open('sent','w').write('{{cost}}')\""
    printers = [
        tp.ScalarPrinter(enable_step=True, whitelist=["co"], blacklist=["st$"]),
        tp.ScalarPrinter(whitelist=["os"]),
        tp.ScalarPrinter(),
    ]
    monitors = [keeping, tp.SendMonitorData(command, "cost"), *printers]
    train(monitors=monitors)
    assert keeping.calls == [1, 2]
    assert float((log_dir.parent / "sent").read_text()) == pytest.approx(keeping.scalars["cost"])
    assert (log_dir / "log.log").read_text().count(" cost: ") == 4


def test_images_are_written(log_dir):
    seen, blue = [], np.array([1.0, 0, 0])
    values = {"grey": 0.5 * np.ones([4, 4]), "blue": blue * np.ones([4, 4, 3]), "row": np.ones(3)}

    class WithImages(_training.Model):
        def build_graph(self, x):
            for name, value in values.items():
                tf.constant(value, tf.float32, name=f"inner/{name}")
            return super().build_graph(x)

    callbacks = [
        tp.DumpTensorAsImage("inner/grey", scale=100),
        tp.DumpParamAsImage("inner/blue:0", "b", map_func=lambda image: [image, image[:2]]),
        tp.DumpTensors(["cost:0", "inner/grey:0"]),
        tp.ProcessTensors(["cost", "label"], lambda cost, label: seen.append(cost)),
    ]
    train(callbacks, model=WithImages(), max_epoch=1, **QUIET)
    images = {path.name: tf.io.decode_png(path.read_bytes()).numpy() for path in log_dir.glob("*.png")}
    assert {name: image.shape for name, image in images.items()} == {
        "inner.grey-ep001.png": (4, 4, 1),
        "b-ep001.png": (4, 4, 3),
        "b-ep001-1.png": (2, 4, 3),
    }
    assert np.unique(images["inner.grey-ep001.png"]).tolist() == [50]
    assert images["b-ep001.png"][0, 0].tolist() == [0, 0, 255]
    assert seen == pytest.approx(costs_of(2), rel=1e-5)
    with np.load(log_dir / "DumpTensor-1.npz") as dumped:
        assert sorted(dumped) == ["cost:0", "inner/grey:0"]
    with pytest.raises(ValueError, match="'inner/row:0' is not an image, but has shape"):
        train([tp.DumpTensorAsImage("inner/row")], model=WithImages(), **QUIET)
