"""Input sources under a trainer, its session and its loop."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest
import tensorflow as tf

import tpk
from tpk.dataflow import DataFromGenerator, MapData, MultiProcessMapData, MultiThreadMapData, MultiThreadRunner
from tpk.errors import InputError
from tpk.input_source import StagingInput


class Seen(tpk.Callback):
    """Records the input of each step."""

    def __init__(self):
        self.values = []

    def before_train(self, trainer):
        self.tensor = trainer.graph.get_tensor_by_name("seen:0")

    def before_run(self, run_context):
        return self.tensor

    def after_run(self, run_context, run_values):
        self.values.append(int(run_values.results))


def cost(number):
    seen = tf.identity(number, name="seen")
    weight = tf.compat.v1.get_variable("weight", [])
    return weight * tf.cast(seen, tf.float32)


def train(source, specs, *, steps, epochs=1, callbacks=()):
    trainer = tpk.SimpleTrainer()
    trainer.setup_graph(specs("number"), source, cost, lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1))
    seen = Seen()
    trainer.train(callbacks=[seen, *callbacks], steps_per_epoch=steps, max_epoch=epochs)
    return seen.values


def failing(good=3):
    yield from ([number] for number in range(good))
    raise ZeroDivisionError("in the user's data code")


def staged(flow, **options):
    return StagingInput(tpk.QueueInput(flow, **options))


SOURCES = [tpk.FeedInput, tpk.QueueInput, tpk.TFDatasetInput, staged]


@pytest.mark.parametrize("source", SOURCES)
def test_a_training_sees_each_datapoint_in_order(source, specs):
    flow = [[number] for number in range(5)]
    assert train(source(flow), specs, steps=4, epochs=3) == [step % 5 for step in range(12)]


class NoInputs(tpk.ModelDesc):
    """A model that makes all of its data in the graph."""

    def inputs(self):
        return []

    def build_graph(self):
        return tf.identity(cost(tf.constant(2)), name="cost")

    def optimizer(self):
        return tf.compat.v1.train.GradientDescentOptimizer(0.1)


def train_without_inputs(source):
    runner = tpk.InferenceRunner(tpk.TensorInput(lambda: [], size=2), tpk.ScalarStats("cost"))
    callbacks = [Seen(), runner] if isinstance(source, tpk.TensorInput) else []
    config = tpk.TrainConfig(
        model=NoInputs(), data=source, callbacks=callbacks, monitors=[], steps_per_epoch=3, max_epoch=1
    )
    return tpk.launch_train_with_config(config, tpk.SimpleTrainer())


def test_a_model_may_have_no_inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer = train_without_inputs(tpk.TensorInput(lambda: []))
    assert trainer.global_step == 3
    assert "validation_cost" in trainer.history


@pytest.mark.parametrize("source", SOURCES)
def test_data_for_a_model_without_inputs_is_an_error(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no inputs"):
        train_without_inputs(source([[1]]))


@pytest.mark.parametrize("strategy", ["single", "replicated", "parameter_server"])
def test_a_function_that_makes_tensors_may_count_for_each_tower(strategy, tmp_path):
    class Counts(tpk.Callback):
        def trigger_epoch(self, trainer):
            made = [each for each in count.variables if each.graph is trainer.graph]
            self.values = trainer.sess.run(made)

    def count():
        count.variables.append(tf.Variable(0.0, trainable=False, name="count"))
        return [count.variables[-1].assign_add(1.0)]

    count.variables = []
    for epochs in (1, 2):
        counts = Counts()
        with tf.Graph().as_default():
            trainer = tpk.SingleCostTrainer(strategy if strategy == "single" else tpk.use(strategy, devices=2))
            trainer.setup_graph([tf.TensorSpec([], tf.float32, "x")], tpk.TensorInput(count), cost, sgd)
            options = {"steps_per_epoch": 3, "max_epoch": epochs, "run_dir": tmp_path, "resume": "auto"}
            trainer.train(callbacks=[counts, tpk.ModelSaver()], **options)
        assert counts.values == [3.0 * epochs] * trainer.strategy.num_replicas


def sgd():
    return tf.compat.v1.train.GradientDescentOptimizer(0.1)


class RunsMore(tpk.Callback):
    """Calls `hooked_sess.run` once more in each step: before the run of the step, or after it."""

    def __init__(self, fetched, moment):
        self.fetched, self.moment = fetched, moment
        self.is_running = False
        self.counted = []

    def setup_graph(self, trainer):
        tf.no_op(name="nothing")
        self.counter = tf.compat.v1.train.get_global_step()

    def before_run(self, run_context):
        if self.moment == "before_run" and not self.is_running:
            self.is_running = True
            self.trainer.hooked_sess.run(self.fetched)
            self.is_running = False

    def trigger_step(self, trainer):
        if self.moment == "trigger_step":
            trainer.hooked_sess.run(self.fetched)
        self.counted.append(int(trainer.sess.run(self.counter)))


class SeesItsInput(tpk.SimpleTrainer):
    def run_step(self):
        self.seen = [*getattr(self, "seen", ()), int(self.hooked_sess.run([self.train_op, "seen:0"])[1])]


@pytest.mark.parametrize("moment", ["before_run", "trigger_step"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_run_takes_a_datapoint_only_if_it_depends_on_the_inputs(source, specs, moment):
    seen = {}
    for fetched in ("nothing", "seen:0"):
        trainer, more = SeesItsInput(), RunsMore(fetched, moment)
        flow = [[number] for number in range(10)]
        trainer.setup_graph(specs("number"), source(flow), cost, lambda: tf.compat.v1.train.GradientDescentOptimizer(1))
        trainer.train(callbacks=[more], steps_per_epoch=4, max_epoch=1)
        assert more.counted == [1, 2, 3, 4]
        seen[fetched] = trainer.seen
    assert seen == {"nothing": [0, 1, 2, 3], "seen:0": [1, 3, 5, 7] if moment == "before_run" else [0, 2, 4, 6]}


@pytest.mark.parametrize("source", [tpk.FeedInput, tpk.QueueInput])
def test_a_run_takes_a_datapoint_for_what_a_callback_fetches_along(source, specs):
    assert train(
        source([[number] for number in range(10)]), specs, steps=4, callbacks=[RunsMore("nothing", "trigger_step")]
    ) == list(range(8))


@pytest.mark.parametrize("source", SOURCES)
def test_a_finite_source_ends_the_training_in_good_order(source, specs):
    flow = [[number] for number in range(5)]
    assert train(source(flow, infinite=False), specs, steps=3, epochs=100) == list(range(5))


@pytest.mark.parametrize("source", SOURCES)
def test_an_error_of_the_data_code_comes_out_of_train(source, specs):
    with pytest.raises(ZeroDivisionError, match="in the user's data code") as caught:
        train(source(DataFromGenerator(failing)), specs, steps=10)
    assert caught.traceback[-1].name == "failing"
    assert "datapoint 3 from DataFromGenerator" in caught.value.__notes__[0]


def leaves(good=3):
    yield from ([number] for number in range(good))
    sys.exit(0)


def gives_up():
    yield [0]
    raise GeneratorExit


def interrupts():
    yield [0]
    raise KeyboardInterrupt


def leaves_in_the_second(datapoint):
    return datapoint if datapoint == [0] else sys.exit(0)


class LeavesAtTheStart(tpk.DataFlow):
    def reset_state(self):
        sys.exit(0)

    def __iter__(self):
        yield [0]


class LeavesWhereItStands(tpk.DataFlow):
    def __iter__(self):
        yield from ([number] for number in range(100))

    def state_dict(self):
        sys.exit(0)

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: DataFromGenerator(leaves), r"SystemExit\(0\) in leaves, line \d+ of .*test_input_in_training.py"),
        (lambda: DataFromGenerator(gives_up), "GeneratorExit.* in gives_up"),
        (LeavesAtTheStart, "SystemExit.* in reset_state"),
    ],
    ids=["exit", "generator exit", "reset_state"],
)
def test_data_code_that_ends_the_process_is_an_error_of_the_data(source, make, where, specs):
    with pytest.raises(tpk.InputError, match=where) as caught:
        train(source(make()), specs, steps=10)
    assert not isinstance(caught.value.__cause__, tpk.InputError)


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: MultiThreadRunner(lambda: DataFromGenerator(leaves), 1), "thread 1 of 1 of .* in leaves"),
        (lambda: MultiThreadRunner(lambda: DataFromGenerator(interrupts), 1), "KeyboardInterrupt.* in interrupts"),
        (lambda: MultiThreadMapData([[0], [1]], 2, leaves_in_the_second), "SystemExit.* in leaves_in_the_second"),
        (lambda: MultiProcessMapData([[0]], 1, lambda datapoint: sys.exit(0)), "worker 1 of 1 .*SystemExit: 0"),
        (lambda: MapData([[0], [1]], leaves_in_the_second), "SystemExit.* in leaves_in_the_second"),
    ],
    ids=["thread", "interrupt in a thread", "thread map", "process map", "map"],
)
def test_so_it_is_wherever_the_data_code_runs(make, where, specs):
    with pytest.raises(tpk.InputError, match=where):
        train(tpk.FeedInput(make()), specs, steps=10)


def test_so_it_is_in_the_position_of_a_flow(specs):
    with pytest.raises(tpk.InputError, match=r"SystemExit.* in state_dict"):
        train(tpk.QueueInput(LeavesWhereItStands()), specs, steps=30)


@pytest.mark.parametrize("source", [tpk.QueueInput, tpk.TFDatasetInput, staged])
def test_an_interrupt_that_data_code_raises_in_a_thread_is_none_of_the_users(source, specs):
    with pytest.raises(tpk.InputError, match=r"KeyboardInterrupt\(\) in interrupts"):
        train(source(DataFromGenerator(interrupts)), specs, steps=10)


def test_an_interrupt_in_data_code_in_the_main_thread_is_the_users(specs):
    with pytest.raises(KeyboardInterrupt):
        train(tpk.FeedInput(DataFromGenerator(interrupts)), specs, steps=10)


def test_a_signal_handler_of_the_users_may_end_the_process_while_data_code_runs(specs):
    def on_signal(number, frame):
        sys.exit(7)

    def signalled():
        yield [0]
        signal.raise_signal(signal.SIGUSR2)
        yield [1]

    former = signal.signal(signal.SIGUSR2, on_signal)
    try:
        with pytest.raises(SystemExit) as caught:
            train(tpk.FeedInput(DataFromGenerator(signalled)), specs, steps=10)
    finally:
        signal.signal(signal.SIGUSR2, former)
    assert caught.value.code == 7


def test_the_process_of_a_training_whose_data_code_leaves_does_not_exit_with_success():
    code = """
        import sys
        import tensorflow as tf
        import tpk

        def leaves():
            yield [0.0]
            sys.exit(0)

        trainer = tpk.SimpleTrainer()
        trainer.setup_graph(
            [tf.TensorSpec([], tf.float32, "x")],
            tpk.FeedInput(tpk.DataFromGenerator(leaves)),
            lambda x: x * tf.compat.v1.get_variable("w", []),
            lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1),
        )
        trainer.train(steps_per_epoch=10, max_epoch=1)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 1, done.stderr
    assert "InputError: FeedInput: the data code raised SystemExit(0) in leaves, line 8 of <string>" in done.stderr


def test_tensorflow_itself_tells_of_a_dataset_whose_function_leaves(specs):
    def dataset():
        signature = (tf.TensorSpec([], tf.int32),)
        return tf.data.Dataset.from_generator(lambda: map(tuple, leaves()), output_signature=signature)

    with pytest.raises(tf.errors.OpError, match="SystemExit"):
        train(tpk.TFDatasetInput(dataset), specs, steps=10)


@pytest.mark.parametrize("source", SOURCES)
def test_a_wrong_datapoint_comes_out_of_train(source, specs):
    with pytest.raises(tpk.InputError, match=r"datapoint 1, component 0 \('number'\)"):
        train(source([[0], [0.5]]), specs, steps=10)


class Passes(tpk.callbacks.Inferencer):
    """Records the input of each step of each inference."""

    def __init__(self):
        self.passes = []

    def get_fetches(self, tower):
        return tower.get_tensor("seen")

    def before_inference(self):
        self.passes.append([])

    def on_fetches(self, results):
        self.passes[-1].append(int(results))

    def after_inference(self):
        return {}


@pytest.mark.parametrize("source", SOURCES)
def test_each_inference_starts_from_the_beginning(source, specs):
    inferences = Passes()
    runner = tpk.InferenceRunner(source([[10], [11], [12]]), inferences)
    assert train(tpk.QueueInput([[0], [1]]), specs, steps=3, epochs=2, callbacks=[runner]) == [0, 1, 0, 1, 0, 1]
    assert inferences.passes == [[10, 11, 12]] * 2


@pytest.mark.parametrize("source", SOURCES)
def test_an_error_of_the_data_of_an_inference_comes_out_of_train(source, specs):
    runner = tpk.InferenceRunner(source([[10], ["eleven"]]), Passes())
    with pytest.raises(tpk.InputError, match="datapoint 1"):
        train(tpk.FeedInput([[0]]), specs, steps=1, callbacks=[runner])
