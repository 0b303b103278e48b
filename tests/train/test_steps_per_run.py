"""Many steps in one run: what they compute is what they would, each in a run of its own."""

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError
from tpk.graph.compiled_loop import repeat_compiled

STEPS = 23

rng = np.random.default_rng(0)
IMAGES = rng.normal(size=(40, 4, 6, 6, 1)).astype(np.float32)
LABELS = rng.integers(0, 3, size=(40, 4)).astype(np.int32)
BATCHES = list(zip(IMAGES, LABELS, strict=True))


class Model(tpk.ModelDesc):
    """A convolution, batch normalization, dropout, a moving summary, a schedule in the graph."""

    def __init__(self, optimizer="momentum"):
        self._optimizer = optimizer

    def inputs(self):
        return [tf.TensorSpec([4, 6, 6, 1], tf.float32, "image"), tf.TensorSpec([4], tf.int32, "label")]

    def build_graph(self, image, label):
        training = tpk.get_current_tower_context().is_training
        net = tpk.layers.conv2d(image, 4, 3)
        net = tf.nn.relu(tpk.layers.batch_normalization(net, training=training))
        net = tpk.layers.dropout(tpk.layers.flatten(net), 0.3, training=training)
        logits = tpk.layers.dense(net, 3)
        cost = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits), name="cost")
        tpk.add_moving_summary(cost)
        return cost

    def optimizer(self):
        rate = tf.compat.v1.train.exponential_decay(0.05, tf.compat.v1.train.get_or_create_global_step(), 5, 0.9)
        if self._optimizer == "adam":
            return tf.compat.v1.train.AdamOptimizer(rate)
        return tf.compat.v1.train.MomentumOptimizer(rate, 0.9)


def dataset():
    return tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))


def drawn():
    shuffled = tpk.graph.random.normal([4, 6, 6, 1], name="images")
    return [shuffled, tf.constant([0, 1, 2, 0], tf.int32)]


INPUTS = {
    "queue": lambda: tpk.QueueInput(BATCHES),
    "staging": lambda: tpk.StagingInput(tpk.QueueInput(BATCHES)),
    "dataset": lambda: tpk.TFDatasetInput(dataset),
    "tensors": lambda: tpk.TensorInput(drawn),
}
STRATEGIES = {
    "single": "single",
    "replicated": tpk.use("replicated", devices=2),
    "parameter_server": tpk.use("parameter_server", devices=2),
}


class Values(tpk.Callback):
    """Reads all variables at the end, and notes where the steps of the runs were."""

    def __init__(self):
        self.values = {}
        self.steps = []

    def trigger_step(self, trainer):
        self.steps.append((trainer.local_step, trainer.global_step))

    def after_train(self, trainer):
        variables = trainer.graph.get_collection("variables")
        self.values = dict(zip([v.name for v in variables], trainer.sess.run(variables), strict=True))


def train(k, strategy="single", data="queue", model=None, callbacks=(), steps=STEPS, epochs=2, **options):
    values = Values()
    config = tpk.TrainConfig(
        model=model or Model(),
        data=INPUTS[data]() if isinstance(data, str) else data,
        callbacks=[values, *callbacks],
        monitors=[],
        steps_per_epoch=steps,
        max_epoch=epochs,
        steps_per_run=k,
        seed=3,
        **options,
    )
    trainer = tpk.launch_train_with_config(config, strategy)
    return values, trainer


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("data", INPUTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_variables_are_the_same_bits(strategy, data, tmp_path):
    """Whatever k is, and whether it divides the steps of the epoch."""
    alone, _ = train(1, STRATEGIES[strategy], data, run_dir=tmp_path / "1")
    many, trainer = train(8, STRATEGIES[strategy], data, run_dir=tmp_path / "8")
    assert many.steps == [(7, 8), (15, 16), (22, 23), (7, 31), (15, 39), (22, 46)]
    assert trainer.global_step == alone.values["global_step:0"] == 2 * STEPS
    assert_same_bits(alone.values, many.values)


@pytest.mark.parametrize("data", ["tensors", "queue", "staging"])
@pytest.mark.tf2_only("XLA does not compile reference variables")
def test_a_compiled_loop_computes_the_same(data, tmp_path):
    """XLA rounds otherwise, in the last bits; data and draws are the same."""
    alone, _ = train(1, tpk.use("single"), data, run_dir=tmp_path / "1")
    trainer = tpk.SimpleTrainer(xla=True)
    many, _ = train(8, trainer, data, run_dir=tmp_path / "8")
    assert many.steps == [(7, 8), (15, 16), (22, 23), (7, 31), (15, 39), (22, 46)]
    assert trainer.global_step == alone.values["global_step:0"] == 2 * STEPS
    for name, value in alone.values.items():
        np.testing.assert_allclose(many.values[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.tf2_only("XLA does not compile reference variables")
def test_a_compiled_loop_runs_where_its_variables_are(tmp_path):
    """The sums of the epoch's means are on the first CPU, as on a host with GPUs, where the variables are on a GPU."""
    strategy = tpk.use("replicated", devices="/cpu:1")
    alone, _ = train(1, strategy, run_dir=tmp_path / "1")
    many, trainer = train(8, tpk.SingleCostTrainer(strategy, xla=True), run_dir=tmp_path / "8")
    assert {v.device for v in trainer.graph.get_collection("trainable_variables")} == {"/device:CPU:1"}
    for name, value in alone.values.items():
        np.testing.assert_allclose(many.values[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


class Branches(Model):
    """Branches and loops in each other, and draws within them."""

    def build_graph(self, image, label):
        scale = tf.compat.v1.get_variable("scale", [8], initializer=tf.compat.v1.ones_initializer())
        shift = tf.Variable(tf.zeros([8]))
        net = tpk.layers.dense(tpk.layers.flatten(image), 8)
        net = tf.cond(
            tf.reduce_mean(net) > 0,
            lambda: tf.cond(tf.reduce_sum(net) > 1, lambda: tf.tanh(net * scale) + shift, lambda: net),
            lambda: tf.sigmoid(net - scale),
        )
        net = tf.map_fn(lambda row: row * scale, net)
        _, net = tf.while_loop(
            lambda i, _: i < 3,
            lambda i, x: (i + 1, tpk.graph.random.dropout(tf.tanh(x), 0.1) + scale),
            [tf.constant(0), net],
            maximum_iterations=3,
        )
        logits = tpk.layers.dense(tf.slice(net, [0, 1], [-1, 4]), 3)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits), name="cost")

    def optimizer(self):
        step = tf.compat.v1.train.get_or_create_global_step()
        rate = tf.compat.v1.train.piecewise_constant(step, [5, 20], [0.1, 0.05, 0.01])
        return tpk.graph.AccumGradOptimizer(tf.compat.v1.train.MomentumOptimizer(rate, 0.9), 3)


class AnySize(Model):
    """Takes batches of any size, and draws for what it computes of them."""

    def inputs(self):
        return [tf.TensorSpec([None, 6, 6, 1], tf.float32, "image"), tf.TensorSpec([None], tf.int32, "label")]


UNEVEN = [(image[:2], label[:2]) if i % 10 == 9 else (image, label) for i, (image, label) in enumerate(BATCHES)]


@pytest.mark.parametrize(("model", "batches"), [(Branches, BATCHES), (AnySize, UNEVEN)])
@pytest.mark.tf2_only("XLA does not compile reference variables")
def test_a_compiled_loop_takes_control_flow_and_batches_of_any_size(model, batches, tmp_path):
    costs, of_last_steps = [], []
    alone, _ = train(1, "single", tpk.QueueInput(batches), model(), [Fetch(costs)], run_dir=tmp_path / "1")
    xla = tpk.SimpleTrainer(xla=True)
    many, _ = train(8, xla, tpk.QueueInput(batches), model(), [Fetch(of_last_steps)], run_dir=tmp_path / "8")
    assert xla.global_step == 2 * STEPS
    np.testing.assert_allclose(of_last_steps, [costs[step] for step in (7, 15, 22, 30, 38, 45)], rtol=1e-3)
    for name, value in alone.values.items():
        np.testing.assert_allclose(many.values[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "xla", [False, pytest.param(True, marks=pytest.mark.tf2_only("XLA does not compile reference variables"))]
)
def test_the_end_of_the_data_within_a_run_loses_nothing(xla, tmp_path):
    """The steps that were done count, and are reported like any other."""

    def finite():
        return tpk.QueueInput(BATCHES[:11], infinite=False)

    reported = []
    fetches = Fetch(reported)
    alone, _ = train(1, data=finite(), run_dir=tmp_path / "1")
    trainer = tpk.SimpleTrainer(xla=xla)
    many, _ = train(4, trainer, finite(), callbacks=[fetches], run_dir=tmp_path / "4")
    assert many.steps == [(3, 4), (7, 8), (10, 11)]
    assert trainer.global_step == many.values["global_step:0"] == 11
    assert isinstance(trainer.loop.ended_by, tf.errors.OutOfRangeError)
    assert len(reported) == 2, "there is no last step to fetch from where the data ends"
    for name, value in alone.values.items():
        np.testing.assert_allclose(many.values[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("count", [8, 11])
def test_the_end_of_staged_data_loses_nothing(count, tmp_path):
    def finite():
        return tpk.StagingInput(tpk.QueueInput(BATCHES[:count], infinite=False))

    alone, _ = train(1, data=finite(), run_dir=tmp_path / "1")
    many, trainer = train(4, data=finite(), run_dir=tmp_path / "4")
    assert many.steps[-1] == (count - 1, count)
    assert trainer.global_step == count
    assert_same_bits(alone.values, many.values)


class Fetch(tpk.Callback):
    """Fetches the cost in each run."""

    def __init__(self, costs):
        self.costs = costs

    def before_run(self, run_context):
        return self.trainer.towers.training()[0].output

    def after_run(self, run_context, run_values):
        self.costs.append(float(run_values.results))


def test_what_is_fetched_is_of_the_last_step(tmp_path):
    each, last = [], []
    train(1, callbacks=[Fetch(each)], run_dir=tmp_path / "1")
    fetched, _ = train(8, callbacks=[Fetch(last)], run_dir=tmp_path / "8")
    assert last == [each[step] for step in (7, 15, 22, 30, 38, 45)]
    unfetched, _ = train(8, run_dir=tmp_path / "8 more")
    assert_same_bits(fetched.values, unfetched.values)


def test_epoch_means_are_those_of_all_steps(tmp_path):
    _, alone = train(1, run_dir=tmp_path / "1")
    _, many = train(8, run_dir=tmp_path / "8")
    one, other = (trainer.history["cost"] for trainer in (alone, many))
    np.testing.assert_allclose(one, other, rtol=1e-6)
    assert len(one) == 2


class StopAfter(tpk.Callback):
    def __init__(self, step):
        self.step = step

    def trigger_step(self, trainer):
        if trainer.global_step >= self.step:
            trainer.request_stop("for a test")


@pytest.mark.parametrize("data", ["queue", "staging", "dataset"])
def test_a_checkpoint_within_an_epoch_resumes_to_the_bit(data, tmp_path):
    """It falls between two runs, also where the number of steps in a run is another one afterwards."""
    through, _ = train(1, data=data, callbacks=["ModelSaver"], run_dir=tmp_path / "through")
    _, first = train(4, data=data, callbacks=["ModelSaver", StopAfter(30)], run_dir=tmp_path / "run")
    assert first.global_step == 31, "23 steps and two runs"
    resumed, _ = train(8, data=data, callbacks=["ModelSaver"], run_dir=tmp_path / "run", resume="must")
    assert resumed.steps == [(15, 39), (22, 46)]
    assert_same_bits(through.values, resumed.values)


def test_what_comes_every_n_steps_comes_after_the_run(tmp_path, caplog):
    caplog.set_level("INFO")
    triggered = []
    note = tpk.CallbackFactory(trigger=lambda self: triggered.append(self.global_step))
    train(8, callbacks=[tpk.PeriodicTrigger(note, every_k_steps=10)], run_dir=tmp_path / "run")
    assert triggered == [16, 23, 31, 46]
    assert "every 10 steps comes after the run that passes such a step: a run makes 8 (steps_per_run)" in caplog.text


class OddGraph(Model):
    """What makes graphs difficult to copy: loops and branches of both kinds, functions, tensor arrays, gathers."""

    def build_graph(self, image, label):
        scale = tf.compat.v1.get_variable("scale", [3], initializer=tf.compat.v1.ones_initializer())
        table = tf.compat.v1.get_variable("table", [3, 3])
        net = tf.reshape(image, [4, 36]) * 0.1
        with no_control_flow_v2():
            net = tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * scale[i]), [tf.constant(0), net])[1]
            net = tf.compat.v1.cond(tf.reduce_sum(net) > 0, lambda: net * 2.0, lambda: net - scale[0])
        net = tf.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, tf.tanh(x) * scale[1]), [tf.constant(0), net])[1]
        net = tf.cond(tf.reduce_mean(net) > 0, lambda: net, lambda: net * scale[2])
        net = tf.map_fn(lambda row: row * 2.0, net)

        @tf.function(autograph=False)
        def shifted(x):
            return x + tf.constant(0.5)

        logits = tpk.layers.dense(shifted(net), 3) + tf.gather(table, label)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))


def no_control_flow_v2():
    """Within the context, TensorFlow's loops and branches are those of TF 1."""
    from contextlib import contextmanager

    @contextmanager
    def context():
        was_enabled = tf.compat.v1.control_flow_v2_enabled()
        tf.compat.v1.disable_control_flow_v2()
        try:
            yield
        finally:
            if was_enabled:
                tf.compat.v1.enable_control_flow_v2()

    return context()


@pytest.mark.parametrize("strategy", ["single", "replicated"])
def test_any_graph_can_be_repeated(strategy, tmp_path):
    alone, _ = train(1, STRATEGIES[strategy], model=OddGraph("adam"), run_dir=tmp_path / "1")
    many, _ = train(8, STRATEGIES[strategy], model=OddGraph("adam"), run_dir=tmp_path / "8")
    assert_same_bits(alone.values, many.values)


class ReferenceVariables(Model):
    """Variables as TensorFlow 1 has them."""

    def build_graph(self, image, label):
        with tf.compat.v1.variable_scope("old", use_resource=False):
            return super().build_graph(image, label)


def test_reference_variables_can_be_repeated(tmp_path):
    alone, _ = train(1, model=ReferenceVariables(), run_dir=tmp_path / "1")
    many, _ = train(8, model=ReferenceVariables(), run_dir=tmp_path / "8")
    assert_same_bits(alone.values, many.values)


def test_an_error_within_a_run_names_the_op_of_the_model(tmp_path):
    class Fails(Model):
        def build_graph(self, image, label):
            step = tf.compat.v1.train.get_or_create_global_step()
            with tf.control_dependencies([tf.debugging.assert_less(step, tf.constant(5, tf.int64), name="too_far")]):
                image = tf.identity(image)
            return super().build_graph(image, label)

    trainer = tpk.SingleCostTrainer("single")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"too_far") as caught:
        train(8, trainer, model=Fails(), run_dir=tmp_path / "run")
    assert "steps/step/" not in str(caught.value)
    assert trainer.global_step == 5, "the steps that were done"


def test_a_failure_of_the_data_is_raised_as_it_is(tmp_path):
    def data():
        yield from BATCHES[:6]
        raise KeyError("a page is missing")

    trainer = tpk.SingleCostTrainer("single")
    with pytest.raises(KeyError, match="a page is missing"):
        train(4, trainer, tpk.QueueInput(tpk.DataFromGenerator(data)), run_dir=tmp_path / "run")
    assert trainer.global_step == 6


def test_several_objectives_together(tmp_path):
    def costs(image, label):
        logits = tpk.layers.dense(tf.reshape(image, [4, 36]), 3, name="a")
        cost = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))
        return {"a": cost, "b": tf.reduce_mean(tpk.layers.dense(logits, 1, name="b") ** 2)}

    def values_of(k, every=1):
        trainer = tpk.MultiObjectiveTrainer("single", update="together", steps_per_run=k)
        with trainer.graph.as_default():
            tf.compat.v1.set_random_seed(1)
        objectives = [
            tpk.Objective(lambda: tf.compat.v1.train.AdamOptimizer(0.01), name="a", variables="a/"),
            tpk.Objective(lambda: tf.compat.v1.train.AdamOptimizer(0.01), name="b", variables="b/", every=every),
        ]
        trainer.setup_graph(Model().inputs(), tpk.QueueInput(BATCHES), costs, objectives)
        values = Values()
        trainer.train(callbacks=[values], steps_per_epoch=STEPS, max_epoch=2)
        return values.values

    assert_same_bits(values_of(1), values_of(8))
    with pytest.raises(ConfigError, match=r"is not always one run of the same op.*update='together'"):
        values_of(8, every=2)


# What cannot be


def test_what_feeds_each_step_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"steps_per_run=8: FeedInput feeds .*tpk.QueueInput\(flow\)"):
        train(8, data=tpk.FeedInput(BATCHES), run_dir=tmp_path / "run")


def test_a_dataflow_is_queued(tmp_path):
    values = Values()
    config = tpk.TrainConfig(
        model=Model(), dataflow=BATCHES, callbacks=[values], steps_per_epoch=8, max_epoch=1, run_dir=tmp_path / "run"
    )
    trainer = tpk.launch_train_with_config(config, tpk.use("SimpleTrainer", steps_per_run=8))
    assert isinstance(trainer.input_source, tpk.QueueInput | tpk.StagingInput)
    assert values.steps == [(7, 8)]


def test_a_strategy_that_cannot_be_repeated_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"steps_per_run=8: AsyncStrategy .* 'replicated'"):
        train(8, tpk.use("async", devices=2), run_dir=tmp_path / "run")


def test_a_run_step_of_ones_own_is_refused(tmp_path):
    class Mine(tpk.SingleCostTrainer):
        def run_step(self):
            super().run_step()

    with pytest.raises(ConfigError, match=r"steps_per_run=8: Mine overrides run_step"):
        train(8, Mine(), run_dir=tmp_path / "run")


def test_a_gate_that_most_runs_would_pass_by_is_refused(tmp_path):
    gated = tpk.PeriodicCallback(Fetch([]), every_k_steps=10)
    with pytest.raises(ConfigError, match=r"every_k_steps=10\): a run makes 8 steps .*Use a multiple of 8"):
        train(8, callbacks=[gated], run_dir=tmp_path / "run")


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8"])
def test_the_number_is_checked(value):
    with pytest.raises(ConfigError, match="steps_per_run must be an integer, 1 or more"):
        tpk.SimpleTrainer(steps_per_run=value)
    with pytest.raises(ConfigError, match=r"steps_per_run=.*expected a whole number, at least 1"):
        tpk.TrainConfig(model=Model(), dataflow=BATCHES, steps_per_run=value)


def with_check(net):
    return tf.debugging.check_numerics(net, "not finite", name="is_finite")


def with_assert(net):
    def checked():
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_mean(net) < 9, [net])]):
            return tf.identity(net)

    return tf.cond(tf.reduce_mean(net) > 0, checked, lambda: net)


def with_reference_control_flow(net):
    with no_control_flow_v2():
        return tf.compat.v1.cond(tf.reduce_mean(net) > 0, lambda: net * 2, lambda: net)


def with_open_loop(net):
    return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, tf.tanh(x)), [tf.constant(0), net])[1]


def with_branches(net):
    return tf.cond(tf.reduce_mean(net) > 0, lambda: tf.tanh(net * 2) * 3, lambda: tf.sigmoid(net))


def with_step_in_a_branch(net):
    step = tf.compat.v1.train.get_or_create_global_step()
    return tf.cond(tf.reduce_mean(net) > 0, lambda: net * tf.cast(step + 1, tf.float32), lambda: net)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (with_check, r"is_finite' \(CheckNumerics\) is needed for .* variable .* XLA does not compile it"),
        (with_assert, r"\(Assert\) is needed for .* XLA does not compile it"),
        (with_reference_control_flow, r"\(Merge\) is needed for .* call tf.compat.v1.enable_control_flow_v2"),
        (with_open_loop, r"tf.while_loop of unknown length.* Give the loop maximum_iterations"),
        (with_step_in_a_branch, r"\(If\) .* reads it within control flow"),
        (with_branches, r"\(FakeParam\) .* known shapes: give the batch a fixed size"),
        (lambda net: tf.nn.dropout(net, 0.3), r"XLA would draw other numbers: use tpk.graph.random.dropout"),
    ],
    ids=[
        "check",
        "assert",
        "control flow of TensorFlow 1",
        "open loop",
        "global step",
        "unknown shape",
        "stateful dropout",
    ],
)
@pytest.mark.tf2_only("XLA does not compile reference variables")
def test_what_xla_must_not_compile_is_refused_with_the_reason(build, message, tmp_path):
    class Refused(AnySize):
        def build_graph(self, image, label):
            net = build(tpk.layers.dense(tpk.layers.flatten(image), 8))
            return tf.reduce_mean(tpk.layers.dense(net, 1) ** 2)

    with pytest.raises(ConfigError, match=message):
        train(8, tpk.SimpleTrainer(xla=True), model=Refused(), steps=8, epochs=1, run_dir=tmp_path / "run")


def test_what_is_fed_to_several_steps_must_be_arrays(tmp_path):
    class Feeds(tpk.Callback):
        def setup_graph(self, trainer):
            self.sparse = tf.compat.v1.sparse_placeholder(tf.float32, [2])

        def before_run(self, run_context):
            value = tf.compat.v1.SparseTensorValue(np.zeros([0, 1], np.int64), np.zeros([0], np.float32), [2])
            return tf.compat.v1.train.SessionRunArgs(None, {self.sparse: value})

    with pytest.raises(tpk.errors.SessionError, match="'Feeds' feeds a value that cannot be fed to several steps"):
        train(8, callbacks=[Feeds()], run_dir=tmp_path / "run")


class Bad(Model):
    """Makes a NaN of one datapoint."""

    def build_graph(self, image, label):
        return super().build_graph(tf.math.log(image + 1000.0), label)


def with_a_bad_one(place):
    spoilt = [image.copy() for image in IMAGES]
    spoilt[place][0, 0, 0, 0] = -2000.0
    return tpk.QueueInput(list(zip(spoilt, LABELS, strict=True)))


def test_nan_guard_names_the_datapoint_within_the_run(tmp_path):
    messages = []
    for k in (1, 8):
        trainer = tpk.SingleCostTrainer("single")
        with pytest.raises(tpk.errors.NonFiniteError, match="cost") as caught:
            train(k, trainer, with_a_bad_one(11), model=Bad(), callbacks=[tpk.NanGuard()], run_dir=tmp_path / f"{k}")
        assert trainer.global_step == 11
        messages.append(caught.value.datapoints)
    assert messages[0] == messages[1] == range(11, 12)


@pytest.mark.tf2_only("XLA does not compile reference variables")
def test_nan_guard_finds_what_a_compiled_run_has_made(tmp_path):
    trainer = tpk.SimpleTrainer(xla=True)
    with pytest.raises(tpk.errors.NonFiniteError, match="cost") as caught:
        train(8, trainer, with_a_bad_one(11), model=Bad(), callbacks=[tpk.NanGuard()], run_dir=tmp_path / "run")
    assert caught.value.datapoints == range(0), "it may be any of the run"


def test_nan_guard_goes_back_within_the_run(tmp_path):
    guard = tpk.NanGuard(on_nan="rollback", max_rollbacks=3, lr_factor=1)
    saver = tpk.PeriodicTrigger("ModelSaver", every_k_steps=4)
    many, trainer = train(
        4, data=with_a_bad_one(11), model=Bad(), callbacks=[saver, guard], steps=20, epochs=1, run_dir=tmp_path / "run"
    )
    assert trainer.global_step == many.values["global_step:0"] == 20
    assert many.steps[-1] == (19, 20)
    assert all(np.isfinite(value).all() for value in many.values.values())


@pytest.mark.parametrize("by", [2, 1])
def test_a_compiled_loop_counts_by_one_and_has_no_reference_variables(by):
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        collections = [v1.GraphKeys.GLOBAL_STEP, v1.GraphKeys.GLOBAL_VARIABLES]
        step = v1.get_variable("global_step", [], tf.int64, collections=collections, use_resource=by == 2)
        count = step.assign_add(by)
        with pytest.raises(ConfigError, match="adding 1" if by == 2 else "reference variable"):
            repeat_compiled([count.op], tf.constant(3))


@pytest.mark.tf2_only("XLA does not compile reference variables")
def test_a_compiled_loop_may_need_no_data():
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as sess:
        step = v1.train.get_or_create_global_step()
        total = v1.get_variable("total", initializer=0.0, use_resource=True)
        work = [total.assign_add(tf.cast(step.read_value(), tf.float32)).op]
        with tf.control_dependencies(work):
            count = step.assign_add(1).op
        loop = repeat_compiled([*work, count], tf.constant(4))
        sess.run(v1.global_variables_initializer())
        sess.run(loop.op)
        assert sess.run([total, step]) == [0 + 1 + 2 + 3, 4]
