"""What makes the built-in plugins that need options; one without an entry here is made without any."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Callable

import attrs
import tensorflow as tf

import tpk
from tpk.graph.optimizers.weight_averages import MovingAverageOptimizer
from tpk.testing.trainings import TinyModel, batches

v1 = tf.compat.v1


@attrs.frozen
class Entry:
    """How one plugin is checked.

    Attributes:
        make: takes a directory for files, and makes the plugin.
        options: further ones of the check.
        skip: the names of the rules that it does not have to keep, and the reasons.
    """

    make: Callable
    options: dict = attrs.field(factory=dict)
    skip: dict = attrs.field(factory=dict)


class Averaged(TinyModel):
    def optimizer(self):
        return MovingAverageOptimizer(super().optimizer(), 0.5)


class WithMovingSummary(TinyModel):
    def build_graph(self, x, row, label):
        cost = super().build_graph(x, row, label)
        tpk.add_moving_summary(cost)
        return cost


class Counting(v1.train.SessionRunHook):
    def before_run(self, run_context):
        return v1.train.SessionRunArgs("cost:0")


class Waiting(threading.Thread):
    def __init__(self):
        super().__init__(name="waiting")
        self.is_over = threading.Event()

    def run(self):
        self.is_over.wait()

    def stop(self):
        self.is_over.set()


def evaluating():
    return tpk.InferenceRunner(tpk.FeedInput(batches(2)), [tpk.ScalarStats("cost"), tpk.ClassificationError()])


def decay():
    w = next(variable for variable in v1.trainable_variables() if variable.op.name == "w")
    return v1.assign(w, w * 0.99)


def report_epoch(callback):
    callback.trainer.monitors.put_scalar("epochs", callback.epoch_num)


CALLBACKS = {
    "CallbackFactory": Entry(lambda directory: tpk.CallbackFactory(trigger_epoch=report_epoch)),
    "DataParallelInferenceRunner": Entry(
        lambda directory: tpk.DataParallelInferenceRunner(batches(2), tpk.ScalarStats("cost"), devices=[0])
    ),
    "DumpParamAsImage": Entry(lambda directory: tpk.DumpParamAsImage("w")),
    "DumpTensorAsImage": Entry(
        lambda directory: tpk.DumpTensorAsImage("logits", map_func=lambda logits: logits[None, :, :, None])
    ),
    "DumpTensors": Entry(lambda directory: tpk.DumpTensors(["cost", "logits"])),
    "EarlyStopping": Entry(lambda directory: tpk.EarlyStopping("error", patience=2, mode="max")),
    "EnableCallbackIf": Entry(
        lambda directory: tpk.EnableCallbackIf(tpk.MinSaver("cost", checkpoint_dir=directory / "best"), lambda _: True)
    ),
    "HostMemoryTracker": Entry(
        lambda directory: tpk.HostMemoryTracker(), {"measures": ["host_memory_gb", "host_memory_free_gb"]}
    ),
    "HookToCallback": Entry(lambda directory: tpk.HookToCallback(Counting())),
    "HyperParamSetterWithFunc": Entry(
        lambda directory: tpk.HyperParamSetterWithFunc("learning_rate", lambda epoch, value: value / 2)
    ),
    "HumanHyperParamSetter": Entry(lambda directory: tpk.HumanHyperParamSetter("learning_rate")),
    "InferenceRunner": Entry(lambda directory: evaluating()),
    "MaxSaver": Entry(lambda directory: tpk.MaxSaver("error", checkpoint_dir=directory / "best")),
    "MaxTime": Entry(lambda directory: tpk.MaxTime(3600)),
    "MinSaver": Entry(lambda directory: tpk.MinSaver("cost", checkpoint_dir=directory / "best")),
    "ModelSaver": Entry(lambda directory: tpk.ModelSaver(checkpoint_dir=directory / "saved")),
    "MovingAverageSummary": Entry(lambda directory: tpk.MovingAverageSummary(), {"model": WithMovingSummary}),
    "PeriodicCallback": Entry(lambda directory: tpk.PeriodicCallback(evaluating(), every_k_epochs=2)),
    "PeriodicTrigger": Entry(lambda directory: tpk.PeriodicTrigger(evaluating(), every_k_steps=5)),
    "ProcessTensors": Entry(lambda directory: tpk.ProcessTensors(["cost"], lambda cost: None)),
    "RunOp": Entry(lambda directory: tpk.RunOp(decay)),
    "ScheduledHyperParamSetter": Entry(
        lambda directory: tpk.ScheduledHyperParamSetter("learning_rate", [(1, 0.05), (3, 0.01)], interp="linear")
    ),
    "SendStat": Entry(lambda directory: tpk.SendStat("true {cost}")),
    "SessionRunTimeout": Entry(lambda directory: tpk.SessionRunTimeout(60_000)),
    "SimpleMovingAverage": Entry(lambda directory: tpk.SimpleMovingAverage(["cost"], 3)),
    "StartProcOrThread": Entry(lambda directory: tpk.StartProcOrThread(Waiting())),
    "StatMonitorParamSetter": Entry(
        lambda directory: tpk.StatMonitorParamSetter(
            "learning_rate", "cost", lambda value: value / 2, threshold=10, last_k=2
        )
    ),
    "TensorPrinter": Entry(lambda directory: tpk.TensorPrinter(["cost"])),
    "Watchdog": Entry(lambda directory: tpk.Watchdog(600)),
    "WithAveragedWeights": Entry(lambda directory: tpk.WithAveragedWeights(evaluating()), {"model": Averaged}),
}
"""Name to how it is checked."""


def events_in(run_dir):
    return [
        [event.step, [[value.tag, repr(value)] for value in event.summary.value]]
        for path in sorted(run_dir.glob("events.out.tfevents.*"))
        for event in v1.train.summary_iterator(str(path))
        if event.HasField("summary")
    ]


def rows_of_json(run_dir):
    rows = map(json.loads, (run_dir / "stats.jsonl").read_text().splitlines())
    return [{name: value for name, value in row.items() if name != "time"} for row in rows]


def rows_of_csv(run_dir):
    with (run_dir / "stats.csv").open(newline="") as file:
        return [{name: value for name, value in row.items() if name != "time"} for row in csv.DictReader(file)]


MONITORS = {
    "TFEventWriter": Entry(lambda directory: tpk.TFEventWriter(), {"read": events_in}),
    "JSONWriter": Entry(lambda directory: tpk.JSONWriter(), {"read": rows_of_json}),
    "CSVWriter": Entry(lambda directory: tpk.CSVWriter(), {"read": rows_of_csv}),
}

# What optimizers make of the gradients of each is tested in `tests/strategies/test_truth.py`.
OF_TWO = {"num_towers": 2, "optimizers": ["adam"]}

STRATEGIES = {
    "replicated": Entry(lambda directory: tpk.ReplicatedStrategy(devices=2), OF_TWO),
    "parameter_server": Entry(lambda directory: tpk.ParameterServerStrategy(devices=2), OF_TWO),
    "async": Entry(lambda directory: tpk.AsyncStrategy(devices=2), OF_TWO),
}


def two_objectives(directory):
    model = TinyModel()

    def costs(*inputs):
        cost = model.build_graph(*inputs)
        return {"first": cost, "second": tf.multiply(2.0, cost)}

    trainer = tpk.MultiObjectiveTrainer()
    trainer.setup_graph(
        model.get_input_signature(),
        tpk.FeedInput(batches(50)),
        costs,
        [
            tpk.Objective(model.get_optimizer, "first", variables="w"),
            tpk.Objective(lambda: v1.train.AdamOptimizer(0.1), "second", variables="table", every=2),
        ],
    )
    return trainer


TRAINERS = {
    "MultiObjectiveTrainer": Entry(two_objectives),
    "AsyncMultiGPUTrainer": Entry(lambda directory: tpk.AsyncMultiGPUTrainer(2)),
    "SyncMultiGPUTrainerReplicated": Entry(lambda directory: tpk.SyncMultiGPUTrainerReplicated(2)),
}

NEEDS_GPU = "it is an error without a GPU"

ELSEWHERE = {
    "LRFinder": "it is for a training of its own, and refuses checkpoints",
    "GPUUtilizationTracker": NEEDS_GPU,
    "GPUMemoryTracker": NEEDS_GPU,
}
"""What cannot be checked in this way, and why."""
