"""Values of variables, sessions, gradients and names."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow
import tpk_tensorflow1 as tf
from tpk_tensorpack.tfutils import (
    collect_env,
    common,
    dependency,
    gradproc,
    model_utils,
    optimizer,
    scope_utils,
    sesscreate,
    sessinit,
    summary,
    symbolic_functions,
    varmanip,
    varreplace,
)

from tpk.errors import CheckpointError


@pytest.fixture
def graph():
    with tensorflow.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def sess(graph):
    with tf.Session() as sess:
        yield sess


def make(name, value):
    return tf.get_variable(name, initializer=np.float32(value))


def start(sess):
    sess.run(tf.global_variables_initializer())


def test_values_come_from_whatever_one_names(sess, tmp_path):
    w, b = make("w", [0.0, 0.0]), make("b", 7.0)
    start(sess)
    checkpoint, npz = str(tmp_path / "model-3"), str(tmp_path / "values.npz")
    varmanip.save_checkpoint_vars({"w": np.float32([1, 2])}, checkpoint)
    varmanip.save_checkpoint_vars({"w:0": np.float32([3, 4])}, npz)
    sources = [checkpoint, f"{checkpoint}.index", str(tmp_path / "checkpoint"), npz, {"w:0": np.float32([5, 6])}]
    got = []
    for source in sources:
        sessinit.SmartInit(source).init(sess)
        got.append(sess.run(w).tolist())
    assert got == [[1, 2], [1, 2], [1, 2], [3, 4], [5, 6]]
    sessinit.get_model_loader([{"w": np.float32([8, 8])}, {"b": np.float32(9)}]).init(sess)
    assert [value.tolist() for value in sess.run([w, b])] == [[8, 8], 9]
    assert isinstance(sessinit.SmartInit(""), sessinit.JustCurrentSession)
    sessinit.SmartInit(None).init(sess)
    assert sess.run(b) == 9


def test_nothing_to_restore_is_a_warning_and_another_shape_an_error(sess, tmp_path, caplog):
    w = make("w", [0.0, 0.0])
    start(sess)
    path = str(tmp_path / "model-3")
    varmanip.save_checkpoint_vars({"other": np.float32([1, 2])}, path)
    with caplog.at_level(logging.WARNING, "tpk"):
        sessinit.SaverRestore(path).init(sess)
        sessinit.DictRestore({"none": np.zeros(1)}).init(sess)
    assert "other" in caplog.text
    varmanip.save_checkpoint_vars({"w": np.float32([[1], [2]])}, path)
    with pytest.raises(CheckpointError, match="w"):
        sessinit.SmartInit(path).init(sess)
    sessinit.SmartInit(path, ignore_mismatch=True).init(sess)
    assert sess.run(w).tolist() == [1, 2]
    with pytest.raises(CheckpointError, match="session_init is 3"):
        sessinit.SmartInit(3)


def test_a_prefix_and_names_to_ignore(sess, tmp_path):
    with tf.variable_scope("scope"):
        w, b = make("w", 0.0), make("b", 0.0)
    start(sess)
    path = str(tmp_path / "model-3")
    varmanip.save_checkpoint_vars({"w": np.float32(1), "b": np.float32(1)}, path)
    restore = sessinit.SaverRestore(path, prefix="scope", ignore=["b:0"])
    assert restore.path == path
    restore.init(sess)
    assert sess.run([w, b]) == [1, 0]


def test_an_initialization_of_ones_own_may_add_to_the_graph(sess):
    class Doubled(sessinit.SessionInit):
        def _setup_graph(self):
            self.op = tf.group(*(variable.assign(variable * 2) for variable in tf.global_variables()))

        def _run_init(self, sess):
            sess.run(self.op)

    w = make("w", 3.0)
    start(sess)
    sess.graph.finalize()
    Doubled().run(sess)
    assert sess.run(w) == 6
    assert sess.graph.finalized


def test_values_are_dumped_and_loaded(sess, tmp_path):
    make("w", [1.0, 2.0])
    tf.get_variable("steps", initializer=5, trainable=False)
    tf.get_variable("mean", initializer=4.0, trainable=False, collections=["variables", "model_variables"])
    start(sess)
    path = str(tmp_path / "sub" / "values.npz")
    with sess.as_default():
        varmanip.dump_session_params(path)
    with np.load(path) as file:
        assert set(file) == {"w:0", "mean:0"}
    values = varmanip.load_checkpoint_vars(path)
    assert {name: value.tolist() for name, value in values.items()} == {"w": [1, 2], "mean": 4}
    for step in (20, 3):
        varmanip.save_chkpt_vars(values, str(tmp_path / f"model-{step}"))
    assert varmanip.load_chkpt_vars(str(tmp_path / "model-3.index"))["w"].tolist() == [1, 2]
    assert varmanip.get_checkpoint_path(str(tmp_path / "checkpoint")) == str(tmp_path / "model-3")
    assert varmanip.get_all_checkpoints(str(tmp_path)) == [
        (str(tmp_path / "model-3.index"), 3),
        (str(tmp_path / "model-20.index"), 20),
    ]
    with pytest.raises(ValueError, match="no values to save"):
        varmanip.save_checkpoint_vars({}, str(tmp_path / "model-4"))


def test_without_a_default_session_there_is_an_error_that_says_so(graph, tmp_path):
    for call in (
        lambda: varmanip.dump_session_params(str(tmp_path / "x.npz")),
        common.get_global_step_value,
        common.gpu_available_in_session,
    ):
        with pytest.raises(ValueError, match="no default session"):
            call()


def test_values_of_a_session_are_updated_by_name(sess):
    w = make("w", [[0.0, 0.0]])
    start(sess)
    update = varmanip.SessionUpdate(sess, [w])
    update.update({"w:0": np.float64([[1, 2]])})
    assert sess.run(w).tolist() == [[1, 2]]
    with pytest.raises(ValueError, match=r"w has shape \(1, 2\), and the value \(2,\)"):
        update.update({"w": np.zeros(2)})
    with pytest.raises(ValueError, match="none of the variables to update is called 'none'; those are w"):
        update.update({"none": 3})
    relaxed = varmanip.SessionUpdate(sess, [w], ignore_mismatch=True)
    relaxed.update({"w": np.float32([3, 4])})
    relaxed.update({"w": np.float32([3, 4, 5])})
    assert sess.run(w).tolist() == [[3, 4]]


def test_names_of_variables():
    assert common.get_op_tensor_name("a/b") == common.get_op_tensor_name("a/b:0") == ("a/b", "a/b:0")
    assert common.get_op_tensor_name("a:1") == ("a", "a:1")
    assert varmanip.get_savename_from_varname("tower0/a/b", varname_prefix="tower0") == "a/b"
    assert varmanip.get_savename_from_varname("b", savename_prefix="q") == "q/b"
    of_training = ["a/Momentum", "EMA/cost/x", "a/Adam", "a/Adam_1", "a/AccumGrad"]
    others = ["global_step", "w", "beta1_power", "learning_rate", "conv/mean/EMA"]
    assert [name for name in of_training + others if varmanip.is_training_name(name)] == of_training


def test_the_global_step_and_the_names_of_a_graph(sess):
    tf.constant([1.0], name="a")
    step = common.get_global_step_var()
    start(sess)
    sess.run(step.assign(5))
    with sess.as_default():
        assert common.get_global_step_value() == 5
        assert common.gpu_available_in_session() is False
    assert [tensor.name for tensor in common.get_tensors_by_names(["a", "a:0"])] == ["a:0", "a:0"]
    op, tensor = common.get_op_or_tensor_by_name(["a", "a:0"])
    assert (op.type, tensor.name) == ("Const", "a:0")
    assert common.get_tf_version_tuple() == tuple(map(int, tensorflow.__version__.split(".")[:2]))


def test_sessions_have_the_configuration_of_tensorpack(graph):
    w = make("w", 2.0)
    config = common.get_default_sess_config(0.5)
    assert (config.allow_soft_placement, config.gpu_options.allow_growth) == (True, True)
    assert config.gpu_options.per_process_gpu_memory_fraction == 0.5
    creator = sesscreate.SessionCreatorAdapter(sesscreate.NewSessionCreator(), lambda sess: (sess, "wrapped"))
    sess, wrapped = creator.create_session()
    assert wrapped == "wrapped"
    with sess:
        assert sess.run(w) == 2
        b = make("b", 3.0)
        assert sesscreate.ReuseSessionCreator(sess).create_session() is sess
        assert sess.run(b) == 3
    assert sesscreate.NewSessionCreator().config == common.get_default_sess_config()


def test_accumulated_gradients_are_applied_as_their_sum(sess):
    w = make("w", 10.0)
    x = tf.placeholder(tf.float32, [])
    train_op = optimizer.AccumGradOptimizer(tf.train.GradientDescentOptimizer(1.0), 3).minimize(w * x)
    start(sess)
    values = []
    for number in (1, 2, 4, 1, 1, 1):
        sess.run(train_op, {x: number})
        values.append(sess.run(w))
    assert values == [10, 10, 3, 3, 3, 0]


def test_gradients_are_processed_in_order(sess):
    w, b = make("w", 1.0), make("b", 1.0)
    opt = optimizer.apply_grad_processors(
        tf.train.GradientDescentOptimizer(1.0),
        [gradproc.MapGradient(lambda grad: grad + 1, "w"), gradproc.ScaleGradient([("w", 2.0)])],
    )
    train_op = opt.minimize(w + b)
    start(sess)
    sess.run(train_op)
    assert sess.run([w, b]) == [1 - 2 * (1 + 1), 0]


def test_scopes_and_other_variables(sess):
    @scope_utils.under_variable_scope()
    def layer(x):
        return x * make("w", 3.0)

    @scope_utils.under_name_scope(name_scope="named")
    def op(x):
        return tf.identity(x, name="op")

    with varreplace.remap_variables(fn=lambda variable: -variable):
        y = op(layer(2.0))
    start(sess)
    assert y.name == "named/op:0"
    assert [variable.name for variable in tf.global_variables()] == ["layer/w:0"]
    assert sess.run(y) == -6


def test_what_is_computed_from_what(graph):
    a = tf.placeholder(tf.float32, [2], name="a")
    b = tf.identity(a, name="b")
    c = tf.constant(1.0)
    with tf.control_dependencies([c]):
        d = tf.no_op()
    assert dependency.dependency_of_targets(b, a.op)
    assert dependency.dependency_of_targets([c, b], a)
    assert dependency.dependency_of_targets(d, c)
    assert not dependency.dependency_of_targets([c], a)
    assert dependency.dependency_of_fetches({"x": "b:0"}, a)
    assert not dependency.dependency_of_fetches([c], a)


def test_descriptions(sess, caplog):
    with caplog.at_level(logging.INFO, "tpk_tensorpack"):
        logger = logging.getLogger("tpk_tensorpack")
        logger.addHandler(caplog.handler)
        model_utils.describe_trainable_vars()
        make("conv0/W", np.zeros([3, 2]))
        model_utils.describe_trainable_vars()
        logger.removeHandler(caplog.handler)
    assert "the graph has no trainable variables" in caplog.text
    assert "conv0/W" in caplog.text
    assert model_utils.get_shape_str([tf.zeros([2]), tf.placeholder(tf.float32)]) == "[2], None"
    info = collect_env.collect_env_info()
    assert tensorflow.__version__ in info
    assert np.__version__ in info


def test_functions_of_tensors(sess, capfd):
    x, y = tf.constant([3.0, 4.0], name="x"), tf.constant([3.0, 4.1])
    rms, noise, of_peak, same = (
        symbolic_functions.rms(x),
        symbolic_functions.psnr(x, y),
        symbolic_functions.psnr(x, y, maxp=255.0),
        symbolic_functions.print_stat(x, "what it is"),
    )
    values = sess.run([rms, noise, of_peak, same])
    assert rms.name == "x/rms:0"
    np.testing.assert_allclose(values[0], np.sqrt(12.5), rtol=1e-6)
    decibels = -10 * np.log10(0.005)
    np.testing.assert_allclose(values[1:3], [decibels, 20 * np.log10(255) + decibels], rtol=1e-4)
    assert values[3].tolist() == [3, 4]
    assert "what it is" in capfd.readouterr().err


def test_summaries_of_gradients_are_called_as_tensorpacks(graph):
    w = make("w", [1.0, 2.0])
    gradproc.SummaryGradient().process([(tf.constant([3.0, 4.0]), w)])
    names = [each.op.name for each in tf.get_collection(tf.GraphKeys.SUMMARIES)]
    assert names == ["SummaryGradient/w-grad", "EMA/SummaryGradient/w/rms/summary"]


def test_the_size_of_a_gradient_is_averaged_over_the_steps(graph, sess):
    size = tf.placeholder(tf.float32, [])
    gradproc.SummaryGradient().process([(tf.stack([3.0, 4.0]) * size, make("w", [1.0, 2.0]))])
    assert len(tf.get_collection(summary.MOVING_SUMMARY_OPS_KEY)) == 1
    merged = tf.summary.merge_all()
    start(sess)
    sess.run(tf.local_variables_initializer())
    found = []
    for each in (1.0, 3.0):
        # It updates the average, too.
        values = tf.Summary.FromString(sess.run(merged, {size: each})).value
        found.append({value.tag: value.simple_value for value in values}["SummaryGradient/w/rms-summary"])
    # Averages with decay 0.95, unbiased.
    one, three = np.sqrt(12.5), 3 * np.sqrt(12.5)
    np.testing.assert_allclose(found, [one, (0.05 * 0.95 * one + 0.05 * three) / (1 - 0.95**2)], rtol=1e-5)
