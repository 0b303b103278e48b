"""Training runs: configurations, the files in the log directory, and resuming."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest
import tensorflow as tf
import tpk_tensorpack as tp
from tpk_tensorpack.callbacks.monitor import CometMLMonitor
from tpk_tensorpack.tfutils.summary import (
    add_activation_summary,
    add_moving_summary,
    add_param_summary,
    add_tensor_summary,
)
from tpk_tensorpack.utils import logger

import tpk

v1 = tf.compat.v1
POINTS = [[np.full([2, 1], n, np.float32)] for n in (1.0, 2.0)]


class Model(tp.ModelDesc):
    """The square of a variable times the input, with a known derivative."""

    def inputs(self):
        return [tf.TensorSpec([None, 1], tf.float32, "x")]

    def build_graph(self, x):
        w = v1.get_variable("w", [], initializer=v1.ones_initializer())
        cost = tf.reduce_mean(tf.square(w * x), name="cost")
        with tf.name_scope("inner"):
            tf.identity(tf.cast(x[:, 0] > 1, tf.float32), name="predicted")
            tf.reduce_max(x, name="largest")
        tf.identity(tf.ones_like(x[:, 0]), name="label")
        add_moving_summary(cost, decay=0.5)
        add_param_summary((".*", ["scalar"]))
        return cost

    def optimizer(self):
        return v1.train.GradientDescentOptimizer(0.1)


def configure(callbacks=(), **options):
    flow = tp.DataFromList(POINTS, shuffle=False)
    options = {"model": Model(), "dataflow": flow, "extra_callbacks": EXTRA(), "max_epoch": 2, **options}
    return tp.TrainConfig(callbacks=list(callbacks), **options)


def EXTRA():
    return [tp.MovingAverageSummary(), tp.MergeAllSummaries()]


def train(callbacks=(), **options):
    trainer = tp.SimpleTrainer()
    tp.launch_train_with_config(configure(callbacks, **options), trainer)
    return trainer


def costs_of(steps):
    """Return the expected cost of each step, for data that repeats."""
    w, costs = 1.0, []
    for step in range(steps):
        x = 1.0 + step % 2
        costs.append((w * x) ** 2)
        w -= 0.1 * 2 * w * x * x
    return costs


def averages_of(costs, decay=0.5):
    found, total, weight = [], 0.0, 0.0
    for cost in costs:
        total, weight = decay * total + (1 - decay) * cost, decay * weight + 1 - decay
        found.append(total / weight)
    return found


def test_what_a_training_leaves(log_dir):
    train([tp.ModelSaver()])
    averages = averages_of(costs_of(4))
    stats = json.loads((log_dir / "stats.json").read_text())
    assert [(each["epoch_num"], each["global_step"]) for each in stats] == [(1, 2), (2, 4)]
    assert [each["cost"] for each in stats] == pytest.approx([averages[1], averages[3]], rel=1e-5)
    assert set(stats[0]) == {"cost", "param-summary/w", "epoch_num", "global_step"}
    reader = tf.train.load_checkpoint(str(log_dir / "model-4"))
    assert set(reader.get_variable_to_shape_map()) == {"w", "global_step"}
    meta = v1.MetaGraphDef()
    (path,) = log_dir.glob("graph-*.meta")
    meta.ParseFromString(path.read_bytes())
    assert len(meta.collection_def["local_variables"].bytes_list.value) == 1
    assert list(log_dir.glob("events.out.tfevents.*"))
    log = (log_dir / "log.log").read_text()
    assert "cost: 0." in log
    assert "max_epoch=2 is reached" in log


class TwoRuns(tp.SimpleTrainer):
    """A trainer that runs its op twice per step."""

    def run_step(self):
        for _ in range(2):
            self.hooked_sess.run(self.train_op)


def test_each_run_of_a_step_counts_in_its_global_step(log_dir):
    trainer = TwoRuns()
    tp.launch_train_with_config(configure([tp.ModelSaver()]), trainer)
    assert trainer.global_step == 8
    stats = json.loads((log_dir / "stats.json").read_text())
    assert [(each["epoch_num"], each["global_step"]) for each in stats] == [(1, 4), (2, 8)]
    averages = averages_of(costs_of(8))
    assert [each["cost"] for each in stats] == pytest.approx([averages[3], averages[7]], rel=1e-5)
    assert int(tf.train.load_variable(str(log_dir / "model-8"), "global_step")) == 8
    (events,) = log_dir.glob("events.out.tfevents.*")
    values = [(each.step, value.tag) for each in v1.train.summary_iterator(str(events)) for value in each.summary.value]
    assert [step for step, tag in values if tag == "cost"] == [3, 4, 7, 8]


class WithImages(Model):
    """The model, with summaries of each kind in its tower."""

    def build_graph(self, x):
        with tf.name_scope("inner"):
            v1.summary.image("shown", tf.reshape(x, [1, -1, 1, 1]), max_outputs=1)
            v1.summary.scalar("size-summary", tf.size(x))
        add_activation_summary(tf.identity(x, name="output"))
        return super().build_graph(x)


def counted():
    """Return inputs from a queue of TensorFlow, which has a summary of its size."""
    number = v1.train.range_input_producer(3, shuffle=False).dequeue()
    return [tf.fill([2, 1], tf.cast(number, tf.float32))]


@pytest.mark.parametrize("towers", [None, 2])
def test_event_tags_are_those_of_tensorpack(log_dir, towers):
    trainer = tp.SimpleTrainer() if towers is None else tp.SyncMultiGPUTrainerParameterServer(towers)
    evaluation = tp.InferenceRunner(tp.TensorInput(counted, 2), tp.ScalarStats("cost"))
    data = tp.TensorInput(counted, 2)
    tp.launch_train_with_config(
        configure([evaluation], dataflow=None, data=data, model=WithImages(), max_epoch=1), trainer
    )
    (events,) = log_dir.glob("events.out.tfevents.*")
    tags = {value.tag for each in v1.train.summary_iterator(str(events)) for value in each.summary.value}
    main = "" if towers is None else "tower0/"
    assert tags == {
        "TensorInput/input_producer/fraction_of_32_full",
        f"activation-summary/{main}output-histogram",
        "activation-summary/output-rms",
        "activation-summary/output-sparsity",
        "cost",
        "inner/size",
        f"{main}inner/shown/image",
        "param-summary/w",
        "validation_cost",
    }


def test_without_a_log_directory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert logger.get_logger_dir() is None
    assert [type(each).__name__ for each in tp.DEFAULT_MONITORS()] == ["ScalarPrinter"]
    trainer = train()
    assert trainer.monitors.get_latest("cost") == pytest.approx(averages_of(costs_of(4))[-1], rel=1e-5)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_the_training_is_given_has_statistics_and_events_too(tmp_path):
    class Reporting(tp.Trainer):
        def run_step(self):
            self.monitors.put_scalar("answer", 42)

    assert logger.get_logger_dir() is None
    Reporting().train_with_defaults(steps_per_epoch=1, max_epoch=1, run_dir=tmp_path)
    (row,) = json.loads((tmp_path / "stats.json").read_text())
    assert row["answer"] == 42 and [*tmp_path.glob("events*")]


def test_a_training_goes_on_with_what_its_directory_holds(log_dir):
    train([tp.ModelSaver()])
    config = tp.AutoResumeTrainConfig(
        model=Model(), dataflow=tp.DataFromList(POINTS, shuffle=False), extra_callbacks=EXTRA(), max_epoch=3
    )
    assert config.starting_epoch == 3
    trainer = tp.SimpleTrainer()
    tp.launch_train_with_config(config, trainer)
    assert trainer.global_step == 6
    stats = json.loads((log_dir / "stats.json").read_text())
    assert [each["epoch_num"] for each in stats] == [1, 2, 3]
    # The name of its graph contains the time, and is not from a later step.
    assert not (log_dir / "kept-1").exists()
    # The averages cover only this training run.
    assert stats[-1]["cost"] == pytest.approx(averages_of(costs_of(6)[4:])[-1], rel=1e-5)


def test_statistics_of_other_epochs_are_moved_away(log_dir):
    train()
    train()
    assert [each["epoch_num"] for each in json.loads((log_dir / "stats.json").read_text())] == [1, 2]
    (moved,) = log_dir.glob("stats.json.*")
    assert len(json.loads(moved.read_text())) == 2
    assert "starting_epoch=3" in (log_dir / "log.log").read_text()


def test_auto_resume_keeps_what_is_given_if_told_so(log_dir):
    train([tp.ModelSaver()])
    options = {"dataflow": tp.DataFromList(POINTS), "session_init": {"w": 2.0}, "starting_epoch": 7}
    kept = tp.AutoResumeTrainConfig(always_resume=False, **options)
    assert (kept.starting_epoch, kept.session_init) == (7, {"w": 2.0})
    assert tp.AutoResumeTrainConfig(**options).session_init.endswith("checkpoint")


def test_the_length_of_the_data_is_that_of_an_epoch():
    flow = tp.DataFromList(POINTS)
    assert tp.TrainConfig(dataflow=flow).steps_per_epoch == 2
    assert tp.TrainConfig(data=tp.QueueInput(flow)).steps_per_epoch == 2
    assert tp.TrainConfig(dataflow=flow, steps_per_epoch=5).steps_per_epoch == 5
    with pytest.raises(tpk.errors.ConfigError, match=r"has no length.*pass it explicitly"):
        tp.TrainConfig(dataflow=tp.DataFromGenerator(lambda: iter(POINTS)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "there is no data, so steps_per_epoch is unknown"),
        ({"dataflow": [], "data": 1}, "either dataflow=.*or data="),
        ({"data": POINTS}, "expected an InputSource. Use dataflow="),
        ({"dataflow": POINTS, "model": Model}, "expected an instance of a subclass of ModelDesc"),
        ({"dataflow": POINTS, "session_creator": 1, "session_config": 2}, "either session_creator or session_config"),
    ],
)
def test_configurations_that_cannot_be(options, message):
    with pytest.raises(tpk.errors.ConfigError, match=message):
        tp.TrainConfig(**options)


def test_launches_that_cannot_be():
    with pytest.raises(tpk.errors.ConfigError, match="expected a TrainConfig"):
        tp.launch_train_with_config({}, tp.SimpleTrainer())
    with pytest.raises(tpk.errors.ConfigError, match=r"such as SimpleTrainer\(\)"):
        tp.launch_train_with_config(configure(), "SimpleTrainer")
    with pytest.raises(tpk.errors.ConfigError, match="has no model"):
        tp.launch_train_with_config(configure(model=None), tp.SimpleTrainer())
    with pytest.raises(TypeError, match="keyword arguments only"):
        tp.SimpleTrainer().train_with_defaults([])


def test_a_model_may_name_its_inputs_by_placeholders():
    class WithPlaceholders(Model):
        def inputs(self):
            return [v1.placeholder(tf.float32, [None, 1], "x")]

    model = WithPlaceholders()
    assert model.get_input_signature() == Model().get_input_signature()
    assert model.input_names == ["x"]
    trainer = train(model=model, monitors=[], extra_callbacks=[])
    assert [spec.name for spec in trainer.input_signature] == ["x"]


def test_models_that_are_not_complete():
    with pytest.raises(NotImplementedError, match="has no inputs"):
        tp.ModelDesc().inputs()
    with pytest.raises(NotImplementedError, match="has no graph"):
        tp.ModelDesc().build_graph()
    with pytest.raises(NotImplementedError, match="has no optimizer"):
        tp.ModelDesc().optimizer()
    with pytest.raises(RuntimeError, match="only while a tower is being built"):
        _ = Model().training

    class Odd(Model):
        def inputs(self):
            return ["x"]

    with pytest.raises(tpk.errors.ConfigError, match="or a placeholder"):
        Odd().get_input_signature()


def test_a_model_knows_whether_it_is_trained_and_has_one_optimizer():
    model, seen = Model(), []
    with tf.Graph().as_default():
        for training in (True, False):
            with tp.TowerContext("", is_training=training):
                seen.append(model.training)
        assert model.get_optimizer() is model.get_optimizer()
    assert seen == [True, False]


def test_a_queue_reports_how_full_it_is_but_that_of_an_evaluation_does_not():
    data = tp.QueueInput(tp.DataFromList(POINTS, shuffle=False))
    test = tp.InferenceRunner(tp.QueueInput(tp.DataFromList(POINTS, shuffle=False)), tp.ScalarStats("cost"))
    trainer = train([test], dataflow=None, data=data, monitors=[])
    names = trainer.monitors.names
    assert [name for name in names if "queue" in name] == ["QueueInput/queue_size"]
    assert 0 <= trainer.monitors.get_latest("QueueInput/queue_size") <= 50
    assert "validation_cost" in names


def test_a_noop_trainer_changes_nothing():
    trainer = tp.NoOpTrainer()
    runner = tp.InferenceRunner(tp.DataFromList(POINTS, shuffle=False), [tp.ScalarStats("cost")])
    tp.launch_train_with_config(configure([runner], monitors=[], extra_callbacks=[]), trainer)
    assert trainer.monitors.get_history("validation_cost") == [(2, 2.5), (4, 2.5)]


def test_inputs_that_a_dataflow_gets_by_default():
    flow = tp.DataFromList(POINTS)
    assert isinstance(tp.SimpleTrainer().default_input(flow), tp.FeedInput)
    assert isinstance(tp.QueueInputTrainer().default_input(flow), tp.QueueInput)
    assert isinstance(tp.QueueInputTrainer(), tp.SimpleTrainer)
    assert isinstance(tp.SimpleTrainer(), (tp.SingleCostTrainer, tp.TowerTrainer, tp.Trainer))


def test_a_trainer_of_ones_own():
    class Counting(tp.Trainer):
        def __init__(self):
            super().__init__()
            self.count = 0

        def run_step(self):
            self.count += 1

    trainer = Counting()
    trainer.train([], [], steps_per_epoch=3, max_epoch=2)
    assert trainer.count == 6


def test_summaries_are_those_of_the_main_training_tower():
    with tf.Graph().as_default() as graph:
        cost = tf.constant(1.0, name="cost")
        with tp.TowerContext("", is_training=False):
            assert add_moving_summary(cost) == []
            add_param_summary((".*", ["rms"]))
            add_tensor_summary(cost, ["scalar"])
            assert graph.get_collection(v1.GraphKeys.SUMMARIES) == []
        (average,) = add_moving_summary([cost], collection=None, decay=0.5)
        assert graph.get_collection("MOVING_SUMMARY_OPS") == []
        with v1.Session() as session:
            session.run(v1.local_variables_initializer())
            assert session.run([average, average.op])[0] == 1.0


def test_summaries_that_cannot_be():
    with tf.Graph().as_default():
        vector = tf.ones([2], name="vector")
        with pytest.raises(ValueError, match="takes scalars, but 'vector:0' has shape"):
            add_moving_summary(vector)
        with pytest.raises(TypeError, match="'decai'"):
            add_moving_summary(tf.reduce_sum(vector), decai=0.9)
        with pytest.raises(TypeError, match="'collection'"):
            add_param_summary((".*", ["rms"]), collection=[])


def test_images_are_summarized_as_opencv_has_them():
    image = np.zeros([1, 2, 2, 3], np.uint8)
    image[..., 0] = 255  # blue
    summary = tp.summary.create_image_summary("image", image)
    decoded = tf.io.decode_png(summary.value[0].image.encoded_image_string).numpy()
    assert decoded[0, 0].tolist() == [0, 0, 255]
    assert tp.summary.create_scalar_summary("a", 1).value[0].simple_value == 1
    with pytest.raises(ValueError, match="four dimensions"):
        tp.summary.create_image_summary("image", image[0])


def test_what_is_gone_says_what_there_is_instead():
    with pytest.raises(NotImplementedError, match="tpk-mlflow"):
        CometMLMonitor()
    with pytest.raises(NotImplementedError, match="CheckNumerics"):
        tp.TFLocalCLIDebugHook()


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("callbacks.steps", "MaintainStepCounter", "self.global_step"),
        ("graph_builder.distributed", "DistributedReplicatedBuilder", "DistributedTrainerReplicated"),
        ("graph_builder.training", "SyncMultiGPUReplicatedBuilder", "SyncMultiGPUTrainerReplicated"),
        ("graph_builder.utils", "GradientPacker", "allreduce_grads"),
        ("input_source.input_source", "EnqueueThread", "QueueInput"),
        ("models.shape_utils", "StaticDynamicShape", "tensor.shape"),
        ("predict.concurrency", "PredictorWorkerThread", "MultiThreadAsyncPredictor"),
        ("utils.concurrency", "OrderedContainer", "MultiProcessMapData"),
    ],
)
def test_what_is_of_the_implementation_says_what_to_use(module, name, instead):
    with pytest.raises(ImportError, match=rf"tensorpack.{module}.{name} is an internal name.* Use {instead}"):
        exec(f"from tpk_tensorpack.{module} import {name}")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        importlib.import_module(f"tpk_tensorpack.{module}").nothing  # noqa: B018


def test_a_star_import_has_tensorpacks_names():
    names = {}
    exec("from tpk_tensorpack import *", names)
    assert names["logger"] is logger
    for name in ("Callback", "Conv2D", "BatchData", "QueueInput", "TrainConfig", "argscope", "get_rng", "tfv1"):
        assert names[name] is getattr(tp, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing_like_this'"):
        tp.nothing_like_this  # noqa: B018
