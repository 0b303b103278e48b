from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError
from tpk.graph.optimizers.accumulation import AccumGradOptimizer

v1 = tf.compat.v1

OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.1),
}
NITER = 3
DATA = np.random.default_rng(0).normal(size=(4 * NITER, 2, 3)).astype(np.float32)
WORDS = np.array([[0, 1], [1, 1], [0, 0], [2, 2], [2, 2], [2, 1]] * 2)  # of five, of which the last two never occur

# Where the sums are the same but for their order; Adam divides small numbers by small ones.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def session():
    sess = v1.Session()
    sess.run(v1.global_variables_initializer())
    return sess


def linear_cost(x):
    w = v1.get_variable("w", initializer=[[1.0], [2.0], [-1.0]])
    b = v1.get_variable("b", initializer=0.5)
    return tf.reduce_mean((x @ w + b - 1.0) ** 2)


def embedding_cost(words):
    table = v1.get_variable("table", initializer=np.arange(10, dtype=np.float32).reshape(5, 2))
    return tf.reduce_mean(tf.gather(table, words) ** 2)


MODELS = {"dense": (linear_cost, DATA, tf.float32), "sparse": (embedding_cost, WORDS, tf.int64)}


def train(model, get_optimizer, batches):
    """Return the values of all variables after each step."""
    build, data, dtype = MODELS[model]
    with tf.Graph().as_default():
        x = v1.placeholder(dtype, [None, *data.shape[2:]])
        op = get_optimizer().minimize(build(x))
        variables = v1.global_variables()
        values = []
        with session() as sess:
            for batch in batches:
                sess.run(op, {x: batch})
                values.append(dict(zip([each.op.name for each in variables], sess.run(variables), strict=True)))
        return values


def in_batches_of(niter, data):
    return data.reshape(-1, niter * data.shape[1], *data.shape[2:])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_accumulating_is_training_on_larger_batches(model, optimizer):
    data = MODELS[model][1]
    ours = train(model, lambda: AccumGradOptimizer(OPTIMIZERS[optimizer](), NITER), data)
    plain = train(model, OPTIMIZERS[optimizer], in_batches_of(NITER, data))
    for step, values in enumerate(ours, 1):
        # The slots and the powers of Adam's betas are compared, too: nothing but the sums moves in between.
        if step >= NITER:
            for name, expected in plain[step // NITER - 1].items():
                np.testing.assert_allclose(values[name], expected, err_msg=f"{name}, step {step}", **TOLERANCE)
        if step % NITER == 0:
            assert not any(np.any(value) for name, value in values.items() if "AccumGrad" in name)


def test_rows_without_gradients_do_not_change():
    """Momentum decays in rows that have a gradient only."""
    words = np.array([[0, 1], [1, 1], [2, 2], [2, 2]])
    momentum = train("sparse", lambda: AccumGradOptimizer(OPTIMIZERS["momentum"](), 2), words)
    np.testing.assert_array_equal(momentum[1]["table"][:2], momentum[3]["table"][:2])
    np.testing.assert_array_equal(momentum[0]["table"][2:], momentum[1]["table"][2:])


class Linear(tpk.ModelDesc):
    def __init__(self, get_optimizer):
        self.get_optimizer_of_test = get_optimizer

    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x")]

    def build_graph(self, x):
        return linear_cost(x)

    def optimizer(self):
        return self.get_optimizer_of_test()


class Weights(tpk.Callback):
    def after_train(self, trainer):
        variables = v1.global_variables()
        self.values = dict(zip([each.op.name for each in variables], trainer.sess.run(variables), strict=True))


def run_trainer(get_optimizer, batches, tmp_path, **options):
    weights = Weights()
    model = Linear(get_optimizer)
    trainer = tpk.SimpleTrainer()
    source = tpk.FeedInput([[batch] for batch in batches])
    trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
    options = {"steps_per_epoch": len(batches), "max_epoch": 1, **options}
    trainer.train(callbacks=[weights, "ModelSaver"], run_dir=tmp_path, **options)
    return weights.values


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_a_trainer_accumulates(tmp_path, optimizer):
    ours = run_trainer(lambda: AccumGradOptimizer(OPTIMIZERS[optimizer](), NITER), DATA, tmp_path / "ours")
    with tf.Graph().as_default():
        plain = run_trainer(OPTIMIZERS[optimizer], in_batches_of(NITER, DATA), tmp_path / "plain")
    assert ours.pop("global_step") == NITER * plain.pop("global_step")
    for name, expected in plain.items():
        np.testing.assert_allclose(ours[name], expected, **TOLERANCE)


def test_a_training_resumes_in_the_middle_of_an_accumulation(tmp_path):
    def optimizer():
        return AccumGradOptimizer(OPTIMIZERS["adam"](), NITER)

    whole = run_trainer(optimizer, DATA, tmp_path / "whole")
    with tf.Graph().as_default():
        run_trainer(optimizer, DATA[:5], tmp_path / "first")
    with tf.Graph().as_default():
        everything = tpk.SaverRestore(tmp_path / "first")
        resumed = run_trainer(optimizer, DATA[5:], tmp_path / "second", session_init=everything)
    for name, expected in whole.items():
        np.testing.assert_array_equal(resumed[name], expected)


def test_of_one_step_there_is_nothing_to_accumulate():
    w = v1.get_variable("w", initializer=1.0)
    opt = AccumGradOptimizer(OPTIMIZERS["sgd"](), 1)
    opt.minimize(w**2)
    assert v1.global_variables() == [w]
    assert opt.get_slot_names() == []


def test_it_makes_no_difference_under_which_scopes_it_is_built():
    w = v1.get_variable("w", initializer=1.0)
    guard = tf.no_op()
    opt = AccumGradOptimizer(OPTIMIZERS["sgd"](), 2)
    with v1.variable_scope("tower", reuse=True), tf.name_scope("apply"), tf.control_dependencies([guard]):
        op = opt.minimize(w, var_list=[w], name="train_op")
    assert {variable.op.name for variable in v1.global_variables()} == {"w", "w/AccumGrad", "w/AccumGrad/counter"}
    assert not any(variable.trainable for variable in opt.variables())
    assert op.name == "tower/apply/train_op"
    assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [op]
    with session() as sess:
        for expected in (1.0, 0.9, 0.9, 0.8):
            sess.run(op)
            assert sess.run(w) == pytest.approx(expected)


def test_slots_of_towers_are_named_alike():
    ws = [v1.get_variable(name, initializer=1.0) for name in ("w", "tower1/w")]
    for w in ws:
        AccumGradOptimizer(OPTIMIZERS["sgd"](), 2).minimize(w, var_list=[w])
    slots = [f"{name}/AccumGrad{suffix}" for name in ("w", "tower1/w") for suffix in ("", "/counter")]
    assert {variable.op.name for variable in v1.global_variables()} - {"w", "tower1/w"} == set(slots)


def test_accumulation_works_across_devices():
    with tf.device("/cpu:1"):
        w = v1.get_variable("w", initializer=[1.0])
        table = v1.get_variable("table", initializer=np.ones([3, 1], np.float32))
    with tf.device("/cpu:2"):
        op = AccumGradOptimizer(OPTIMIZERS["adam"](), 2).minimize(tf.reduce_sum(tf.gather(table, [0, 0])) + w)
    placed = {variable.op.name: variable.device[-5:].lower() for variable in v1.global_variables()}
    assert placed["w/AccumGrad"] == placed["table/AccumGrad"] == placed["table/AccumGrad/touched"] == "cpu:1"
    assert placed["table/AccumGrad/counter"] == "cpu:0"
    with v1.Session(config=v1.ConfigProto(device_count={"CPU": 3})) as sess:
        sess.run(v1.global_variables_initializer())
        for _ in range(2):
            sess.run(op)
        assert sess.run(w) == pytest.approx([0.9])
        assert sess.run(table)[:, 0] == pytest.approx([0.9, 1.0, 1.0])


def test_towers_that_update_the_same_variables_accumulate_by_themselves():
    w = v1.get_variable("w", initializer=0.0)
    opt = AccumGradOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
    ops = [opt.apply_gradients([(tf.constant(grad), w)]) for grad in (1.0, 10.0)]
    assert len(opt.variables()) == 4
    with session() as sess:
        for op, expected in zip([ops[0], ops[1], ops[1], ops[0]], [0.0, 0.0, -10.0, -11.0], strict=True):
            sess.run(op)
            assert sess.run(w) == expected


def test_the_sum_is_a_slot():
    w = v1.get_variable("w", initializer=0.0)
    opt = AccumGradOptimizer(OPTIMIZERS["momentum"](), 3)
    op = opt.apply_gradients([(tf.constant(2.0), w)])
    assert opt.get_slot_names() == ["accum", "momentum"]
    with session() as sess:
        for expected in (2.0, 4.0, 0.0, 2.0):
            sess.run(op)
            assert sess.run(opt.get_slot(w, "accum")) == expected


def test_variables_of_16_bits_are_summed_in_32():
    w = v1.get_variable("w", initializer=tf.constant([0.0], tf.bfloat16))
    opt = AccumGradOptimizer(v1.train.GradientDescentOptimizer(1.0), 300)
    op = opt.apply_gradients([(tf.constant([1.0], tf.bfloat16), w)])
    with session() as sess:
        for _ in range(300):  # in bfloat16, 256 + 1 = 256
            sess.run(op)
        assert sess.run(w).astype(np.float32) == [-1.0]


def test_with_a_smaller_number_a_resumed_accumulation_is_applied_at_once():
    w = v1.get_variable("w", initializer=0.0)
    opt = AccumGradOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
    op = opt.apply_gradients([(tf.constant(1.0), w)])
    (counter,) = (variable for variable in opt.variables() if "counter" in variable.name)
    with session() as sess:
        sess.run([counter.assign(3).op, opt.get_slot(w, "accum").assign(7.0).op])
        sess.run(op)
        assert sess.run(w) == -2.0


@pytest.mark.parametrize("niter", [0, -1, 1.5, True])
def test_an_invalid_number_of_steps_is_an_error(niter):
    with pytest.raises(ConfigError, match="AccumGradOptimizer: niter must be an integer"):
        AccumGradOptimizer(OPTIMIZERS["sgd"](), niter)


@pytest.mark.parametrize("use_resource", [True, False])
def test_it_works_with_the_control_flow_of_tensorflow_1(control_flow_v1, use_resource):
    w = v1.get_variable("w", initializer=1.0, use_resource=use_resource)
    table = v1.get_variable("table", initializer=[1.0, 1.0], use_resource=use_resource)
    op = AccumGradOptimizer(OPTIMIZERS["adam"](), 2).minimize(w + tf.reduce_sum(tf.gather(table, [0, 0])))
    with session() as sess:
        for expected in (1.0, 0.9, 0.9, 0.8):
            sess.run(op)
            assert sess.run(w) == pytest.approx(expected)
            assert sess.run(table) == pytest.approx([expected, 1.0])
