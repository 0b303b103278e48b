"""A run described by a config, with towers, from the name of a trainer to what is on disk."""

from __future__ import annotations

import json
import logging
import re
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.dataflow import DataFromList
from tpk.train.run.run_directory import run_log

v1 = tf.compat.v1


class Linear(tpk.ModelDesc):
    """y = 3 x, learned."""

    def inputs(self):
        return [tf.TensorSpec([None, 1], tf.float32, "x"), tf.TensorSpec([None, 1], tf.float32, "y")]

    def build_graph(self, x, y):
        w = v1.get_variable("w", [1, 1], initializer=v1.zeros_initializer())
        prediction = tf.matmul(x, w, name="prediction")
        cost = tf.reduce_mean((prediction - y) ** 2, name="cost")
        tf.cast(tf.abs(prediction - y) > 0.5, tf.float32)[:, 0]
        tpk.add_moving_summary(cost)
        return cost

    def optimizer(self):
        return v1.train.GradientDescentOptimizer(0.1)


def data(batches=5):
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(8, 1)).astype(np.float32) for _ in range(batches)]
    return DataFromList([[x, 3 * x] for x in xs], shuffle=False)


class Weight(tpk.Callback):
    def after_train(self, trainer):
        (variable,) = v1.trainable_variables()
        self.value = trainer.sess.run(variable).item()
        self.trainer_class = type(trainer).__name__
        self.source_types = [type(plugin).__name__ for plugin in trainer.hooks.plugins.values()]


def config(tmp_path, **options):
    options = {"dataflow": data(), "max_epoch": 4, "run_dir": tmp_path / "run", **options}
    return tpk.TrainConfig(model=Linear(), **options)


TRAINERS = {
    "name": "SimpleTrainer",
    "queue": "QueueInputTrainer",
    "class": tpk.SimpleTrainer,
    "module": "tpk.train.named_trainers:SimpleTrainer",
    "strategy": "single",
    "strategy with options": tpk.use("single", devices=["/cpu:0"]),
    "replicated on one": tpk.use("replicated", devices=1),
    "parameter server on one": tpk.use("SyncMultiGPUTrainer", devices=1, ps_device="cpu"),
    "replicated trainer": tpk.use("SyncMultiGPUTrainerReplicated", devices=1, mode="cpu"),
    "async on one": tpk.use("AsyncMultiGPUTrainer", devices=1, scale_gradient=False),
}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_however_the_trainer_is_named_the_result_is_the_same(tmp_path, trainer):
    weight = Weight()
    tpk.launch_train_with_config(config(tmp_path, callbacks=[weight]), TRAINERS[trainer])
    expected = by_hand()
    assert weight.value == pytest.approx(expected, rel=1e-6)
    assert 2.5 < expected < 3


def by_hand():
    """The same training in NumPy."""
    w = 0.0
    for _ in range(4):
        for x, y in data():
            w -= 0.1 * np.mean(2 * (x * w - y) * x)
    return w


def test_a_run_leaves_its_files(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    tpk.launch_train_with_config(config(tmp_path, callbacks=["ModelSaver"], seed=1))
    run_dir = tmp_path / "run"
    lines = [json.loads(line) for line in (run_dir / "stats.jsonl").read_text().splitlines()]
    assert [line["epoch_num"] for line in lines] == [1, 2, 3, 4]
    assert [line["global_step"] for line in lines] == [5, 10, 15, 20]
    assert lines[-1]["cost"] < lines[0]["cost"]
    description = json.loads((run_dir / "config.json").read_text())
    assert (description["seed"], description["steps_per_epoch"], description["max_epoch"]) == (1, 5, 4)
    options = {"precision": "float32", "xla": False, "steps_per_run": 1}
    assert description["trainer"] == {"name": "SimpleTrainer", "options": options}
    assert description["strategy"]["name"] == "SingleStrategy"
    assert (description["precision"], description["xla"]) == ("float32", False)
    assert f"run_dir: {run_dir}" in (run_dir / "log.txt").read_text()
    assert f"run_dir: {run_dir}" in caplog.messages
    assert tf.train.latest_checkpoint(str(run_dir)) == str(run_dir / "model-20")
    assert list(run_dir.glob("events.out.tfevents.*"))


def test_it_returns_the_trainer_which_has_the_statistics(tmp_path):
    trainer = tpk.launch_train_with_config(config(tmp_path, callbacks=["ModelSaver"]))
    assert isinstance(trainer, tpk.SimpleTrainer) and trainer.run_dir == tmp_path / "run"
    assert trainer.history.epochs("cost").tolist() == [1, 2, 3, 4]
    assert trainer.history.steps("cost").tolist() == [5, 10, 15, 20]
    assert trainer.history["cost"][-1] == trainer.monitors.get_latest("cost") < trainer.history["cost"][0]
    resumed = tpk.launch_train_with_config(config(tmp_path, callbacks=["ModelSaver"], max_epoch=5, resume="must"))
    assert resumed.history["cost"][:4].tolist() == trainer.history["cost"].tolist()
    assert resumed.history.epochs("cost").tolist() == [1, 2, 3, 4, 5]
    finished = tpk.launch_train_with_config(config(tmp_path, callbacks=["ModelSaver"], max_epoch=5, resume="must"))
    assert finished.history["cost"].tolist() == resumed.history["cost"].tolist()


class Names(tpk.Monitor):
    def before_train(self, trainer):
        self.kinds = [type(monitor).__name__ for monitor in trainer.monitors.monitors]


@pytest.mark.parametrize("given", [None, ["JSONWriter"]])
def test_extra_monitors_come_besides_the_others(tmp_path, given):
    kinds = given or ["TFEventWriter", "JSONWriter", "ScalarPrinter"]
    monitor = Names()
    tpk.launch_train_with_config(config(tmp_path, monitors=given, extra_monitors=[monitor], max_epoch=1))
    assert monitor.kinds == [*kinds, "Names"]

    monitor = Names()
    trainer = tpk.SimpleTrainer()
    model = Linear()
    trainer.setup_graph(model.inputs(), tpk.FeedInput(data()), model.build_graph, model.get_optimizer)
    trainer.train_with_defaults(
        monitors=given, extra_monitors=[monitor], steps_per_epoch=1, max_epoch=1, run_dir=tmp_path / "by hand"
    )
    assert monitor.kinds == [*kinds, "Names"]


def test_extra_monitors_that_are_no_list(tmp_path):
    with pytest.raises(tpk.ConfigError, match=r"extra_monitors='CSVWriter'.*expected a list"):
        config(tmp_path, extra_monitors="CSVWriter")


def test_a_checkpoint_gives_the_variables_of_another_run(tmp_path):
    tpk.launch_train_with_config(config(tmp_path, callbacks=["ModelSaver"]))
    weight = Weight()
    again = config(tmp_path, callbacks=[weight], run_dir=tmp_path / "b", max_epoch=0, session_init=tmp_path / "run")
    tpk.launch_train_with_config(again)
    assert weight.value == pytest.approx(by_hand(), rel=1e-6)


class Normalized(Linear):
    """Has weights, moving statistics, a learning rate and slots."""

    def __init__(self, rate):
        self.rate = rate

    def build_graph(self, x, y):
        return super().build_graph(tpk.layers.batch_normalization(x, training=True), y)

    def optimizer(self):
        rate = v1.get_variable("learning_rate", initializer=self.rate, trainable=False)
        return v1.train.MomentumOptimizer(rate, 0.9)


class Variables(tpk.Callback):
    def before_train(self, trainer):
        variables = v1.global_variables()
        names = [variable.op.name for variable in variables]
        self.values = dict(zip(names, trainer.sess.run(variables), strict=True))


SESSION_INITS = {
    "path": lambda run: run,
    "parts": lambda run: [run, {"w": [[1.0]]}],
    "relaxed": lambda run: tpk.SmartInit(run, ignore_mismatch=True, weights_only=True),
    "everything": tpk.SaverRestore,
    "smart": tpk.SmartInit,
}


@pytest.mark.parametrize("strategy", ["single", "replicated"])
@pytest.mark.parametrize("init", SESSION_INITS)
def test_a_path_as_session_init_is_a_warm_start(tmp_path, caplog, strategy, init):
    def train(rate, name, **options):
        variables = Variables()
        tpk.launch_train_with_config(
            tpk.TrainConfig(
                model=Normalized(rate),
                dataflow=data(),
                callbacks=["ModelSaver", variables],
                max_epoch=2,
                run_dir=tmp_path / name,
                **options,
            ),
            strategy if strategy == "single" else tpk.use(strategy, devices=2),
        )
        return variables.values

    train(0.1, "first")
    stored = tpk.CheckpointReader(tpk.find_checkpoint(tmp_path / "first"))
    values = train(0.25, "second", session_init=SESSION_INITS[init](tmp_path / "first"))
    statistics = "batch_normalization/moving_mean"
    assert np.abs(values[statistics]).min() > 0
    np.testing.assert_array_equal(values[statistics], stored[statistics])
    np.testing.assert_array_equal(values["w"], [[1.0]] if init == "parts" else stored["w"])
    is_warm = init in ("path", "parts", "relaxed")
    assert values["learning_rate"] == np.float32(0.25 if is_warm else 0.1)
    assert values["global_step"] == (0 if is_warm else stored["global_step"])
    assert (np.abs(values["w/Momentum"]).max() == 0) == is_warm
    told = [message for message in caplog.messages if "are ignored: global_step, learning_rate, " in message]
    assert len(told) == is_warm


def test_a_directory_that_holds_a_run_is_refused(tmp_path):
    tpk.launch_train_with_config(config(tmp_path))
    with pytest.raises(tpk.ConfigError, match="holds a run already"):
        tpk.launch_train_with_config(config(tmp_path))


def test_a_run_dir_that_cannot_be_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(tpk.ConfigError, match="cannot be created"):
        tpk.launch_train_with_config(config(tmp_path, run_dir=tmp_path / "file" / "run"))


def test_the_default_run_dir_is_new_each_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["/somewhere/my_script.py"])
    for _ in range(2):
        tpk.launch_train_with_config(config(tmp_path, run_dir=None, max_epoch=1))
    assert len(list((tmp_path / "runs" / "my_script").iterdir())) == 2


def test_logging_is_as_it_was_afterwards(tmp_path):
    logger = logging.getLogger("tpk")
    before = (logger.level, list(logger.handlers))
    tpk.launch_train_with_config(config(tmp_path))
    assert (logger.level, logger.handlers) == before


def test_what_a_terminal_does_not_show_is_in_the_file(tmp_path, monkeypatch):
    """An epoch is a line there, with what it saves, and no collection of the graph is named."""
    pieces = []
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(logging.getLogger("tpk"), "propagate", False)  # otherwise pytest has configured logging

    class Model(Linear):
        def build_graph(self, x, y):
            tf.compat.v1.add_to_collection("update_ops", tf.no_op())
            return super().build_graph(x, y)

    saver = tpk.MinSaver("cost", checkpoint_dir=tmp_path / "best")
    with monkeypatch.context() as patches:
        patches.setattr("sys.stderr", SimpleNamespace(write=pieces.append, flush=lambda: None, isatty=lambda: False))
        run = tpk.TrainConfig(
            model=Model(), dataflow=data(), callbacks=["ModelSaver", saver], max_epoch=2, run_dir=tmp_path / "run"
        )
        tpk.launch_train_with_config(run)
    terminal, file = "".join(pieces), (tmp_path / "run" / "log.txt").read_text()
    epochs = [line for line in terminal.splitlines() if re.search(r"epoch \d/2, step", line)]
    assert [re.search(r"saving (.*)", line)[1] for line in epochs] == [
        f"model-{step}, min-cost-{step}" for step in (len(data()), 2 * len(data()))
    ]
    assert "model-5 in" not in terminal and "collection" not in terminal, terminal
    assert "model-5 in" in file and "1 ops of the collection 'update_ops'" in file


def test_a_record_reaches_the_terminal_in_one_piece(monkeypatch):
    pieces = []
    logger = logging.getLogger("tpk")
    monkeypatch.setattr(logger, "propagate", False)  # otherwise an application has configured logging: pytest
    with monkeypatch.context() as patches, run_log(None):
        patches.setattr("sys.stderr", SimpleNamespace(write=pieces.append, flush=lambda: None))
        logger.warning("it is late")
    (piece,) = filter(None, pieces)
    assert piece.endswith(" WARNING: it is late\n")


def test_the_seed_fixes_initial_values(tmp_path):
    class Random(Linear):
        def build_graph(self, x, y):
            return tf.reduce_mean(x @ v1.get_variable("w", [1, 1]))

    values = []
    for seed, name in ((1, "a"), (1, "b"), (2, "c")):
        weight = Weight()
        run = tpk.TrainConfig(
            model=Random(), dataflow=data(), callbacks=[weight], max_epoch=0, run_dir=tmp_path / name, seed=seed
        )
        tpk.launch_train_with_config(run)
        values.append(weight.value)
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize(
    "name",
    [
        "SimpleTrainer",
        "QueueInputTrainer",
        "SyncMultiGPUTrainer",
        "SyncMultiGPUTrainerReplicated",
        "AsyncMultiGPUTrainer",
    ],
)
def test_every_named_trainer_takes_a_precision(tmp_path, name):
    tpk.launch_train_with_config(config(tmp_path), tpk.use(name, precision="bfloat16"))
    assert json.loads((tmp_path / "run" / "config.json").read_text())["precision"] == "bfloat16"


@pytest.mark.parametrize("strategy", ["single", "replicated", "parameter_server", "async"])
def test_the_name_of_a_strategy_takes_the_options_of_a_trainer(tmp_path, strategy):
    devices = 1 if strategy == "single" else 2
    options = {"devices": devices, "precision": "bfloat16", "xla": True}
    tpk.launch_train_with_config(config(tmp_path, steps_per_epoch=2, max_epoch=1), tpk.use(strategy, **options))
    description = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (description["precision"], description["xla"]) == ("bfloat16", True)
    made = tpk.make_trainer(strategy, devices=devices, precision="bfloat16", steps_per_run=2)
    made.resolve_plugins()
    assert (made.precision, made.loop.steps_per_run, made.strategy.num_replicas) == ("bfloat16", 2, devices)
    with pytest.raises(tpk.PluginError, match=rf"strategy '{strategy}' .*It has no option 'precisio'"):
        tpk.make_trainer(strategy, precisio="bfloat16").resolve_plugins()


def test_a_predictor_shares_the_variables(tmp_path):
    class Predict(tpk.Callback):
        def setup_graph(self, trainer):
            self.predict = trainer.get_predictor(["x"], ["prediction"])
            self.again = trainer.get_predictor(["x"], ["prediction"])

        def trigger_epoch(self, trainer):
            (self.prediction,) = self.predict([[1.0]])
            with pytest.raises(tpk.InputError, match="takes 1 inputs"):
                self.predict()
            with pytest.raises(tpk.TowerError, match="graph is finalized"):
                trainer.get_predictor(["x"], ["prediction"], device="/cpu:0")

    predict, weight = Predict(), Weight()
    with pytest.raises(tpk.InputError, match="no session"):
        Early = type("Early", (tpk.Callback,), {"setup_graph": lambda self, trainer: early(trainer)})

        def early(trainer):
            trainer.get_predictor(["x"], ["prediction"])([[1.0]])

        tpk.launch_train_with_config(config(tmp_path, callbacks=[Early()], run_dir=tmp_path / "early"))
    tpk.launch_train_with_config(config(tmp_path, callbacks=[predict, weight]))
    assert predict.prediction.item() == pytest.approx(weight.value)
    assert predict.predict.inputs == predict.again.inputs


# Errors.


def test_a_trainer_or_strategy_that_does_not_exist(tmp_path):
    with pytest.raises(tpk.UnknownPluginError, match=r"'replicatd'.*Nearest: 'replicated'.*Known:.*single"):
        tpk.launch_train_with_config(config(tmp_path), "replicatd")


def test_a_trainer_that_trains_something_else(tmp_path):
    with pytest.raises(tpk.ConfigError, match=r"Trainer has no setup_graph for one. Create it with tpk.make_trainer"):
        tpk.launch_train_with_config(config(tmp_path), tpk.Trainer())


def test_more_devices_than_the_strategy_takes(tmp_path):
    with pytest.raises(tpk.ConfigError, match="trains on one device, got devices=4"):
        tpk.launch_train_with_config(config(tmp_path), tpk.use("single", devices=4))


def test_data_of_unknown_length_needs_steps_per_epoch(tmp_path):
    endless = (datapoint for datapoint in data())
    with pytest.raises(tpk.ConfigError, match="steps_per_epoch"):
        tpk.launch_train_with_config(config(tmp_path, dataflow=endless))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_epoch": "three"}, r"TrainConfig\(max_epoch='three'\)"),
        ({"steps_per_epoch": True}, r"TrainConfig\(steps_per_epoch=True\)"),
        ({"callbacks": "ModelSaver"}, r"callbacks='ModelSaver'\): expected a list, e\.g\. \['ModelSaver'\]"),
        ({"dataflow": None}, "either dataflow .* or data"),
        ({"data": tpk.FeedInput([])}, "got both"),
        ({"dataflow": 3}, r"TrainConfig\(dataflow=...\) takes an iterable of datapoints, not 3"),
        ({"seed": "x"}, r"TrainConfig\(seed='x'\)"),
        ({"seed": -1}, r"TrainConfig\(seed=-1\): expected a whole number, at least 0"),
        ({"seed": True}, r"TrainConfig\(seed=True\)"),
        ({"session_creator": "x"}, r"session_creator='x': expected an object with create_session"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(tmp_path, options, message):
    with pytest.raises(tpk.ConfigError, match=message):
        config(tmp_path, **options)


def test_an_option_is_checked_when_a_plugin_changes_it(tmp_path):
    run = config(tmp_path)
    with pytest.raises(tpk.ConfigError, match=r"TrainConfig\(max_epoch=-3\)"):
        run.max_epoch = -3


def test_session_creator_and_config_exclude_each_other(tmp_path):
    run = config(tmp_path, session_creator=tpk.NewSessionCreator(), session_config=tpk.default_session_config())
    with pytest.raises(tpk.ConfigError, match="exclude each other"):
        tpk.launch_train_with_config(run)


class Broken(Linear):
    def __init__(self, cost=None, optimizer=None):
        self.cost, self.broken_optimizer = cost, optimizer

    def build_graph(self, x, y):
        return super().build_graph(x, y) if self.cost is None else self.cost(x, y)

    def optimizer(self):
        return self.broken_optimizer or super().optimizer()


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (Broken(cost=lambda x, y: None), tpk.TowerError, "must return the cost"),
        (Broken(cost=lambda x, y: x @ v1.get_variable("w", [1, 1])), tpk.TowerError, "expected a scalar"),
        (Broken(cost=lambda x, y: tf.size(x)), tpk.TowerError, "expected a floating-point"),
        (Broken(cost=lambda x, y: tf.reduce_mean(x)), tpk.TowerError, "no trainable variable"),
        (
            Broken(cost=lambda x, y: tf.reduce_mean(x) + 0 * tf.stop_gradient(v1.get_variable("w", []))),
            tpk.TowerError,
            "depends on no trainable variable",
        ),
        (Broken(optimizer="sgd"), tpk.ConfigError, "tf.compat.v1.train.Optimizer"),
    ],
)
def test_a_broken_model_is_an_error_that_says_what_is_expected(tmp_path, model, error, message):
    with pytest.raises(error, match=message):
        tpk.launch_train_with_config(tpk.TrainConfig(model=model, dataflow=data(), run_dir=tmp_path / "run"))


def test_a_variable_without_gradient_is_named_in_a_warning(tmp_path, caplog):
    class Partial(Linear):
        def build_graph(self, x, y):
            v1.get_variable("unused", [])
            return super().build_graph(x, y)

    run = tpk.TrainConfig(model=Partial(), dataflow=data(), run_dir=tmp_path / "run", max_epoch=1)
    tpk.launch_train_with_config(run)
    assert "no gradient of cost:0, so not trained: unused" in caplog.messages


def test_a_graph_is_set_up_once():
    trainer, model = tpk.SimpleTrainer(), Linear()
    four = (model.get_input_signature(), tpk.FeedInput(data()), model.build_graph, model.get_optimizer)
    with pytest.raises(tpk.TrainerStateError, match="no tower function yet"):
        trainer.tower_func  # noqa: B018
    trainer.setup_graph(*four)
    with pytest.raises(tpk.TrainerStateError, match="set up already"):
        trainer.setup_graph(*four)
    with pytest.raises(tpk.InputError, match="Wrap an iterable"):
        tpk.SimpleTrainer().setup_graph(four[0], data(), *four[2:])


# Plugins that configure a run.


def test_plugins_configure_the_run_and_add_callbacks(tmp_path):
    class Plugin:
        def tpk_configure(self, config):
            config.max_epoch = 2

        def tpk_default_callbacks(self, config):
            assert config.max_epoch == 2
            return [weight]

    class Trainer(tpk.SimpleTrainer):
        def __init__(self):
            super().__init__()
            self.hooks.register_all([Plugin()])

    weight = Weight()
    tpk.launch_train_with_config(config(tmp_path), Trainer)
    assert weight.trainer.epoch_num == 2


def test_data_need_have_no_length(tmp_path):
    weight = Weight()
    flow = tpk.RepeatedData(data(), -1)
    options = config(tmp_path, dataflow=flow, steps_per_epoch=5, max_epoch=1, callbacks=[weight])
    tpk.launch_train_with_config(options, "SimpleTrainer")
    assert weight.value != 0
