"""The phases of a training: what is resolved when, what is registered, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import HookError, PluginError, UnknownPluginError
from tpk.plugin import hookimpl

v1 = tf.compat.v1
SIGNATURE = [tf.TensorSpec([None, 1], tf.float32, "x")]


def data():
    return tpk.DataFromList([[np.ones([2, 1], np.float32)]] * 4)


def get_cost(x):
    return tf.reduce_mean(tpk.layers.dense(x, 1) ** 2, name="cost")


def get_optimizer():
    return v1.train.GradientDescentOptimizer(0.1)


class Model(tpk.ModelDesc):
    def inputs(self):
        return SIGNATURE

    def build_graph(self, x):
        self.was_built = True
        return get_cost(x)

    def optimizer(self):
        return get_optimizer()


class Journal(tpk.Callback):
    def __init__(self, calls):
        self.calls = calls

    def setup_graph(self, trainer):
        self.calls.append("setup_graph")

    def before_train(self, trainer):
        self.calls.append("before_train")

    def trigger_epoch(self, trainer):
        self.calls.append(
            f"epoch {trainer.epoch_num} of {trainer.loop.max_epoch}, {trainer.loop.steps_per_epoch} steps"
        )

    def after_train(self, trainer):
        self.calls.append("after_train")


class WatchingStrategy(tpk.strategies.SingleStrategy):
    """Notes at which moments it is called."""

    calls: list[str] = []

    def __init__(self):
        super().__init__()
        self.calls.append("made")

    def join(self):
        self.calls.append("joined")

    def before_run(self, run_context):
        self.calls.append("before_run")

    def trigger_epoch(self, trainer):
        self.calls.append("trigger_epoch")

    def after_train(self, trainer):
        self.calls.append("after_train")


class Counting(tpk.Monitor):
    def __init__(self):
        self.steps = 0

    def trigger_step(self, trainer):
        self.steps += 1


@pytest.fixture
def calls():
    WatchingStrategy.calls = []
    return WatchingStrategy.calls


def test_the_phases_may_be_called_by_hand_with_the_results_of_train():
    def weights(by_hand):
        kept, calls = [], []
        keep = tpk.CallbackFactory(after_train=lambda self: kept.extend(self.trainer.sess.run(v1.global_variables())))
        with tf.Graph().as_default():
            v1.set_random_seed(1)
            trainer = tpk.SingleCostTrainer()
            trainer.setup_graph(SIGNATURE, tpk.FeedInput(data()), get_cost, get_optimizer)
            if by_hand:
                trainer.setup_callbacks([Journal(calls), keep], [])
                assert calls == ["setup_graph"]
                trainer.initialize(tpk.NewSessionCreator(), None)
                trainer.main_loop(steps_per_epoch=4, starting_epoch=2, max_epoch=3)
            else:
                trainer.train(callbacks=[Journal(calls), keep], steps_per_epoch=4, starting_epoch=2, max_epoch=3)
        epochs = ["epoch 2 of 3, 4 steps", "epoch 3 of 3, 4 steps"]
        assert calls == ["setup_graph", "before_train", *epochs, "after_train"]
        with pytest.raises(tpk.TrainerStateError, match="has a session only while it trains"):
            _ = trainer.sess
        return kept

    for ours, theirs in zip(weights(by_hand=True), weights(by_hand=False), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_phases_have_an_order():
    trainer = tpk.SingleCostTrainer()
    trainer.setup_graph(SIGNATURE, tpk.FeedInput(data()), get_cost, get_optimizer)
    with pytest.raises(tpk.TrainerStateError, match=r"initialize\(\) comes after setup_callbacks"):
        trainer.initialize()
    with pytest.raises(tpk.TrainerStateError, match=r"main_loop\(\) comes after initialize"):
        trainer.main_loop(1)
    trainer.setup(callbacks=[Journal([])], monitors=["ScalarPrinter"])
    with pytest.raises(tpk.TrainerStateError, match=r"setup_callbacks\(\) was called already"):
        trainer.setup_callbacks()
    trainer.main_loop(steps_per_epoch=2, max_epoch=1)
    assert trainer.global_step == 2
    with pytest.raises(tpk.TrainerStateError, match=r"main_loop\(\) was called already"):
        trainer.main_loop(steps_per_epoch=2, max_epoch=1)


def test_a_phase_may_be_overridden():
    class WithAnother(tpk.SingleCostTrainer):
        def setup_callbacks(self, callbacks=(), monitors=()):
            super().setup_callbacks([*callbacks, Journal(calls)], monitors)

    calls = []
    trainer = WithAnother()
    trainer.setup_graph(SIGNATURE, tpk.FeedInput(data()), get_cost, get_optimizer)
    trainer.train(steps_per_epoch=1, max_epoch=1)
    assert calls[0] == "setup_graph" and calls[-1] == "after_train"


def test_to_make_a_trainer_makes_and_meets_nothing(calls):
    trainer = tpk.SingleCostTrainer(WatchingStrategy)
    trainer.register_callback(["NoSuchCallback", tpk.PeriodicTrigger("NoSuchCallback", every_k_epochs=1)])
    tpk.SingleCostTrainer("no_such_strategy")
    assert calls == []
    with pytest.raises(UnknownPluginError, match="NoSuchCallback"):
        trainer.setup_graph(SIGNATURE, tpk.FeedInput(data()), get_cost, get_optimizer)
    assert calls == ["made"]


@pytest.mark.parametrize(
    "named",
    [
        {"callbacks": ["NoSuchThing"]},
        {"callbacks": [tpk.EnableCallbackIf("NoSuchThing", lambda self: True)]},
        {"callbacks": [tpk.use("PeriodicTrigger", callback="NoSuchThing", every_k_epochs=1)]},
        {"extra_callbacks": ["NoSuchThing"]},
        {"monitors": ["NoSuchThing"]},
    ],
)
def test_a_mistyped_name_fails_before_the_first_op_and_before_others_are_met(tmp_path, calls, named):
    model = Model()
    config = tpk.TrainConfig(model=model, dataflow=data(), run_dir=tmp_path / "run", **named)
    trainer = tpk.SingleCostTrainer(WatchingStrategy)
    with pytest.raises(UnknownPluginError, match="NoSuchThing"):
        tpk.launch_train_with_config(config, trainer)
    assert "joined" not in calls
    assert not hasattr(model, "was_built") and trainer.graph.get_operations() == []
    assert not (tmp_path / "run").exists()


def test_the_registry_holds_the_strategy_each_monitor_and_each_callback_and_calls_them(calls):
    trainer = tpk.SingleCostTrainer(WatchingStrategy)
    trainer.setup_graph(SIGNATURE, tpk.FeedInput(data()), get_cost, get_optimizer)
    first, second, journal = Counting(), Counting(), Journal([])
    trainer.train(callbacks=[journal], monitors=[first, second], steps_per_epoch=3, max_epoch=2)
    plugins = trainer.hooks.plugins
    assert plugins["WatchingStrategy"] is trainer.strategy
    assert (plugins["Counting"], plugins["Counting#2"], plugins["Journal"]) == (first, second, journal)
    assert calls[2:] == [*["before_run"] * 3, "trigger_epoch", *["before_run"] * 3, "trigger_epoch", "after_train"]
    assert first.steps == second.steps == 6


def test_the_trainer_is_a_plugin_whose_marked_methods_are_called():
    class Counts(tpk.Trainer):
        epochs = steps = 0

        def run_step(self):
            pass

        @tpk.hookimpl
        def trigger_epoch(self):
            self.epochs += 1

        @tpk.hookimpl
        def trigger_step(self, trainer):
            assert trainer is self
            self.steps += 1

    trainer = Counts()
    trainer.train(callbacks=[Journal([])], steps_per_epoch=3, max_epoch=2)
    assert trainer in trainer.hooks.plugins.values()
    assert trainer.strategy in trainer.hooks.plugins.values()
    assert list(trainer.hooks.plugins)[:3] == ["Counts", "NullStrategy", "Journal"]
    assert (trainer.epochs, trainer.steps) == (2, 6)


def test_a_failing_monitor_is_an_entry_that_stops_nothing(caplog):
    class Broken(Counting):
        def before_run(self, run_context):
            raise OSError("gone")

    trainer = tpk.SingleCostTrainer()
    trainer.setup_graph(SIGNATURE, tpk.FeedInput(data()), get_cost, get_optimizer)
    broken = Broken()
    trainer.train(monitors=[broken], steps_per_epoch=3, max_epoch=1)
    assert broken in trainer.hooks.plugins.values()
    assert (trainer.global_step, broken.steps) == (3, 3)
    assert "monitor Broken failed in 3 of" in caplog.text


def test_the_end_of_a_failed_step_may_be_a_recovery():
    class Recovering(tpk.Callback):
        def recover(self, error):
            return True if "once" in str(error) else None

    class FailingOnce(tpk.Trainer):
        steps = 0

        def run_step(self):
            self.steps += 1
            if self.steps == 2:
                raise ValueError("once")

    trainer = FailingOnce()
    trainer.train(callbacks=[Recovering()], steps_per_epoch=3, max_epoch=1)
    assert trainer.steps == 4


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"before_train": lambda self, trainer: None},
            "Slip defines before_train, which is a hook: decorate it with @tpk.hookimpl",
        ),
        ({"_setup_graph": lambda self: None}, "Slip defines _setup_graph, but tpk's hooks have no underscore"),
        ({"befor_epoch": lambda self: None}, "did you mean 'before_epoch'"),
        (
            {"on_epoch_end": lambda self: None},
            "Slip has hooks of another framework; in a tpk.Callback, on_epoch_end is 'trigger_epoch'",
        ),
    ],
)
def test_what_looks_like_a_hook_on_a_trainer_is_an_error(body, message):
    with pytest.raises(HookError, match=message):
        type("Slip", (tpk.Trainer,), body)().train(steps_per_epoch=1, max_epoch=1)


def test_what_looks_like_a_hook_on_a_strategy_is_an_error():
    slip = type("Slip", (tpk.strategies.SingleStrategy,), {"befor_train": lambda self, trainer: None})
    trainer = tpk.SingleCostTrainer(slip)
    with pytest.raises(HookError, match=r"Slip defines befor_train.*'before_train'"):
        trainer.resolve_plugins()


def test_a_strategy_that_returns_no_train_ops_is_an_error():
    class Forgetful(tpk.strategies.SingleStrategy):
        def build(self, *arguments):
            super().build(*arguments)

    trainer = tpk.SingleCostTrainer(Forgetful)
    with pytest.raises(PluginError, match=r"Forgetful\.build returned None; expected a list of train ops"):
        trainer.setup_graph(SIGNATURE, tpk.FeedInput(data()), get_cost, get_optimizer)


def test_callbacks_may_be_registered_as_a_list():
    calls = []
    trainer = tpk.SingleCostTrainer()
    trainer.setup_graph(SIGNATURE, tpk.FeedInput(data()), get_cost, get_optimizer)
    trainer.register_callback([Journal(calls), tpk.CallbackFactory(trigger_epoch=lambda self: calls.append("other"))])
    trainer.train(steps_per_epoch=1, max_epoch=1)
    assert calls.count("setup_graph") == 1 and "other" in calls


def test_any_trainer_is_got_by_its_name():
    trainer = tpk.make_trainer("MultiObjectiveTrainer", update="together")
    assert isinstance(trainer, tpk.MultiObjectiveTrainer) and trainer.update == "together"
    assert isinstance(tpk.make_trainer("single"), tpk.SingleCostTrainer)
    assert tpk.make_trainer(tpk.SimpleTrainer, precision="bfloat16").precision == "bfloat16"
    assert tpk.make_trainer(trainer) is trainer
    with pytest.raises(PluginError, match="is already a trainer, and takes no options"):
        tpk.make_trainer(trainer, update="in_turn")
    with pytest.raises(PluginError, match="is not a trainer"):
        tpk.make_trainer("tpk.callbacks:ProgressBar")


def test_a_config_says_what_another_trainer_needs():
    config = tpk.TrainConfig(model=Model(), dataflow=data())
    with pytest.raises(tpk.ConfigError, match=r"MultiObjectiveTrainer needs more: .*setup_graph\(.*objectives"):
        tpk.launch_train_with_config(config, "MultiObjectiveTrainer")


def test_a_config_runs_any_trainer_that_takes_what_it_has(tmp_path):
    class OwnTrainer(tpk.TowerTrainer):
        def setup_graph(self, input_signature, input_source, get_cost, get_optimizer):
            objective = tpk.Objective(get_optimizer)
            (self.train_op,) = self.build_towers(input_signature, input_source, get_cost, [objective])

    calls = []
    config = tpk.TrainConfig(
        model=Model(), dataflow=data(), callbacks=[Journal(calls)], max_epoch=1, run_dir=tmp_path / "run"
    )
    tpk.launch_train_with_config(config, OwnTrainer)
    assert "epoch 1 of 1, 4 steps" in calls


def test_a_hook_of_a_third_party_reaches_the_callbacks_of_a_training():
    class Specs:
        @tpk.hookspec
        def after_episode(self, reward):
            """Called at the end of each episode."""

    class Module:
        def tpk_add_hookspecs(self, hooks):
            hooks.add_hookspecs(Specs)

    class Listening(tpk.Callback):
        @hookimpl(trylast=True)
        def after_episode(self, reward):
            self.reward = reward

    class Episodes(tpk.Trainer):
        def run_step(self):
            self.hooks.hook.after_episode(reward=7)

    trainer, listening = Episodes(), Listening()
    trainer.hooks.register(Module())
    trainer.train(callbacks=[listening], steps_per_epoch=1, max_epoch=1)
    assert listening.reward == 7


def test_a_training_on_one_device_loads_nothing_of_clusters_servers_and_sockets(tmp_path):
    code = """
import sys
import numpy as np, tensorflow as tf, tpk

class Model(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 1], tf.float32, "x")]
    def build_graph(self, x):
        return tf.reduce_mean(tpk.layers.dense(x, 1) ** 2, name="cost")
    def optimizer(self):
        return tf.compat.v1.train.GradientDescentOptimizer(0.1)

config = tpk.TrainConfig(
    model=Model(), dataflow=tpk.DataFromList([[np.ones([2, 1], np.float32)]] * 4), callbacks=["ModelSaver"],
    max_epoch=1, run_dir=sys.argv[1],
)
tpk.launch_train_with_config(config, "QueueInputTrainer")
parts = ("tpk_distributed", "tpk.dataflow.parallel", "tpk.strategies.", "tpk.predict")
loaded = sorted(name for name in sys.modules if name.startswith(parts))
print("loaded:", *(name for name in loaded if name.rpartition(".")[2] not in sys.argv[2:]))
"""
    shared = ["base", "single", "process_group", "update_order"]
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run"), *shared],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert result.returncode == 0, result.stderr
    loaded = result.stdout.partition("loaded:")[2].split()
    assert [name for name in loaded if not name.startswith("tpk.predict")] == []


def test_monitors_know_which_statistics_are_followed():
    trainer = tpk.SingleCostTrainer("single")
    trainer.setup_graph(SIGNATURE, tpk.FeedInput(data()), get_cost, get_optimizer)
    trainer.setup_callbacks([tpk.EarlyStopping("error", patience=2)])
    assert trainer.monitors.followed == ("error",)
