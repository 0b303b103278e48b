"""What people write who know other systems: taken where it means the same, else told."""

from __future__ import annotations

import builtins
import inspect
import operator
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import UnknownOptionError, UnknownPluginError
from tpk.graph import devices as devices_module
from tpk.other_libraries import METHODS, NAMES, OPTIONS
from tpk.plugin.builtins import BUILTINS
from tpk.plugin.catalog import GROUPS
from tpk.train.run_file.toml import loads

v1 = tf.compat.v1

CPUS = ["/cpu:0", "/cpu:1"]


class Linear(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None], tf.float32, "x")]

    def build_graph(self, x):
        return tf.reduce_mean((v1.get_variable("w", [], initializer=v1.zeros_initializer()) - x) ** 2, name="cost")

    def optimizer(self):
        return v1.train.GradientDescentOptimizer(0.1)


def setup(trainer, **renamed):
    """Set up a trainer; what `renamed` has of an argument is another name of it."""
    model = Linear()
    source = tpk.QueueInput([[np.ones(2, np.float32)]] * 8)
    arguments = {
        "input_signature": model.get_input_signature(),
        "input_source": source,
        "get_cost": model.build_graph,
        "get_optimizer": model.get_optimizer,
    }
    trainer.setup_graph(**{renamed.get(name, name): value for name, value in arguments.items()})
    return trainer


def resolved(trainer):
    """Return the strategy of a trainer."""
    trainer.resolve_plugins()
    return trainer.strategy


@pytest.mark.parametrize("kind", ["SyncMultiGPUTrainer", "SyncMultiGPUTrainerReplicated", "AsyncMultiGPUTrainer"])
@pytest.mark.parametrize("spelling", ["gpus", "tower", "nr_tower"])
def test_gpus_are_devices(kind, spelling):
    given = 2 if spelling == "nr_tower" else [0, 1]
    assert resolved(tpk.make_trainer(kind, **{spelling: given})).num_replicas == 2
    assert resolved(getattr(tpk, kind)(**{spelling: given})).num_replicas == 2


@pytest.mark.parametrize("strategy", ["replicated", "parameter_server", "async"])
def test_strategies_take_them_too(strategy):
    assert resolved(tpk.make_trainer(strategy, gpus=2)).num_replicas == 2


@pytest.mark.parametrize("kind", ["SyncMultiGPUTrainer", "SyncMultiGPUTrainerReplicated"])
@pytest.mark.parametrize("average", [True, False])
def test_average_is_of_named_trainers(kind, average):
    assert resolved(tpk.make_trainer(kind, devices=CPUS, average=average)).describe()["average"] is average


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("SyncMultiGPUTrainerReplicated", {"use_nccl": True}, "use_nccl=: write mode='nccl' for True"),
        ("SyncMultiGPUTrainer", {"gpu_prefetch": True}, "gpu_prefetch=: a dataflow is staged on GPUs by default"),
        ("AsyncMultiGPUTrainer", {"average": False}, "average=: write scale_gradient="),
        ("SimpleTrainer", {"gpus": 2}, "gpus=: it trains on one device. Train with 'SyncMultiGPUTrainerReplicated'"),
        ("QueueInputTrainer", {"nr_tower": 2}, "nr_tower=: it trains on one device"),
    ],
)
def test_what_is_said_otherwise_here_is_a_type_error_with_the_words(kind, options, message):
    with pytest.raises(TypeError, match=message):
        getattr(tpk, kind)(**options)
    with pytest.raises(UnknownOptionError, match=message):
        tpk.make_trainer(kind, **options)


def test_predict_tower_and_var_strategy_are_explained():
    with pytest.raises(TypeError, match=r"predict_tower=: choose the device of a predictor"):
        tpk.TrainConfig(model=Linear(), dataflow=[], predict_tower=[0])
    with pytest.raises(TypeError, match=r"var_strategy=: write vs_names="):
        tpk.strategies.build_on_multi_tower(CPUS, list, var_strategy="shared")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("validation_data", r"takes no validation_data=: add an evaluation to callbacks, as in tpk.InferenceRunner\("),
        ("logger", r"takes no logger=: write extra_monitors, as in extra_monitors=\['CSVWriter'\]\."),
        ("checkpoint_dir", "takes no checkpoint_dir=: write run_dir, with 'ModelSaver' in callbacks"),
        ("save_top_k", r"takes no save_top_k=: add tpk.MinSaver\('validation_cost', keep=3\) to callbacks"),
        ("ckpt_path", "takes no ckpt_path=: write session_init for weights, or run_dir and resume='auto'"),
        ("devices", r"takes no devices=: give it to the trainer, as in tpk.launch_train_with_config\("),
        ("precision", r"takes no precision=: give it to the trainer, as in .*devices=2, precision='bfloat16'\)\)"),
    ],
)
def test_a_config_and_the_launch_tell_what_to_write(name, message):
    with pytest.raises(UnknownOptionError, match=rf"TrainConfig\(\) {message}"):
        tpk.TrainConfig(model=Linear(), dataflow=[], **{name: 1})
    config = tpk.TrainConfig(model=Linear(), dataflow=[[1.0]])
    with pytest.raises(UnknownOptionError, match=rf"launch_train_with_config\(\) {message}"):
        tpk.launch_train_with_config(config, "SimpleTrainer", **{name: 1})


@pytest.mark.parametrize(
    "names",
    [
        # Keras
        "x y batch_size epochs verbose validation_split validation_data shuffle class_weight sample_weight "
        "initial_epoch validation_steps validation_freq optimizer loss metrics steps_per_execution jit_compile",
        # Lightning
        "accelerator strategy devices precision logger fast_dev_run max_epochs max_steps max_time limit_train_batches "
        "limit_val_batches val_check_interval check_val_every_n_epoch enable_progress_bar "
        "accumulate_grad_batches gradient_clip_val default_root_dir ckpt_path",
        # Callbacks of both, Estimator, transformers
        "monitor save_best_only save_top_k patience model_dir train_steps save_checkpoints_steps "
        "keep_checkpoint_max tf_random_seed learning_rate output_dir num_train_epochs eval_steps save_steps "
        "save_total_limit gradient_accumulation_steps max_grad_norm",
    ],
)
def test_options_of_other_libraries_are_explained(names):
    for name in names.split():
        with pytest.raises(UnknownOptionError, match=rf"TrainConfig\(\) takes no {name}=: \w"):
            tpk.TrainConfig(model=Linear(), dataflow=[], **{name: 1})


def test_callbacks_monitor_a_statistic_as_those_of_other_libraries():
    assert repr(tpk.EarlyStopping(monitor="cost", patience=3)) == repr(tpk.EarlyStopping("cost", 3))
    for kind in (tpk.MinSaver, tpk.MaxSaver):
        assert tpk.plugin.recorded_options.options_of(kind(monitor="cost", save_top_k=2))["keep"] == 2


@pytest.mark.parametrize("text", [*OPTIONS.values(), *NAMES.values(), *METHODS.values()])
def test_what_is_named_instead_exists(text):
    plugins = {name for names in BUILTINS.values() for name in names}
    for name in re.findall(r"tpk\.(\w[\w.]*\w)", text):
        assert operator.attrgetter(name)(tpk)
    assert [name for name in re.findall(r"'([A-Z]\w+)'", text) if name not in plugins] == []
    assert all(
        inspect.signature(tpk.TrainConfig).parameters[name] for name in re.findall(r"write (?!tpk)(\w+)[,.=]", text)
    )


@pytest.mark.parametrize(
    "name", ["FeedfreeTrainerBase", "MultiGPUTrainerBase", "SimpleFeedfreeTrainer", "SingleCostFeedfreeTrainer"]
)
def test_base_trainers_of_tensorpack_are_explained(name):
    with pytest.raises(
        AttributeError, match=rf"'{name}' is a .*: write tpk.* tpk-tensorpack has it, in tpk_tensorpack"
    ):
        getattr(tpk, name)


def test_importing_all_names_leaves_the_standard_modules_alone():
    assert set(tpk.__all__) & {*sys.stdlib_module_names, *dir(builtins)} == set()
    for room in tpk._ROOMS:
        assert set(getattr(tpk, room).__all__) & {*sys.stdlib_module_names, *dir(builtins)} == set()
    assert tpk.graph.random.normal


def test_the_launch_tells_that_an_option_belongs_to_the_config():
    config = tpk.TrainConfig(model=Linear(), dataflow=[[1.0]])
    with pytest.raises(UnknownOptionError, match=r"takes no callbacks=: write tpk.TrainConfig\(callbacks=...\)"):
        tpk.launch_train_with_config(config, callbacks=["ModelSaver"])


def test_what_the_messages_say_to_write_is_right():
    tpk.TrainConfig(
        model=Linear(),
        dataflow=[],
        callbacks=[
            tpk.InferenceRunner([[1.0]], tpk.ScalarStats("cost")),
            tpk.MinSaver("validation_cost", keep=3),
            tpk.ModelSaver(max_to_keep=3),
        ],
        extra_monitors=["CSVWriter"],
        run_dir="runs/x",
        resume="auto",
    )


def test_signatures_have_the_own_words_alone():
    parameters = list(inspect.signature(tpk.SyncMultiGPUTrainerReplicated).parameters)
    assert parameters == ["devices", "average", "mode", "sync_variables", "precision", "xla", "steps_per_run"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'gpuss'"):
        tpk.SyncMultiGPUTrainerReplicated(gpuss=2)


def test_a_graph_is_set_up_with_the_arguments_of_other_systems():
    renamed = {
        "input_signature": "inputs_desc",
        "input_source": "input",
        "get_cost": "get_cost_fn",
        "get_optimizer": "get_opt_fn",
    }
    trainer = setup(tpk.SimpleTrainer(), **renamed)
    assert trainer.train_op is not None


def test_a_predictor_is_on_the_device_of_a_tower():
    trainer = setup(tpk.SyncMultiGPUTrainerReplicated(CPUS))
    predictor = trainer.get_predictor(["x"], ["cost"], tower=1)
    assert predictor.outputs[0].device.endswith("CPU:1")


def test_an_evaluation_is_on_gpus():
    data, inferencer = [[np.ones(2, np.float32)]], tpk.ScalarStats("cost")
    runner = tpk.DataParallelInferenceRunner(data, inferencer, gpus=CPUS)
    trainer = setup(tpk.SyncMultiGPUTrainerReplicated(CPUS))
    trainer.train(callbacks=[runner], steps_per_epoch=2, max_epoch=1)
    assert trainer.monitors.get_latest("validation_cost") == pytest.approx(0.0, abs=1)


def test_predictors_take_them_too(tmp_path):
    trainer = setup(tpk.SimpleTrainer())
    trainer.train(callbacks=["ModelSaver"], steps_per_epoch=2, max_epoch=1, run_dir=tmp_path / "run")
    model = Linear()
    config = tpk.PredictConfig(
        tower_func=model.build_graph,
        inputs_desc=model.get_input_signature(),
        output_names=["cost"],
        session_init=tmp_path / "run",
    )
    with tpk.MultiTowerOfflinePredictor(config, towers=CPUS) as predictors:
        assert predictors.devices == CPUS


def test_no_callbacks_and_no_monitors_may_be_none(tmp_path):
    config = tpk.TrainConfig(
        model=Linear(),
        dataflow=[[np.ones(2, np.float32)]] * 2,
        callbacks=None,
        monitors=None,
        max_epoch=1,
        run_dir=tmp_path / "run",
    )
    tpk.launch_train_with_config(config)
    assert list((tmp_path / "run").glob("events.out.*")), "the default monitors"
    trainer = setup(tpk.SimpleTrainer())
    trainer.train(callbacks=None, monitors=None, steps_per_epoch=1, max_epoch=1)
    again = setup(tpk.SimpleTrainer())
    again.train_with_defaults(
        callbacks=None, monitors=None, steps_per_epoch=1, max_epoch=1, run_dir=tmp_path / "defaults"
    )
    assert list((tmp_path / "defaults").glob("events.out.*"))


class TestAPackageThatIsNotInstalled:
    @pytest.fixture(autouse=True)
    def nothing_installed(self, tmp_path):
        with tpk.use_catalog(tpk.Catalog(path=[str(tmp_path)])):
            yield

    @pytest.mark.parametrize(
        ("name", "package"),
        [
            ("HorovodTrainer", "tpk-horovod"),
            ("horovod", "tpk-horovod"),
            ("CollectiveTrainer", "tpk-distributed"),
            ("collective", "tpk-distributed"),
        ],
    )
    def test_is_named_first_by_who_launches(self, name, package):
        with pytest.raises(UnknownPluginError, match=f"^{name!r} is in the package {package}: `pip install"):
            tpk.make_trainer(name)

    @pytest.mark.parametrize(
        ("kind", "name", "package"),
        [
            ("strategy", "horovod", "tpk-horovod"),
            ("monitor", "prometheus", "tpk-prometheus"),
            ("callback", "KerasSaver", "tpk-keras"),
        ],
    )
    def test_is_named_first_by_the_catalog(self, kind, name, package):
        extra = package.removeprefix("tpk-")
        remedy = rf"^'{name}' is in the package {package}: `pip install \"tpk-train\[{extra}\]\"`"
        with pytest.raises(UnknownPluginError, match=remedy):
            tpk.get_catalog().resolve(kind, name)

    def test_is_named_for_each_plugin_of_each_package(self):
        for file in (Path(__file__).parents[2] / "plugins").glob("*/pyproject.toml"):
            groups = loads(file.read_text(encoding="utf-8"))["project"].get("entry-points", {})
            for kind, name in [(kind, name) for kind, group in GROUPS.items() for name in groups.get(group, ())]:
                with pytest.raises(UnknownPluginError, match=f"^'{name}' is in the package {file.parent.name}: "):
                    tpk.get_catalog().resolve(kind, name)

    @pytest.mark.parametrize("name", ["HorovodTrainer", "KerasModel", "KerasSaver", "Cluster", "LMDBSerializer"])
    def test_is_named_by_the_attribute_that_it_is_not(self, name):
        modules = {"HorovodTrainer": "tpk_horovod", "Cluster": "tpk_distributed", "LMDBSerializer": "tpk_lmdb"}
        module = modules.get(name, "tpk_keras")
        with pytest.raises(AttributeError, match=rf"pip install \"tpk-train.*`from {module} import {name}`"):
            getattr(tpk, name)


class TestTheInputOfADataflow:
    @pytest.mark.parametrize("kind", ["SyncMultiGPUTrainer", "SyncMultiGPUTrainerReplicated"])
    def test_is_staged_on_gpus(self, pretend_gpus, kind):
        pretend_gpus(2)
        trainer = tpk.make_trainer(kind, devices=2)
        default = trainer.default_input([[0.0]])
        source = trainer.strategy.prepare_input(default)
        assert isinstance(source, tpk.StagingInput)
        assert isinstance(source.source, tpk.QueueInput)
        with tf.Graph().as_default():
            source.setup([tf.TensorSpec([], tf.float32, "x")])
            assert [source.get_input_tensors()[0].device[-5:] for _ in range(2)] == ["GPU:0", "GPU:1"]

    @pytest.mark.parametrize(("device", "is_staged"), [(None, True), ("/gpu:0", True), ("/cpu:0", False)])
    def test_of_one_tower_is_staged_where_that_is_on_a_gpu(self, pretend_gpus, device, is_staged):
        pretend_gpus(1)
        source = tpk.make_trainer("single", devices=device).default_input([])
        assert isinstance(source, tpk.StagingInput) is is_staged

    @pytest.mark.parametrize("kind", ["SyncMultiGPUTrainer", "SyncMultiGPUTrainerReplicated", "QueueInputTrainer"])
    def test_is_queued_on_cpus(self, kind, pretend_gpus):
        pretend_gpus(0)
        options = {} if kind == "QueueInputTrainer" else {"devices": CPUS}
        assert type(tpk.make_trainer(kind, **options).default_input([])) is tpk.QueueInput

    def test_is_queued_for_towers_that_do_not_wait_for_each_other(self, pretend_gpus):
        pretend_gpus(2)
        assert type(tpk.AsyncMultiGPUTrainer(2).default_input([])) is tpk.QueueInput


def test_a_trainer_that_was_to_have_gpus_says_that_it_has_none(tmp_path, caplog, pretend_gpus):
    pretend_gpus(0)
    devices_module._warn_of_cpus.cache_clear()
    config = tpk.TrainConfig(
        model=Linear(), dataflow=[[np.ones(2, np.float32)]] * 4, max_epoch=1, run_dir=tmp_path / "run"
    )
    tpk.launch_train_with_config(config, tpk.use("SyncMultiGPUTrainer", devices=2))
    warnings = [record for record in caplog.records if "TensorFlow sees no GPU" in record.getMessage()]
    assert [record.levelname for record in warnings] == ["WARNING"]
