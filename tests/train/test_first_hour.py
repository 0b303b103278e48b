"""The fourth-minute test: a mistake of a new user gets an error that names the thing, and says what to write."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tpk

v1 = tf.compat.v1

INPUTS = np.random.default_rng(0).normal(size=[24, 3]).astype(np.float32)
LABELS = INPUTS.sum(axis=1, keepdims=True)
POINTS = list(zip(INPUTS, LABELS, strict=True))

MISTAKES = {}


class Linear(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None, 1], tf.float32, "y")]

    def build_graph(self, x, y):
        return tf.reduce_mean((predict(x) - y) ** 2, name="cost")

    def optimizer(self):
        return v1.train.GradientDescentOptimizer(0.1)


def predict(x):
    return tpk.layers.dense(x, 1, name="linear")


def batches():
    return tpk.BatchData(POINTS, 8)


def launch(trainer="SimpleTrainer", **options):
    given = {"model": Linear(), "max_epoch": 1, "steps_per_epoch": 2, "monitors": [], "extra_callbacks": [], **options}
    if "data" not in options:
        given.setdefault("dataflow", batches())
    tpk.launch_train_with_config(tpk.TrainConfig(**given), trainer)


def launch_model(trainer="SimpleTrainer", **members):
    launch(trainer, model=type("Model", (Linear,), members)())


def launch_tower(build_graph, trainer="SimpleTrainer"):
    launch_model(trainer, build_graph=lambda self, x, y: build_graph(x, y))


def train_op(make, **options):
    """Train by what `make` returns, which is called in an `__init__`, with the trainer."""

    class LeastSquares(tpk.Trainer):
        def __init__(self):
            super().__init__()
            self.train_op = make(self)

    LeastSquares().train(**{"steps_per_epoch": 2, "max_epoch": 1, **options})


def mistake(error, *says):
    """Register a mistake, the error that it leads to, and what that must say."""

    def register(make):
        MISTAKES[make.__name__] = (make, error, says)
        return make

    return register


UNDER = "`with self.graph.as_default():`"


@mistake(tpk.TrainerStateError, "train_op of LeastSquares", "an eager", UNDER)
def an_eager_train_op():
    train_op(lambda trainer: tf.Variable(0.0).assign_add(1.0))


@mistake(tpk.TrainerStateError, "LeastSquares has no train_op", UNDER)
def an_eager_minimization():
    weight = tf.Variable(1.0)
    train_op(lambda trainer: v1.train.GradientDescentOptimizer(0.1).minimize(lambda: weight**2))


@mistake(
    tpk.TrainerStateError, "train_op of LeastSquares", "AssignAdd", "expected an op or tensors of its graph", UNDER
)
def a_train_op_of_another_graph():
    def make(trainer):
        with tf.Graph().as_default():
            return v1.assign_add(v1.get_variable("w", [], use_resource=False), 1.0)

    train_op(make)


@mistake(tpk.TrainerStateError, "train_op of LeastSquares", "function", "Override run_step()")
def a_function_as_train_op():
    train_op(lambda trainer: lambda: 1)


@mistake(tpk.TrainerStateError, "train_op of LeastSquares", "'no_such_op'", "expected an op or tensors")
def a_train_op_by_a_wrong_name():
    train_op(lambda trainer: "no_such_op")


@mistake(tpk.TrainerStateError, "train_op of LeastSquares", "3", "expected an op or tensors")
def a_number_as_train_op():
    train_op(lambda trainer: 3)


class Counting(tpk.Trainer):
    def __init__(self):
        super().__init__()
        with self.graph.as_default():
            self.counter = v1.get_variable("counter", initializer=0)
            self.train_op = self.counter.assign_add(1)


@mistake(
    tpk.HookError, "EarlyStopping has hooks of another framework", "on_train_begin is 'before_train'", "on_epoch_end"
)
def a_callback_of_keras():
    launch(callbacks=[tf.keras.callbacks.EarlyStopping(patience=3)])


@mistake(
    tpk.UnknownPluginError, "'ModelCheckpoint' is a name of another library", "'ModelSaver' for the last checkpoints"
)
def the_name_of_a_callback_of_keras():
    launch(callbacks=["ModelCheckpoint"])


@mistake(AttributeError, "'ModelCheckpoint' is a name of another library", "tpk.MinSaver('validation_cost')")
def a_callback_of_keras_as_attribute():
    _ = tpk.ModelCheckpoint


@mistake(AttributeError, "no attribute 'phases'", "call super().__init__() first, in Forgetful.__init__")
def no_super_init():
    class Forgetful(tpk.Trainer):
        def __init__(self):
            self.times = 3

        def run_step(self):
            pass

    Forgetful().train(steps_per_epoch=1, max_epoch=1)


@mistake(AttributeError, "no attribute 'graph'", "call super().__init__() first, in Early.__init__")
def super_init_too_late():
    class Early(tpk.Trainer):
        def __init__(self):
            with self.graph.as_default():
                super().__init__()

    Early()


@mistake(AttributeError, "'Forgetful' object has no attribute", "call super().__init__() first, in Forgetful.__init__")
def no_super_init_of_a_launched_trainer():
    launch(type("Forgetful", (tpk.SimpleTrainer,), {"__init__": lambda self: None})())


@mistake(tpk.TrainerStateError, "Counting has a session only while it trains", "Use it in run_step(), or in a hook")
def a_session_before_the_training():
    trainer = Counting()
    trainer.sess.run(trainer.counter)


@mistake(tpk.TrainerStateError, "Counting has a session only while it trains", "tpk.CheckpointReader(path)")
def a_session_after_the_training():
    trainer = Counting()
    trainer.train(steps_per_epoch=1, max_epoch=1)
    trainer.sess.run(trainer.counter)


@mistake(AttributeError, "no attribute 'hooked_sess'", "Use it in run_step(), or in a hook from before_train on")
def a_hooked_session_before_the_training():
    trainer = Counting()
    trainer.hooked_sess.run(trainer.counter)


@mistake(AttributeError, "'Counting' object has no attribute 'trian_op'")
def an_attribute_that_does_not_exist():
    _ = Counting().trian_op


@mistake(AttributeError, "no attribute 'fit'", "tpk.launch_train_with_config(config, trainer)")
def fit():
    tpk.SimpleTrainer().fit(config())


@mistake(AttributeError, "no attribute 'validate'", "call tpk.evaluate(model, data")
def validate():
    tpk.SimpleTrainer().validate(batches())


@mistake(AttributeError, "no attribute 'test'", "call tpk.evaluate(model, data")
def run_the_test_of_a_trainer():
    tpk.SimpleTrainer().test(batches())


@mistake(AttributeError, "no attribute 'predict'", "use tpk.OfflinePredictor")
def predict_of_a_trainer():
    tpk.SimpleTrainer().predict(INPUTS)


@mistake(tpk.InputError, "FeedInput: there is no data", "list has no datapoint")
def no_data():
    launch(dataflow=[], steps_per_epoch=None)


@mistake(tpk.InputError, "QueueInput: there is no data", "list has no datapoint")
def no_data_in_a_queue():
    launch("QueueInputTrainer", dataflow=[])


@mistake(tpk.InputError, "QueueInput: there is no data", "generator has no datapoint")
def no_data_of_unknown_length():
    launch(data=tpk.QueueInput((point for point in []), infinite=False))


@mistake(tpk.InputError, "BatchData makes no batch of 128 from 24 datapoints", "remainder=True")
def less_data_than_a_batch():
    launch(dataflow=tpk.MapData(tpk.BatchData(POINTS, 128), lambda point: point), steps_per_epoch=None)


@mistake(tpk.InputError, "BatchData makes no batch of 128 from too few datapoints", "remainder=True")
def less_data_of_unknown_length_than_a_batch():
    launch(dataflow=tpk.BatchData(tpk.DataFromGenerator(lambda: iter(POINTS)), 128))


def load(point):
    return None


@mistake(tpk.InputError, "MapData drops datapoints, because load returns None for them")
def a_function_that_drops_everything():
    launch(dataflow=tpk.BatchData(tpk.MapData(POINTS, load), 4))


@mistake(tpk.InputError, "MapData drops datapoints, because load returns None for them")
def a_function_that_drops_every_batch():
    launch(dataflow=tpk.MapData(tpk.BatchData(POINTS, 4), functools.partial(load)))


@mistake(tpk.InputError, "MapDataComponent drops datapoints, because load returns None for them")
def a_function_of_a_component_that_drops_everything():
    launch(data=tpk.BatchQueueInput(tpk.MapDataComponent(POINTS, load, 0), 4), steps_per_epoch=5)


@mistake(tpk.InputError, "BatchQueueInput: there is no data", "no batch of 128 from 24 datapoints", "Lower batch_size")
def less_data_than_a_batch_of_the_queue():
    launch(data=tpk.StagingInput(tpk.BatchQueueInput(POINTS, 128)))


@mistake(tpk.InputError, "'x'", "single datapoint", "write tpk.BatchData(flow, batch_size)")
def data_without_batches():
    launch(dataflow=POINTS)


@mistake(tpk.InputError, "'x'", "single datapoint", "write dataset.batch(batch_size)")
def a_dataset_without_batches():
    launch(data=tpk.TFDatasetInput(lambda: tf.data.Dataset.from_tensor_slices((INPUTS, LABELS))))


@mistake(tpk.InputError, "'x'", "one batch dimension too many", "remove one tpk.BatchData")
def data_batched_twice():
    launch(dataflow=tpk.BatchData(batches(), 2))


@mistake(tpk.InputError, "'x'", "one batch dimension too many", "remove one tpk.BatchData")
def data_batched_before_the_queue_that_does():
    launch(data=tpk.BatchQueueInput(batches(), 2))


@mistake(tpk.InputError, "'x'", "one batch dimension too many", "add None to the front")
def batches_where_one_datapoint_is_wanted():
    launch_model(
        inputs=lambda self: [tf.TensorSpec([3], tf.float32, "x"), tf.TensorSpec([1], tf.float32, "y")],
        build_graph=lambda self, x, y: tf.reduce_mean((predict(x[None]) - y) ** 2),
    )


@mistake(tpk.InputError, "datapoint 0 is ndarray", "list(zip(x, y))")
def arrays_in_place_of_datapoints():
    launch(dataflow=(INPUTS, LABELS))


@mistake(tpk.InputError, "datapoint 0 is of type ndarray, which is not a list, tuple or dict", "[image]")
def arrays_in_batches_in_place_of_datapoints():
    launch(dataflow=tpk.BatchData(list(INPUTS), 8))


@mistake(tpk.ConfigError, "dataflow=...", "wrap", "DataFromGenerator")
def a_generator_function_as_data():
    def points():
        yield from POINTS

    launch(dataflow=points)


@mistake(tpk.ConfigError, "QueueInput is an input source", "Write data=")
def an_input_source_as_dataflow():
    launch(dataflow=tpk.QueueInput(batches()))


@mistake(tpk.ConfigError, "expected a tpk.InputSource", "BatchData", "dataflow=")
def a_dataflow_as_input_source():
    launch(data=batches())


@mistake(tpk.TowerError, "Less.build_graph(x)", "x, y", "one argument for each")
def a_tower_function_that_takes_less():
    class Less(Linear):
        def build_graph(self, x):
            return tf.reduce_mean(predict(x))

    launch(model=Less())


@mistake(tpk.TowerError, "returned None", "Return the cost alone")
def a_tower_function_without_a_result():
    launch_tower(lambda x, y: None)


@mistake(tpk.TowerError, "returned (<tf.Tensor", "Return the cost alone")
def a_tower_function_that_returns_more():
    def build_graph(x, y):
        prediction = predict(x)
        return tf.reduce_mean((prediction - y) ** 2), prediction

    launch_tower(build_graph)


@mistake(tpk.TowerError, "shape (None, 1)", "tf.reduce_mean")
def a_cost_that_is_no_scalar():
    launch_tower(lambda x, y: (predict(x) - y) ** 2)


@mistake(
    tpk.TowerError, "created variables when it was called again", "tf.compat.v1.get_variable", "not by tf.Variable"
)
def a_variable_of_tf2_in_towers():
    launch_tower(lambda x, y: tf.reduce_mean(x @ tf.Variable(tf.zeros([3, 1]))), tpk.use("parameter_server", devices=2))


def config():
    return tpk.TrainConfig(model=Linear(), dataflow=batches())


@mistake(tpk.ConfigError, "launch_train_with_config got a str instead of a tpk.TrainConfig", "Write tpk.launch")
def a_launch_the_other_way_round():
    tpk.launch_train_with_config("SimpleTrainer", config())


@mistake(tpk.ConfigError, "devices=[0, 1]", "['/gpu:0', '/gpu:1']", "make_trainer('replicated', devices=[0, 1])")
def towers_on_numbers():
    with tf.Graph().as_default():
        tpk.build_on_multi_tower([0, 1], lambda: tf.constant(1.0))


@mistake(tpk.TrainerStateError, "get_predictor() comes too late", "tpk.OfflinePredictor(", "session_init='<run dir")
def a_predictor_after_the_training():
    trainer = tpk.SimpleTrainer()
    model = Linear()
    trainer.setup_graph(model.inputs(), tpk.FeedInput(batches()), model.build_graph, model.optimizer)
    trainer.train(steps_per_epoch=1, max_epoch=1)
    trainer.get_predictor(["x"], ["linear/BiasAdd"])


@mistake(tpk.ConfigError, "expected a tpk.ModelDesc", "Write model=Linear()")
def a_class_as_model():
    launch(model=Linear)


@mistake(tpk.ConfigError, "expected a tpk.ModelDesc", "tpk_keras.KerasModel")
def a_model_of_keras():
    launch(model=tf.keras.Sequential([tf.keras.layers.Dense(1)]))


@mistake(tpk.ConfigError, "expected a tpk.ModelDesc", "Derive a class", "build_graph")
def a_function_as_model():
    launch(model=lambda x, y: 1)


@mistake(tpk.ConfigError, "Adam", "expected a tf.compat.v1.train.Optimizer", "AdamOptimizer(1e-3)")
def an_optimizer_of_keras():
    launch_model(optimizer=lambda self: tf.keras.optimizers.Adam(1e-3))


@mistake(tpk.ConfigError, "AdamOptimizer(1e-3)", "an instance")
def a_class_as_optimizer():
    launch_model(optimizer=lambda self: v1.train.AdamOptimizer)


@mistake(tpk.ConfigError, "Model.optimizer is", "expected a method", "def optimizer(self)")
def an_optimizer_that_is_no_method():
    launch_model(optimizer=v1.train.AdamOptimizer(0.1))


@mistake(tpk.ConfigError, "get_optimizer is", "Write lambda: ")
def an_optimizer_that_is_no_function():
    model = Linear()
    trainer = tpk.SimpleTrainer()
    trainer.setup_graph(model.inputs(), tpk.FeedInput(batches()), model.build_graph, model.optimizer())


@mistake(tpk.InputError, "element 0", "expected tf.TensorSpec(shape, dtype, name)")
def tuples_as_signature():
    launch_model(inputs=lambda self: [([None, 3], tf.float32, "x"), ([None, 1], tf.float32, "y")])


@mistake(tpk.InputError, "Model.inputs makes a placeholder", "tf.TensorSpec(shape, dtype, name)")
def placeholders_as_signature():
    launch_model(inputs=lambda self: [v1.placeholder(tf.float32, [None, 3], "x")])


@mistake(tpk.InputError, "element 0", "expected tf.TensorSpec(shape, dtype, name)")
def placeholders_of_a_graph_as_signature():
    with tf.Graph().as_default():
        launch_model(inputs=lambda self: [v1.placeholder(tf.float32, [None, 3], "x")])


@mistake(tpk.InputError, "the input signature is TensorSpec", "expected a list: [tf.TensorSpec(")
def one_spec_as_signature():
    launch_model(inputs=lambda self: tf.TensorSpec([None, 3], tf.float32, "x"))


@mistake(tpk.ConfigError, "Model.inputs is [TensorSpec", "expected a method", "def inputs(self)")
def a_signature_that_is_no_method():
    launch_model(inputs=Linear().inputs())


@mistake(tpk.ConfigError, "callbacks=ModelSaver()", "expected a list, e.g. [ModelSaver()]")
def one_callback():
    launch(callbacks=tpk.ModelSaver())


@mistake(tpk.UnknownOptionError, "epochs=", "write max_epoch")
def epochs():
    launch(epochs=3)


@mistake(TypeError, "max_epochs=", "write max_epoch")
def max_epochs():
    launch(max_epochs=3)


@mistake(tpk.ConfigError, "the trainer has no data", "Give steps_per_epoch")
def an_epoch_without_data():
    train_op(lambda trainer: tf.no_op(), steps_per_epoch=None)


@mistake(tpk.ConfigError, "EarlyStopping: patience must be an integer, 1 or more, not None")
def no_patience():
    launch(callbacks=[tpk.EarlyStopping("cost", patience=None)])


@mistake(tpk.ConfigError, "expected the name of a statistic, such as 'validation_cost', not ['cost']")
def several_statistics():
    launch(callbacks=[tpk.EarlyStopping(["cost"], patience=1)])


@mistake(tpk.ConfigError, "expected the name of a statistic, such as 'validation_cost', not 0.5")
def a_number_as_statistic():
    launch(callbacks=[tpk.MinSaver(0.5)])


@mistake(TypeError, "steps=", "write steps_per_epoch")
def steps():
    launch(steps=3)


@mistake(TypeError, "batch_size=", "BatchData(flow, batch_size)")
def batch_size():
    launch(batch_size=32)


@mistake(TypeError, "nr_tower=", "give it to the trainer", "devices=2")
def towers_of_a_config():
    launch(nr_tower=2)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.tf2_only("many of the mistakes are made in eager mode")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_what_to_write(name):
    make, error, says = MISTAKES[name]
    with pytest.raises(error) as caught:
        make()
    first_line = str(caught.value).splitlines()[0]
    assert [part for part in says if part not in first_line] == []
    assert len(str(caught.value)) < 500


@pytest.mark.tf2_only("many of the mistakes are made in eager mode")
def test_the_last_line_of_a_script_says_it(tmp_path):
    script = tmp_path / "train.py"
    lines = inspect.getsource(Linear).splitlines()
    body = [
        "import numpy as np, tensorflow as tf, tpk",
        "def predict(x): return tpk.layers.dense(x, 1, name='linear')",
        *[line.replace("v1.", "tf.compat.v1.") for line in lines],
        "data = [[np.zeros(3), np.zeros(1)]] * 8",
        "tpk.launch_train_with_config(tpk.TrainConfig(model=Linear(), dataflow=data, max_epoch=1))",
    ]
    script.write_text("\n".join(body))
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=280)
    assert ended.returncode == 1
    said = [
        line for line in ended.stderr.splitlines() if line.startswith("tpk.errors.InputError: FeedInput: datapoint 0")
    ]
    assert len(said) == 1
    assert "write tpk.BatchData(flow, batch_size)" in said[0]


def test_trainers_have_the_signature_of_their_class():
    assert {"devices", "mode", "precision"} <= inspect.signature(tpk.SyncMultiGPUTrainerReplicated).parameters.keys()
    assert not inspect.signature(tpk.Trainer).parameters


def test_an_evaluation_may_have_an_empty_share_and_a_training_may_not():
    source = tpk.FeedInput([], infinite=False)
    assert source.end_after_each_pass()
    (callback,) = source.setup([tf.TensorSpec([], tf.float32, "x")])
    with tf.Graph().as_default():
        fetched = tf.compat.v1.train.SessionRunArgs(source.get_input_tensors())
    source.start(None)
    with pytest.raises(tf.errors.OutOfRangeError):
        callback.before_run(tf.compat.v1.train.SessionRunContext(fetched, None))
    source.stop()
