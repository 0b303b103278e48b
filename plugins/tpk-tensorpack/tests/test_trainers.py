"""Trainers on several devices, builders of towers, and custom trainers."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tpk_tensorpack as tp
from tpk_distributed.launch.tasks import reserved_cluster
from tpk_tensorpack.graph_builder.utils import merge_grad_list, split_grad_list
from tpk_tensorpack.tfutils.distributed import get_distributed_session_creator
from tpk_tensorpack.tfutils.tower import PredictTowerContext, TowerContext, TowerFunc, TrainTowerContext
from tpk_tensorpack.train.interface import apply_default_prefetch

import tpk
from tpk.errors import ConfigError, PluginError, TowerError

v1 = tf.compat.v1
STEPS = 3
SIGNATURE = [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None], tf.float32, "y")]


def batches():
    rng = np.random.RandomState(0)
    for _ in range(STEPS * 2):
        x = rng.randn(4, 3).astype(np.float32)
        yield [x, x.sum(1)]


def pairs_of_batches():
    found = list(batches())
    return [[np.concatenate(each) for each in zip(*found[i : i + 2], strict=True)] for i in range(0, len(found), 2)]


class Model(tp.ModelDesc):
    """Linear regression."""

    def __init__(self, make_optimizer=lambda: v1.train.MomentumOptimizer(0.1, 0.9)):
        self.make_optimizer = make_optimizer

    def inputs(self):
        return SIGNATURE

    def build_graph(self, x, y):
        w = v1.get_variable("w", [3, 1], initializer=v1.constant_initializer(0.5))
        tf.identity(tf.squeeze(x @ w, 1), name="prediction")
        return tf.reduce_mean((tf.squeeze(x @ w, 1) - y) ** 2, name="cost")

    def optimizer(self):
        return self.make_optimizer()


class Variables(tp.Callback):
    """Record the values of all variables at the end, by name."""

    def _after_epoch(self):
        every = v1.global_variables() + v1.local_variables()
        self.values = {each.op.name: value for each, value in zip(every, self.trainer.sess.run(every), strict=True)}


def train(trainer, data=None, model=None, callbacks=(), **options):
    taken = Variables()
    flow = tp.DataFromList(list(batches() if data is None else data), shuffle=False)
    config = tp.TrainConfig(
        model=model or Model(),
        dataflow=flow,
        callbacks=[*callbacks, taken],
        extra_callbacks=[],
        monitors=[],
        steps_per_epoch=STEPS,
        max_epoch=1,
        **options,
    )
    with tf.Graph().as_default():
        tp.launch_train_with_config(config, trainer() if callable(trainer) else trainer)
    return taken.values


@pytest.fixture(scope="module")
def one_tower():
    """Return the variables after one tower has trained on merged pairs of batches."""
    return train(tp.SimpleTrainer, pairs_of_batches())


class Halved(tp.SyncMultiGPUTrainerReplicated):
    """Double the cost and halve the gradients."""

    def _make_get_grad_fn(self, input, get_cost_fn, get_opt_fn):
        get_gradients = super()._make_get_grad_fn(input, get_cost_fn, get_opt_fn)
        return lambda: [(gradient * 0.5 * 2, variable) for gradient, variable in get_gradients()]


TWO_TOWERS = {
    "replicated": lambda: tp.SyncMultiGPUTrainerReplicated(2),
    "replicated, listed": lambda: tp.SyncMultiGPUTrainerReplicated([0, 1], mode="nccl"),
    "parameter server": lambda: tp.SyncMultiGPUTrainerParameterServer(2, ps_device="gpu"),
    "default": lambda: tp.SyncMultiGPUTrainer([0, 1]),
    "own gradients": lambda: Halved(2),
}


@pytest.mark.parametrize("name", TWO_TOWERS)
def test_two_towers_train_as_one_does_on_both_batches(name, one_tower):
    values = train(TWO_TOWERS[name])
    for variable in ("w", "w/Momentum"):
        np.testing.assert_allclose(values[variable], one_tower[variable], rtol=1e-5, err_msg=variable)
    assert values["global_step"] == STEPS
    if "tower1/w" in values:
        np.testing.assert_array_equal(values["tower1/w"], values["w"])


@pytest.mark.parametrize(("gpus", "devices"), [(2, {0, 1}), (3, {0})])
def test_variables_are_on_the_devices_of_at_most_two_towers(gpus, devices):
    class TwoVariables(Model):
        def build_graph(self, x, y):
            return super().build_graph(x, y) + v1.get_variable("bias", [], initializer=v1.zeros_initializer())

    trainer = tp.SyncMultiGPUTrainerParameterServer(gpus)
    train(trainer, [*batches(), *batches()], TwoVariables())
    variables = trainer.graph.get_collection("trainable_variables")
    assert {tf.DeviceSpec.from_string(each.device.upper()).device_index for each in variables} == devices


def test_gradients_may_be_summed_up():
    summed = train(lambda: tp.SyncMultiGPUTrainerReplicated(2, average=False))
    doubled = Model(lambda: v1.train.MomentumOptimizer(0.2, 0.9))
    np.testing.assert_allclose(summed["w"], train(tp.SimpleTrainer, pairs_of_batches(), doubled)["w"], rtol=1e-5)


def test_variables_are_called_as_in_tensorpack_and_those_of_adam_advance_once_a_step(log_dir):
    adam = Model(lambda: v1.train.AdamOptimizer(0.1))
    values = train(lambda: tp.SyncMultiGPUTrainerReplicated(2), model=adam, callbacks=[tp.ModelSaver()])
    saved = {"w", "w/Adam", "w/Adam_1", "apply_gradients/beta1_power", "apply_gradients/beta2_power", "global_step"}
    assert {name for name, _ in tf.train.list_variables(str(log_dir))} == saved
    assert {"tower1/w", "tower1/w/Adam", "tower1/w/Adam_1"} <= set(values) - saved
    assert values["apply_gradients/beta1_power"] == pytest.approx(0.9 ** (STEPS + 1))
    np.testing.assert_allclose(values["w"], train(tp.SimpleTrainer, pairs_of_batches(), adam_again())["w"], rtol=1e-4)


def adam_again():
    return Model(lambda: v1.train.AdamOptimizer(0.1))


class Counted(Model):
    """Counts how often its towers run."""

    def __init__(self):
        super().__init__()
        self.runs = []

    def build_graph(self, x, y):
        def count(x):
            self.runs.append(x)  # in one of several threads
            return x

        counted = tf.numpy_function(count, [x], tf.float32)
        counted.set_shape(x.shape)
        return super().build_graph(counted, y)


def test_each_asynchronous_tower_runs_once_in_a_step():
    model = Counted()
    train(lambda: tp.AsyncMultiGPUTrainer(2), model=model)
    assert len(model.runs) == 2 * STEPS


class Predictions(tp.Callback):
    """Predictors on devices."""

    def __init__(self, *devices):
        self.devices = devices

    def _setup_graph(self):
        self.predictors = [self.trainer.get_predictor(["x"], ["prediction"], device=each) for each in self.devices]
        self.contexts = [(each.ns_name, each.vs_name) for each in self.trainer.towers.inference()]

    def _after_epoch(self):
        self.predicted = [predict(np.eye(3))[0] for predict in self.predictors]
        with pytest.raises(ValueError, match="takes 1 inputs"):
            self.predictors[0]()


@pytest.mark.parametrize(
    ("trainer", "contexts"),
    [
        (lambda: tp.SyncMultiGPUTrainerReplicated(2), ["", "tower1", "", ""]),
        (lambda: tp.SyncMultiGPUTrainer(2), [""] * 4),
        (tp.SimpleTrainer, [""] * 4),
    ],
)
def test_predictors_are_on_devices_and_have_the_variables_there(trainer, contexts):
    callback = Predictions(0, 1, -1, 5, 1)
    values = train(trainer, callbacks=[callback])
    names = ["tower-pred-0", "tower-pred-1", "tower-pred-cpu", "tower-pred-5"]
    assert callback.contexts == list(zip(names, contexts, strict=True))
    for predicted in callback.predicted:
        np.testing.assert_allclose(predicted, values["w"][:, 0], rtol=1e-6)


def test_a_predictor_of_a_training_that_is_over_is_an_error():
    trainer = tp.QueueInputTrainer()
    train(trainer)
    with pytest.raises(tpk.TrainerStateError, match="the training is over"):
        trainer.get_predictor(["x"], ["prediction"])


def test_several_devices_evaluate(log_dir):
    test = tp.DataFromList(list(batches())[:5], shuffle=False)
    infs = [tp.ScalarStats("cost")]
    with tf.Graph().as_default():
        config = tp.TrainConfig(
            model=Model(),
            data=tp.QueueInput(tp.DataFromList(list(batches()), shuffle=False)),
            callbacks=[
                tp.Callbacks([tp.DataParallelInferenceRunner(test, infs, 2)]),
                [None, tp.InferenceRunner(test, tp.ScalarStats("cost", prefix="alone"), device=1)],
            ],
            steps_per_epoch=STEPS,
            max_epoch=1,
        )
        tp.launch_train_with_config(config, tp.SyncMultiGPUTrainerReplicated(2))
    (row,) = json.loads((log_dir / "stats.json").read_text())
    assert row["validation_cost"] == pytest.approx(row["alone_cost"], rel=1e-5)
    assert row["QueueInput/queue_size"] >= 0


def test_what_the_towers_take_is_staged():
    two, one, simple = tp.SyncMultiGPUTrainer(2), tp.SyncMultiGPUTrainer(1), tp.SimpleTrainer()
    flow = tp.DataFromList([[1]])
    staged = apply_default_prefetch(flow, two)
    assert (type(staged), type(staged.source)) == (tp.StagingInput, tp.QueueInput)
    assert type(apply_default_prefetch(tp.QueueInput(flow), two)) is tp.StagingInput
    assert type(apply_default_prefetch(flow, one)) is tp.QueueInput
    assert type(apply_default_prefetch(flow, simple)) is tp.FeedInput
    for as_it_is in (staged, tp.FeedInput(flow), tp.DummyConstantInput([[1]])):
        assert apply_default_prefetch(as_it_is, two) is as_it_is


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tp.SyncMultiGPUTrainer(0), "gpus=0"),
        (lambda: tp.SyncMultiGPUTrainerReplicated("0,1"), "gpus='0,1'.*list of GPU numbers"),
        (lambda: tp.AsyncMultiGPUTrainer([0, 0]), r"gpus=\[0, 0\]"),
        (lambda: tp.SyncMultiGPUTrainerReplicated(2, mode="fast"), "'hierarchical'.* not 'fast'"),
        (lambda: tp.SyncMultiGPUTrainerParameterServer(2, "tpu"), "ps_device must be one of 'cpu', 'gpu', not 'tpu'"),
        (lambda: tp.DistributedTrainerReplicated(1, "localhost:1"), "server='localhost:1'.*tf.train.Server"),
        (
            lambda: tp.DistributedTrainerParameterServer(1, local_server(), "disk"),
            "caching_device must be one of 'cpu', 'gpu'",
        ),
        (lambda: tp.HorovodTrainer(compression="zip"), "compression='zip'"),
        (tp.BytePSTrainer, "HorovodTrainer"),
        (
            lambda: tp.DataParallelBuilder.call_for_each_tower([0, 1], list, devices=["/cpu:0"]),
            "the same number of each",
        ),
    ],
)
def test_wrong_arguments_are_errors(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_launch_takes_a_trainer_of_models_with_one_cost():
    with pytest.raises(ConfigError, match="trainer of single-cost models"):
        tp.launch_train_with_config(tp.TrainConfig(model=Model(), dataflow=[[1]], steps_per_epoch=1), tp.TowerTrainer())


def test_horovod_comes_from_a_package_of_its_own():
    if "horovod" in {entry.name for entry in tpk.get_catalog().entries()}:
        pytest.skip("tpk-horovod is installed here")
    with pytest.raises(PluginError, match="tpk-horovod"):
        tp.HorovodTrainer()


@functools.cache
def local_server():
    return v1.train.Server.create_local_server()


class ManyRuns(tp.TowerTrainer):
    """A step that runs two ops, one after the other."""

    def __init__(self, input):
        super().__init__()
        self.register_callback(input.setup(SIGNATURE))
        self.tower_func = TowerFunc(self.build, SIGNATURE)
        with TowerContext("", is_training=True):
            self.outputs = self.tower_func(*input.get_input_tensors())

    def build(self, x, y):
        cost = Model().build_graph(x, y)
        return [cost, cost * 2]

    def run_step(self):
        for output in self.outputs:
            self.hooked_sess.run(output)


class FlowAndCallback(tp.DataFlow, tp.Callback):
    """A data flow that is also a callback."""

    def __init__(self):
        self.calls = []

    def __iter__(self):
        yield from batches()

    def _before_train(self):
        self.calls.append("before_train")

    def _before_run(self, _):
        return [self.trainer.tower_func.towers[0].outputs[0]]

    def _after_run(self, _, run_values):
        self.calls.append((self.trainer.loop.global_step, self.local_step, len(run_values.results)))

    def _after_train(self):
        loop = self.trainer.loop
        self.calls.append((loop.epoch_num, loop.steps_per_epoch, loop.starting_epoch, loop.max_epoch))


def test_a_step_may_be_several_runs_and_a_flow_a_callback():
    flow = FlowAndCallback()
    with tf.Graph().as_default():
        trainer = ManyRuns(tp.QueueInput(flow))
        trainer._register_callback(flow)
        trainer.train([], [], tp.sesscreate.NewSessionCreator(), None, 2, 1, 1)
        with pytest.raises(tpk.TrainerStateError, match="comes too late"):
            trainer.register_callback(tp.Callback())
    assert flow.calls == ["before_train", (1, 0, 1), (2, 0, 1), (3, 1, 1), (4, 1, 1), (1, 2, 1, 1)]
    assert trainer.inputs_desc == trainer.input_signature == SIGNATURE


def test_a_trainer_of_ones_own_says_whether_it_is_the_chief():
    trainer = tp.TowerTrainer()
    assert trainer.is_chief
    trainer.is_chief = False
    assert not trainer.is_chief


def test_a_tower_function_that_is_built_twice_for_a_tower_is_an_error():
    class Twice(tp.SyncMultiGPUTrainerReplicated):
        def _make_get_grad_fn(self, input, get_cost_fn, get_opt_fn):
            return list

    with pytest.raises(TowerError, match="0 times"):
        train(lambda: Twice(2))


def test_towers_of_builders_share_or_own_variables():
    with tf.Graph().as_default():

        def build():
            v1.get_variable("v", [])
            return tp.get_current_tower_context()

        contexts = tp.DataParallelBuilder.build_on_towers([0, 1, 2], build, use_vs=[False, True, False])
        assert [(each.ns_name, each.vs_name, each.index, each.total) for each in contexts] == [
            ("tower0", "", 0, 3),
            ("tower1", "tower1", 1, 3),
            ("tower2", "", 2, 3),
        ]
        assert [each.op.name for each in v1.global_variables()] == ["v", "tower1/v"]


def test_gradients_of_towers_are_reduced():
    with tf.Graph().as_default(), v1.Session() as sess:
        pairs = [[(tf.constant([float(tower), 2.0]), "v"), (tf.constant(4.0 * tower), "w")] for tower in range(3)]
        gradients, variables = split_grad_list(pairs)
        reduced = tp.graph_builder.allreduce_grads(gradients, average=True, mode="cpu")
        for tower in merge_grad_list(reduced, variables):
            assert [variable for _, variable in tower] == ["v", "w"]
            check_equal(sess.run([gradient for gradient, _ in tower]), [np.array([1.0, 2.0]), 4.0])


def check_equal(values, expected):
    for value, each in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, each)


def test_handles_have_what_a_tower_has_returned_and_added():
    with tf.Graph().as_default():
        func = TowerFunc(lambda x: [x * 2, v1.summary.scalar("mean", tf.reduce_mean(x))], SIGNATURE[:1])
        with TrainTowerContext("main", "", 0, 1):
            outputs = func(v1.placeholder(tf.float32, [None, 3]))
        (handle,) = func.towers.training()
        assert handle.outputs == outputs
        assert handle.get_collection(v1.GraphKeys.SUMMARIES) == handle.get_collection(name="summaries") == outputs[1:]
        with pytest.raises(ValueError, match="name of a collection"):
            handle.get_collection()
        v1.get_variable("there", [])
        with v1.variable_scope("", reuse=True), PredictTowerContext("other"):
            v1.get_variable("there", [])
        with PredictTowerContext("new", "scope") as context:
            assert context.has_own_variables
            assert v1.get_variable("v", []).op.name == "scope/v"


def test_sessions_on_a_server_have_their_variables():
    with pytest.raises(TypeError, match=r"tf\.train\.Server"):
        get_distributed_session_creator("localhost:2222")
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=3.0)
        local = v1.get_variable("l", initializer=4.0, collections=[v1.GraphKeys.LOCAL_VARIABLES])
        with get_distributed_session_creator(local_server()).create_session() as sess:
            assert sess.run([v, local]) == [3.0, 4.0]


WORKERS = """
import sys
import numpy as np
sys.path.insert(0, {tests!r})
import tensorflow as tf
tf.compat.v1.disable_v2_behavior()
tf.compat.v1.enable_resource_variables()
import test_trainers as own
import tpk_tensorpack as tp

cluster = tf.train.ClusterSpec({{"ps": [{ps!r}], "worker": {workers!r}}})
server = tf.compat.v1.train.Server(cluster, job_name=sys.argv[1], task_index=int(sys.argv[2]))
trainer = tp.DistributedTrainerReplicated([0], server)
callback = own.Variables()
flow = tp.DataFromList(list(own.batches()), shuffle=False)
config = tp.TrainConfig(
    model=own.Model(), dataflow=flow, callbacks=[callback], extra_callbacks=[], monitors=[], steps_per_epoch=3,
    max_epoch=1,
)
tp.launch_train_with_config(config, trainer)
if sys.argv[1] == "worker" and sys.argv[2] == "0":
    np.save("w.npy", callback.values["w"])
"""


def test_gradients_of_workers_are_summed_up(tmp_path):
    """Both workers train on the same, undivided data, like one worker with twice the learning rate."""
    with reserved_cluster(workers=2, ps=1) as cluster:
        outputs, statuses = run_cluster(cluster, tmp_path)
    assert statuses == [0, 0, 0], "\n".join(each[-2000:] for each in outputs)
    doubled = Model(lambda: v1.train.MomentumOptimizer(0.2, 0.9))
    alone = train(tp.SimpleTrainer, list(batches())[:STEPS], doubled)
    np.testing.assert_allclose(np.load(tmp_path / "w.npy"), alone["w"], rtol=1e-5)


def run_cluster(cluster, tmp_path):
    """Wait for the processes; return their output and exit status."""
    (ps,) = cluster.ps
    source = WORKERS.format(tests=str(Path(__file__).parent), ps=ps, workers=list(cluster.workers))
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", source, job, str(task)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for job, task in [("ps", 0), ("worker", 0), ("worker", 1)]
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return outputs, [process.returncode for process in processes]
