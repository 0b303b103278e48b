"""Interfaces of tensorpack 0.1 to 0.8; no old tensorpack runs here to compare with."""

from __future__ import annotations

import inspect
import os
import pickle

import numpy as np
import pytest
import tensorflow as tf
import tpk_tensorpack as tp
from tpk_distributed.launch.tasks import reserved_cluster
from tpk_tensorpack.train import (
    DistributedReplicatedTrainer,
    FeedfreeTrainerBase,
    MultiGPUTrainerBase,
    SimpleFeedfreeTrainer,
    SingleCostFeedfreeTrainer,
)

import tpk
from tpk.errors import ConfigError

v1 = tf.compat.v1
POINTS = [[np.full([2, 1], n, np.float32)] for n in (1.0, 2.0)]


class Model(tp.ModelDesc):
    """The square of a variable times the input."""

    def _get_inputs(self):
        return [tp.InputDesc(tf.float32, (None, 1), "x")]

    def _build_graph(self, inputs):
        (x,) = inputs
        self.built = getattr(self, "built", 0) + 1
        w = v1.get_variable("w", [], initializer=v1.ones_initializer())
        tf.multiply(x, w, name="y")
        self.cost = tf.reduce_mean(tf.square(w * x), name="cost")

    def _get_optimizer(self):
        return v1.train.GradientDescentOptimizer(0.1)


class Weights(tp.Callback):
    """The weight after each epoch."""

    def __init__(self):
        self.seen = []

    def _trigger_epoch(self):
        self.seen.append(weight_of(self.trainer))


def weight_of(trainer):
    (w,) = [each for each in trainer.graph.get_collection("variables") if each.op.name == "w"]
    return float(trainer.sess.run(w))


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def flow():
    return tp.DataFromList(POINTS, shuffle=False)


def configure(**options):
    weights = Weights()
    options = {"dataflow": flow(), "model": Model(), "max_epoch": 2, "monitors": [], "extra_callbacks": [], **options}
    return tp.TrainConfig(callbacks=[weights, *options.pop("callbacks", ())], **options), weights


def expected(epochs, batches=((1.0,), (2.0,))):
    """Return the weight after each epoch of steps on these batches, each a list of the towers' inputs."""
    w, seen = 1.0, []
    for _ in range(epochs):
        for batch in batches:
            w -= 0.1 * float(np.mean([2 * w * x * x for x in batch]))
        seen.append(w)
    return pytest.approx(seen, rel=1e-5)


@pytest.mark.parametrize("trainer", [tp.SimpleTrainer, tp.QueueInputTrainer])
def test_a_trainer_is_made_of_its_config(trainer):
    config, weights = configure()
    made = trainer(config)
    assert (made.config, made.model) == (config, config.model)
    made.train()
    assert weights.seen == expected(2)
    assert made.global_step == 4


def test_a_trainer_takes_what_it_took():
    config, weights = configure()
    queue = tf.queue.FIFOQueue(7, [tf.float32])
    trainer = tp.QueueInputTrainer(config, queue, predict_tower=-1)
    assert config.data.queue is queue
    assert config.predict_tower == [-1]
    trainer.train()
    assert weights.seen == expected(2)
    with pytest.raises(ConfigError, match="input_queue= is for a data flow"):
        tp.QueueInputTrainer(config=config, input_queue=queue)


@pytest.mark.parametrize(
    "make",
    [
        lambda config: tp.SyncMultiGPUTrainerParameterServer(config, ps_device="cpu", gpu_prefetch=True),
        lambda config: tp.SyncMultiGPUTrainerReplicated(config, gpu_prefetch=False),
        tp.SyncMultiGPUTrainer,
    ],
)
def test_towers_are_those_of_the_config(make):
    config, weights = configure(tower=[0, 1], steps_per_epoch=2)
    trainer = make(config)
    assert list(trainer.devices) == [0, 1]
    trainer.train()
    assert weights.seen == expected(2, [(1.0, 2.0)] * 2)
    assert trainer.vs_name_for_predictor == ""


def test_asynchronous_towers():
    config, weights = configure(nr_tower=2, steps_per_epoch=2)
    trainer = tp.AsyncMultiGPUTrainer(config, scale_gradient=False)
    assert repr(trainer.strategy) == "AsyncStrategy(devices=[0, 1], scale_gradient=False)"
    trainer.train()
    assert weights.seen[-1] < 1


def test_a_worker_is_made_of_its_config():
    with reserved_cluster(workers=1, ps=1) as reserved:
        cluster = tf.train.ClusterSpec({"ps": list(reserved.ps), "worker": list(reserved.workers)})
        server = v1.train.Server(cluster, "worker", 0, start=False)
    config, _ = configure(nr_tower=2)
    trainer = DistributedReplicatedTrainer(config, server)
    assert (trainer.server, list(trainer.devices), trainer.config) == (server, [0, 1], config)


def test_configurations_take_what_they_took():
    config = tp.TrainConfig(flow(), None, Model(), None, None, None, None, None, None, 1, 5, 3, 2)
    assert (config.steps_per_epoch, config.max_epoch, config.tower, config.predict_tower) == (5, 3, [0, 1], [0])
    config.tower = [3]
    assert (config.tower, config.nr_tower) == ([3], 1)
    config.nr_tower = 3
    assert config.tower == [0, 1, 2]
    assert tp.TrainConfig(steps_per_epoch=3, predict_tower=[1, -1]).predict_tower == [1, -1]
    data = flow()
    config = tp.TrainConfig(dataset=data, step_per_epoch=7, callbacks=tp.callbacks.Callbacks([tp.ModelSaver()]))
    assert (config.dataflow, config.steps_per_epoch, len(config.callbacks)) == (data, 7, 1)
    optimizer = v1.train.GradientDescentOptimizer(0.2)
    config, weights = configure(optimizer=optimizer, max_epoch=1)
    tp.SimpleTrainer(config).train()
    assert weights.seen == pytest.approx([(1 - 0.2 * 2) * (1 - 0.2 * 8)], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nr_tower": 2, "tower": [0]}, "both nr_tower and tower"),
        ({"dataset": POINTS}, "dataflow= and dataset=, which mean the same"),
        ({"tower": []}, "expected GPU numbers"),
        ({"predict_tower": "0"}, "expected GPU numbers"),
    ],
)
def test_configurations_that_cannot_be(options, message):
    with pytest.raises(ConfigError, match=message):
        configure(**options)


def test_configurations_that_are_not_complete():
    with pytest.raises(ConfigError, match="there is no data, so"):
        tp.TrainConfig()
    with pytest.raises(TypeError, match="positional arguments"):
        tp.TrainConfig(*[None] * 16)
    for missing in ("model", "dataflow"):
        config, _ = configure(**{missing: None, "steps_per_epoch": 1})
        with pytest.raises(ConfigError, match=f"the TrainConfig has no {missing}"):
            tp.SimpleTrainer(config).train()
        with pytest.raises(ConfigError, match=f"the TrainConfig has no {missing}"):
            FeedfreeTrainerBase(config).train()


class Predictions(tp.Callback):
    """Record the outputs of predictors, and their towers."""

    def _setup_graph(self):
        trainer = self.trainer
        self.predictors = trainer.get_predictors(["x"], ["y"], 3)
        self.predictors += [trainer.get_predictor(["x"], ["y"], tower=1), trainer.get_predictor(["x"], ["y"], 2)]

    def _trigger_epoch(self):
        self.weight = weight_of(self.trainer)
        self.said = [float(predictor(POINTS[1][0])[0][0, 0]) for predictor in self.predictors]
        self.towers = [predictor.output_tensors[0].name.partition("/")[0] for predictor in self.predictors]


def test_predictors_are_on_the_predict_towers():
    predictions = Predictions()
    config, _ = configure(nr_tower=2, predict_tower=[1, -1], callbacks=[predictions], steps_per_epoch=1, max_epoch=1)
    tp.SyncMultiGPUTrainerReplicated(config).train()
    assert predictions.said == pytest.approx([2 * predictions.weight] * 5)
    gpu, cpu = "tower-pred-1", "tower-pred-cpu"
    assert predictions.towers == [gpu, cpu, gpu, cpu, gpu]


def test_a_trainer_of_ones_own_takes_older_descriptions_of_inputs():
    class Trainer(tp.TowerTrainer):
        def __init__(self, data, model):
            super().__init__()
            self.register_callback(data.setup(model.get_inputs_desc()))
            self.set_tower_func(tp.tfutils.tower.TowerFuncWrapper(model.build_graph, model.get_inputs_desc()))
            with tp.TowerContext("", is_training=True):
                cost = self.tower_func(*data.get_input_tensors())
            self.train_op = model.get_optimizer().minimize(cost)

    trainer = Trainer(tp.QueueInput(flow()), Model())
    weights = Weights()
    trainer.train_with_defaults(callbacks=[weights], steps_per_epoch=1, max_epoch=1)
    assert weights.seen == pytest.approx([0.8])


def test_a_graph_is_set_up_with_older_descriptions_of_inputs():
    model, weights = Model(), Weights()
    trainer = tp.SimpleTrainer()
    trainer.setup_graph(
        inputs_desc=model.get_inputs_desc(),
        input=tp.QueueInput(flow()),
        get_cost_fn=model.build_graph,
        get_opt_fn=model.get_optimizer,
    )
    trainer.train_with_defaults(callbacks=[weights], steps_per_epoch=2, max_epoch=2)
    assert weights.seen == expected(2)


def test_older_models():
    model = Model()
    assert model.get_inputs_desc() == [tp.InputDesc(tf.float32, (None, 1), "x")] == model.get_input_signature()
    (description,) = pickle.loads(pickle.dumps(model.get_inputs_desc()))
    assert (description.type, description.shape.as_list(), description.name) == (tf.float32, [None, 1], "x")
    assert model.input_names == ["x"]
    with pytest.raises(ConfigError, match=r"set self\.cost"):
        model.get_cost()
    with tp.TowerContext("", is_training=True):
        cost = model.build_graph([tp.InputDesc(tf.float32, (None, 1), "x").build_placeholder()])
    assert model.get_cost() is cost
    assert isinstance(model.get_optimizer(), v1.train.GradientDescentOptimizer)

    class Later(Model):
        def _build_graph(self, inputs):
            return tf.reduce_sum(inputs[0])

    assert Later().build_graph(tf.ones([2, 1])).name == "Sum:0"


def test_an_older_model_predicts():
    config = tp.PredictConfig(model=Model(), session_init=tp.get_model_loader({"w": 3.0}), output_names=["y"])
    assert tp.OfflinePredictor(config)(POINTS[1][0])[0].tolist() == [[6.0], [6.0]]


class Twice(FeedfreeTrainerBase):
    """Take two steps in one, on preprocessed input."""

    def __init__(self, config):
        self._input_source = tp.QueueInput(config.dataflow)
        super().__init__(config)

    def _setup(self):
        super()._setup()
        self.build_train_tower()
        optimizer = self.model.get_optimizer()
        first = optimizer.minimize(self.model.cost)
        with tf.control_dependencies([first]):
            (w,) = v1.trainable_variables()
            self.train_op = w.assign(w.read_value() * 2)


def test_a_feedfree_trainer_refuses_what_is_fed():
    config, _ = configure(dataflow=None, data=tp.FeedInput(tp.DataFromList(POINTS)), steps_per_epoch=1)
    with pytest.raises(ConfigError, match=r"does not support input with feeds, such as FeedInput"):
        SimpleFeedfreeTrainer(config).train()


def test_a_trainer_that_builds_its_tower():
    class Own(Twice):
        def run_step(self):
            self.hooked_sess.run(self.train_op)

    config, weights = configure(max_epoch=1)
    trainer = Own(config)
    trainer.train()
    w = 1.0
    for x in (1.0, 2.0):
        w = 2 * (w - 0.1 * 2 * w * x * x)
    assert weights.seen == pytest.approx([w], rel=1e-5)
    assert len(trainer.towers) == 1


def test_feedfree_trainers():
    config, weights = configure(dataflow=None, data=tp.QueueInput(flow()))
    trainer = SimpleFeedfreeTrainer(config)
    assert isinstance(trainer, SingleCostFeedfreeTrainer)
    trainer.train()
    assert weights.seen == expected(2)


class OnTwo(MultiGPUTrainerBase, SingleCostFeedfreeTrainer):
    """Average the costs of towers."""

    def _setup(self):
        super()._setup()

        def build():
            self.build_train_tower()
            return self.model.get_cost(), tp.get_current_tower_context().index

        built = MultiGPUTrainerBase.build_on_multi_tower(self.config.tower, build)
        self.indices = [index for _, index in built]
        cost = tf.add_n([cost for cost, _ in built]) / len(built)
        self.train_op = self.model.get_optimizer().minimize(cost)


def test_towers_that_a_trainer_builds_itself():
    config, weights = configure(nr_tower=2, steps_per_epoch=2)
    trainer = OnTwo(config)
    trainer.train()
    assert trainer.indices == [0, 1]
    assert config.model.built == 2
    assert weights.seen == expected(2, [(1.0, 2.0)] * 2)


def test_towers_with_variables_of_their_own(graph):
    def build():
        return v1.get_variable("v", []).op.name

    build_on = MultiGPUTrainerBase.build_on_multi_tower
    assert build_on([0, 1], build, var_strategy="replicate") == ["v", "tower1/v"]
    with v1.variable_scope("other"):
        assert build_on([0, 1], build) == ["other/v", "other/v"]
    with tf.Graph().as_default():
        assert build_on([0, 1], build, None, "replicate", ["a", "b"]) == ["a/v", "b/v"]
    with pytest.raises(ConfigError, match="vs_names= is for"):
        build_on([0], build, vs_names=["a"])
    with pytest.raises(ConfigError, match="var_strategy must be one of 'shared', 'replicate'"):
        build_on([0], build, var_strategy="mine")
    with pytest.raises(ConfigError, match="2 towers, 1 devices and 2 variable scopes"):
        build_on([0, 1], build, devices=["/cpu:0"])


def test_todays_signatures_stay():
    assert list(inspect.signature(tp.SimpleTrainer).parameters) == []
    assert list(inspect.signature(tp.SyncMultiGPUTrainerReplicated).parameters) == ["gpus", "average", "mode"]
    assert tp.SimpleTrainer().config is None


def test_trainers_of_tpk_take_no_config_of_tensorpack():
    config, _ = configure()
    with pytest.raises(ConfigError, match="TrainConfig object"):
        tpk.SimpleTrainer(config)


def test_older_functions_of_tensors():
    functions = tp.symbolic_functions
    x = tf.reshape(tf.range(12.0), [2, 3, 2])
    z = functions.shapeless_placeholder(x, [0], "z")
    assert z.shape.as_list() == [None, 3, 2]
    flat = functions.batch_flatten(z)
    assert flat.shape.as_list() == [None, 6]
    unknown = functions.batch_flatten(functions.shapeless_placeholder(x, [0, 1], "y"))
    rate = functions.get_scalar_var("rate", 0.5, summary=True)
    (written,) = v1.get_collection(v1.GraphKeys.SUMMARIES)
    assert (written.op.name, rate.trainable) == ("rate-summary", False)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assert session.run(flat).tolist() == session.run(unknown).tolist() == [[*range(6)], [*range(6, 12)]]
        assert session.run(flat, {z: np.ones([1, 3, 2])}).tolist() == [[1] * 6]
        assert session.run(rate) == 0.5
    with pytest.raises(ValueError, match="dimension 0 of shape"):
        functions.shapeless_placeholder(z, 0, "again")


def test_a_star_import_has_older_names():
    names = {}
    exec("from tpk_tensorpack import *", names)
    for name in ("InputDesc", "FeedfreeTrainerBase", "MultiGPUTrainerBase", "DistributedReplicatedTrainer"):
        assert name in names
    with names["change_gpu"]("0"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    staged = names["StagingInputWrapper"](tp.QueueInput(flow()), ["/gpu:0"])
    assert isinstance(staged, tp.StagingInput)
