from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError
from tpk.strategies.parameter_server import ParameterServerStrategy
from tpk.strategies.replicated import ReplicatedStrategy, get_post_init_ops
from tpk.tower.context import get_current_tower_context

v1 = tf.compat.v1

SIGNATURE = [tf.TensorSpec([None, 3], tf.float32, "x")]
SYNCHRONOUS = ["replicated", "parameter_server"]


def build(x):
    # Without a seed, so that each tower draws other initial values.
    w = v1.get_variable("w", [3], initializer=v1.random_normal_initializer())
    v1.summary.scalar("norm", tf.norm(w))
    return tf.reduce_mean(tf.linalg.matvec(x, w) ** 2, name="cost")


def momentum():
    return v1.train.MomentumOptimizer(0.05, 0.9)


def setup(strategy, tower_func=build, optimizer=momentum, source=None):
    trainer = tpk.SingleCostTrainer(strategy)
    source = source or tpk.TensorInput(lambda: [tf.ones([2, 3])])
    trainer.setup_graph(SIGNATURE, source, tower_func, optimizer)
    return trainer


class Values(tpk.Callback):
    """Keeps the values of all variables before the first step, and after the last."""

    def before_train(self, trainer):
        self.before = self.read(trainer)

    def after_train(self, trainer):
        self.after = self.read(trainer)

    def read(self, trainer):
        variables = [*v1.global_variables(), *v1.local_variables()]
        return dict(zip([each.op.name for each in variables], trainer.sess.run(variables), strict=True))


def test_an_inference_tower_may_have_the_variables_of_any_replicate():
    trainer = setup(tpk.use("replicated", devices=2))
    towers = [trainer.build_inference_tower(f"look{index}", vs_name=name) for index, name in enumerate(["", "tower1"])]
    assert [each.get_variable("w").op.name for each in towers] == ["w", "tower1/w"]
    with trainer.graph.as_default():
        assert [each.op.name for each in v1.trainable_variables()] == ["w"]


def test_replicates_start_as_copies_of_the_main_tower():
    trainer, values = setup(tpk.use("replicated", devices=3)), Values()
    with trainer.graph.as_default():
        assert len(get_post_init_ops()) == 4, "a variable and its momentum, of two more towers"
    trainer.train(callbacks=[values], steps_per_epoch=3, max_epoch=1)
    for state in (values.before, values.after):
        for name in ("w", "w/Momentum"):
            np.testing.assert_array_equal(state[f"tower1/{name}"], state[name])
            np.testing.assert_array_equal(state[f"tower2/{name}"], state[name])
    assert np.any(values.after["w"] != values.before["w"])


def test_replicas_start_as_copies_of_restored_variables():
    trainer, values = setup(tpk.use("replicated", devices=2)), Values()
    init = {"w": np.float32([1, 2, 3]), "w/Momentum": np.float32([4, 5, 6])}
    trainer.train(callbacks=[values], session_init=init, steps_per_epoch=1, max_epoch=1)
    for name, value in init.items():
        np.testing.assert_array_equal(values.before[name], value)
        np.testing.assert_array_equal(values.before[f"tower1/{name}"], value)


def test_one_tower_needs_no_copies():
    trainer = setup(tpk.use("replicated", devices=1))
    with trainer.graph.as_default():
        assert get_post_init_ops() == []
        assert v1.local_variables() == []
    assert trainer.strategy.callbacks() == []


@pytest.mark.usefixtures("resource_variables")
def test_each_tower_trains_its_own_variables_on_its_own_device():
    trainer = setup(tpk.use("replicated", devices=["/cpu:0", "/cpu:1"]))
    updates = [op for op in trainer.graph.get_operations() if op.type == "ResourceApplyMomentum"]
    assert {(op.inputs[0].op.name, op.device) for op in updates} == {
        ("w", "/device:CPU:0"),
        ("tower1/w", "/device:CPU:1"),
    }
    variables = {op.name: op.device for op in trainer.graph.get_operations() if op.type == "VarHandleOp"}
    assert variables["w"] == variables["w/Momentum"] == "/device:CPU:0"
    assert {variables[name] for name in variables if name.startswith("tower1/w")} == {"/device:CPU:1"}


def test_a_tower_that_builds_another_model_is_an_error():
    def differing(x):
        cost = build(x)
        if get_current_tower_context().index == 1:
            cost += v1.get_variable("extra", [], trainable=False)
        return cost

    with pytest.raises(tpk.TowerError, match=r"'tower1' did not create the same variables as the first one: extra\."):
        setup(tpk.use("replicated", devices=2), differing)


def test_integers_are_not_averaged():
    def counting(x):
        counter = v1.get_variable("counter", [], tf.int64, v1.zeros_initializer(), trainable=False)
        index = get_current_tower_context().index
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, counter.assign_add(1 + index).op)
        return build(x)

    trainer, values = setup(tpk.use("replicated", devices=2, sync_variables="mean"), counting), Values()
    trainer.train(callbacks=[values, "RunUpdateOps"], steps_per_epoch=5, max_epoch=1)
    assert (values.after["counter"], values.after["tower1/counter"]) == (5, 10)


def final_values(strategy, optimizer, **options):
    trainer, values = setup(strategy, optimizer=optimizer), Values()
    init = {"w": np.float32([1, 2, 3])}
    trainer.train(callbacks=[values], session_init=init, steps_per_epoch=5, max_epoch=1, **options)
    return values.after


@pytest.mark.parametrize("strategy", [tpk.use("replicated", devices=2), tpk.use("parameter_server", devices=2)])
def test_one_optimizer_for_all_towers_trains_as_new_ones_do(strategy):
    shared = functools.cache(lambda: v1.train.AdamOptimizer(0.1))
    ours = final_values(strategy, shared)
    alone = final_values("single", lambda: v1.train.AdamOptimizer(0.1))
    for name in ("w", "w/Adam", "w/Adam_1", "beta1_power"):
        np.testing.assert_allclose(ours[name], alone[name], rtol=1e-5)
    if "tower1/w" in ours:
        for name, value in alone.items():
            if name != "global_step":
                np.testing.assert_array_equal(ours[f"tower1/{name}"], ours[name])
                assert value.shape == ours[name].shape


def test_a_shared_optimizer_may_be_wrapped_by_the_trainer():
    shared = functools.cache(lambda: v1.train.AdamOptimizer(0.1))
    trainer = tpk.SingleCostTrainer(tpk.use("replicated", devices=2), precision="float16")
    trainer.setup_graph(SIGNATURE, tpk.TensorInput(lambda: [tf.ones([2, 3])]), build, shared)
    trainer.train(steps_per_epoch=2, max_epoch=1)


def test_summaries_of_an_optimizer_exist_once():
    def summarizing():
        v1.summary.scalar("rate", tf.constant(0.1))
        return momentum()

    trainer = setup(tpk.use("replicated", devices=3), optimizer=summarizing)
    names = [op.name for op in trainer.graph.get_operations() if op.type == "ScalarSummary" and "rate" in op.name]
    assert names == ["rate"]


def counting_steps(x):
    """Counts faster in the second tower, in a variable that is not trained."""
    index = get_current_tower_context().index
    seen = v1.get_variable("seen", [], initializer=v1.zeros_initializer(), trainable=False)
    v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, seen.assign_add(1.0 + index).op)
    return build(x)


@pytest.mark.parametrize(("sync", "expected"), [("broadcast", (3, 3)), ("mean", (4.5, 4.5)), (None, (3, 6))])
@pytest.mark.parametrize("named", [True, False])
def test_variables_that_are_not_trained_agree_as_asked_for(sync, expected, named):
    trainer = (
        tpk.SyncMultiGPUTrainerReplicated(["/cpu:0", "/cpu:1"], sync_variables=sync)
        if named
        else tpk.SingleCostTrainer(tpk.use("replicated", devices=2, sync_variables=sync))
    )
    values = Values()
    trainer.setup_graph(SIGNATURE, tpk.TensorInput(lambda: [tf.ones([2, 3])]), counting_steps, momentum)
    assert trainer.strategy.describe()["sync_variables"] == sync
    trainer.train(callbacks=[values, "RunUpdateOps"], steps_per_epoch=3, max_epoch=1)
    assert (values.after["seen"], values.after["tower1/seen"]) == expected


def test_by_default_the_first_tower_gives_the_others_its_own():
    trainer, values = tpk.SyncMultiGPUTrainerReplicated(["/cpu:0", "/cpu:1"]), Values()
    trainer.setup_graph(SIGNATURE, tpk.TensorInput(lambda: [tf.ones([2, 3])]), counting_steps, momentum)
    trainer.train(callbacks=[values, "RunUpdateOps"], steps_per_epoch=3, max_epoch=1)
    assert values.after["tower1/seen"] == values.after["seen"] == 3


UNDEFINED = pytest.mark.tf2_only("whether a reference variable is read before its update is undefined")


@pytest.mark.parametrize("sync", ["broadcast", "mean", pytest.param(None, marks=UNDEFINED)])
def test_a_training_that_reads_untrained_variables_resumes_exactly_if_these_are_synchronized(tmp_path, sync):
    def remembering(x):
        last = v1.get_variable("last", [3], initializer=v1.ones_initializer(), trainable=False)
        read = last.read_value()
        with tf.control_dependencies([read]):
            v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, last.assign(tf.reduce_mean(x, 0)).op)
        return build(x * read)

    def weights(epochs, **options):
        rng = np.random.default_rng(0)
        data = [[rng.normal(size=[2, 3]).astype(np.float32)] for _ in range(6)]
        strategy, values = tpk.use("replicated", devices=2, sync_variables=sync), Values()
        trainer = setup(strategy, remembering, source=tpk.FeedInput(data))
        options = {"steps_per_epoch": 3, "max_epoch": epochs, "session_init": {"w": np.float32([1, 2, 3])}, **options}
        trainer.train(callbacks=[values, "RunUpdateOps", "ModelSaver"], **options)
        return values.after["w"]

    whole = weights(2, run_dir=tmp_path / "whole")
    weights(1, run_dir=tmp_path / "halves")
    resumed = weights(2, run_dir=tmp_path / "halves", resume="must", session_init=None)
    assert np.array_equal(whole, resumed) == (sync is not None)


@pytest.mark.parametrize("given", [True, "median"])
def test_a_synchronization_that_there_is_not_is_an_error(given):
    with pytest.raises(ConfigError, match=f"sync_variables must be one of .*'broadcast'.*, not {given!r}"):
        ReplicatedStrategy(2, sync_variables=given)


def test_modes_have_the_names_of_graph_mode_users_too():
    devices = ["/cpu:0", "/cpu:1"]
    assert [ReplicatedStrategy(devices, mode=mode).mode for mode in (None, "gpu", "cpu")] == ["copy", "copy", "cpu"]


def test_an_invalid_mode_is_an_error():
    with pytest.raises(ConfigError, match="unknown all-reduce mode 'tree'"):
        ReplicatedStrategy(2, mode="tree")
    with pytest.raises(ConfigError, match="'nccl' needs GPUs, but the devices are /cpu:0, /cpu:1"):
        ReplicatedStrategy(["/cpu:0", "/cpu:1"], mode="nccl")


@pytest.mark.parametrize("make", [ReplicatedStrategy, ParameterServerStrategy, tpk.AsyncStrategy])
def test_a_gpu_that_is_split_trains_several_towers(pretend_gpus, make):
    pretend_gpus(1, gpu0=[1024, 2048])
    strategy = make(2)
    assert strategy.num_replicas == 2
    (split,) = strategy.session_config(v1.ConfigProto()).gpu_options.experimental.virtual_devices
    assert split.memory_limit_mb == [1024, 2048]


def test_nccl_on_a_gpu_that_is_split_is_an_error_and_auto_copies(pretend_gpus):
    pretend_gpus(1, gpu0=[1024, 1024])
    with pytest.raises(ConfigError, match=r"but /gpu:0, /gpu:1 are parts of one physical GPU.*Use 'auto'"):
        ReplicatedStrategy(2, mode="nccl")
    strategy = ReplicatedStrategy(2)
    assert (strategy.devices, strategy.mode) == (["/gpu:0", "/gpu:1"], "copy")
    pretend_gpus(2)
    assert ReplicatedStrategy(2).mode == "nccl"


def test_an_invalid_ps_device_is_an_error():
    with pytest.raises(ConfigError, match=r"ps_device must be one of 'cpu', 'gpu', not 'disk'"):
        ParameterServerStrategy(2, ps_device="disk")


@pytest.mark.parametrize("strategy", [ReplicatedStrategy, ParameterServerStrategy])
def test_more_gpus_than_there_are_is_an_error_that_lists_them(pretend_gpus, strategy):
    pretend_gpus(2)
    with pytest.raises(ConfigError, match=r"no device '/gpu:2'\. GPUs: /gpu:0, /gpu:1\."):
        strategy(3)


@pytest.mark.parametrize("strategy", [ReplicatedStrategy, ParameterServerStrategy])
def test_there_are_as_many_replicas_as_devices(strategy, pretend_gpus):
    pretend_gpus(0)
    assert strategy(3).num_replicas == 3
    assert strategy().num_replicas == 1
    assert (strategy(3).world_size, strategy(3).is_chief) == (1, True)


@pytest.mark.parametrize("how", ["default", "session_config", "session_creator"])
@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_every_session_gets_the_logical_devices(strategy, how):
    config = v1.ConfigProto(intra_op_parallelism_threads=1)
    options = {
        "default": {},
        "session_config": {"session_config": config},
        "session_creator": {"session_creator": tpk.NewSessionCreator(config=config)},
    }[how]
    devices = []

    class Look(tpk.Callback):
        def before_train(self, trainer):
            listed = trainer.sess.list_devices()
            devices.extend(device.name.rsplit("/", 1)[-1] for device in listed if device.device_type == "CPU")

    setup(tpk.use(strategy, devices=["/cpu:0", "/cpu:1", "/cpu:2"])).train(
        callbacks=[Look()], steps_per_epoch=1, max_epoch=1, **options
    )
    assert devices == [f"device:CPU:{index}" for index in range(3)]
    assert not config.device_count


@pytest.mark.parametrize("feeds", [True, False])
@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_a_step_of_all_towers_is_one_run_of_the_session(monkeypatch, strategy, feeds):
    runs = []

    def counted(original):
        def run(self, *args, **options):
            runs.append(original.__name__)
            return original(self, *args, **options)

        return run

    make_callable = v1.Session._make_callable_from_options

    def make_counted_callable(self, options):
        call = make_callable(self, options)

        def run(*arrays):
            runs.append("callable")
            return call(*arrays)

        return run

    monkeypatch.setattr(v1.Session, "run", counted(v1.Session.run))
    monkeypatch.setattr(v1.Session, "_make_callable_from_options", make_counted_callable)
    source = tpk.FeedInput([[np.ones([2, 3], np.float32)]] * 12) if feeds else None

    class Forget(tpk.Callback):
        def before_epoch(self, trainer):
            runs.clear()

        def after_epoch(self, trainer):
            self.of_epoch = list(runs)

    forget = Forget()
    trainer = setup(tpk.use(strategy, devices=3), source=source)
    trainer.train(callbacks=[forget, "RunUpdateOps", "MergeAllSummaries"], steps_per_epoch=4, max_epoch=1)
    assert forget.of_epoch == ["callable"] * 4


@pytest.mark.usefixtures("resource_variables")
@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_the_step_is_done_only_when_every_tower_has_trained(strategy):
    """What waits for the train op sees the updates of all towers."""
    trainer = setup(tpk.use(strategy, devices=3))
    pending, reached = [trainer.train_op], set()
    while pending:
        op = pending.pop()
        if op not in reached:
            reached.add(op)
            pending += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    updates = {op for op in trainer.graph.get_operations() if op.type == "ResourceApplyMomentum"}
    assert updates <= reached
    assert len(updates) == (3 if strategy == "replicated" else 1)
