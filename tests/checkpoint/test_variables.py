from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.checkpoint.reader import CheckpointReader
from tpk.checkpoint.variable_writer import VariableWriter, assign_by_name, read_variables, saved_name
from tpk.errors import CheckpointError

v1 = tf.compat.v1


@pytest.fixture
def sess():
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as sess:
        yield sess


def variables_of_all_kinds():
    with v1.variable_scope("parts", partitioner=v1.fixed_size_partitioner(3)):
        v1.get_variable("rows", [7, 2], initializer=v1.random_normal_initializer())
    v1.get_variable("reference", initializer=np.float64([1.5, -0.0, np.nan]), use_resource=False)
    v1.get_variable("text", initializer=tf.constant(["a", "ä"]))
    v1.get_variable("flag", initializer=True)
    v1.get_variable("half", initializer=tf.constant([1.5, 2.5], tf.bfloat16))
    v1.get_variable("empty", [0, 3])
    v1.get_variable("number", initializer=tf.constant(2**62, tf.int64))
    return v1.global_variables()


def write(prefix, sess, variables):
    writer = VariableWriter()
    writer.write(str(prefix), variables, sess.run(variables))
    writer.close()


def test_tensorflow_writes_through_no_link(sess, tmp_path):
    """It writes to names that nobody can guess, and renames them."""
    victim = tmp_path / "victim"
    victim.write_text("private")
    for suffix in (".index", ".data-00000-of-00001"):
        (tmp_path / f"model{suffix}").symlink_to(victim)
    variables = variables_of_all_kinds()
    sess.run(v1.global_variables_initializer())
    write(tmp_path / "model", sess, variables)
    assert victim.read_text() == "private"
    assert not any(path.is_symlink() for path in tmp_path.iterdir())


def test_tensorflows_saver_restores_what_was_written(sess, tmp_path):
    variables = variables_of_all_kinds()
    sess.run(v1.global_variables_initializer())
    expected = sess.run(variables)
    write(tmp_path / "model", sess, variables)
    sess.run(v1.global_variables_initializer())
    v1.train.Saver(variables).restore(sess, str(tmp_path / "model"))
    for value, restored in zip(expected, sess.run(variables), strict=True):
        np.testing.assert_array_equal(value, restored)


def test_what_tensorflows_saver_writes_is_read(sess, tmp_path):
    variables = variables_of_all_kinds()
    sess.run(v1.global_variables_initializer())
    expected = sess.run(variables)
    path = v1.train.Saver(variables).save(sess, str(tmp_path / "model"))
    assert set(CheckpointReader(path)) == set(map(saved_name, variables))
    sess.run(v1.global_variables_initializer())
    sess.graph.finalize()
    assign_by_name(sess, read_variables(path, variables), variables)
    for value, restored in zip(expected, sess.run(variables), strict=True):
        np.testing.assert_array_equal(value, restored)


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("update", ["assign", "dense", "sparse"])
def test_a_snapshot_stays_what_it_is_while_the_variables_change(sess, use_resource, update):
    variable = v1.get_variable("w", [1000, 8], initializer=v1.ones_initializer(), use_resource=use_resource)
    if update == "assign":
        change = variable.assign_add(tf.ones([1000, 8]))
    else:
        rows = tf.gather(variable, list(range(1000))) if update == "sparse" else variable
        change = v1.train.MomentumOptimizer(1.0, 0.5).minimize(-tf.reduce_sum(rows))
    sess.run(v1.global_variables_initializer())
    for step in range(3):
        (value,) = sess.run([variable])
        before = np.array(value)
        sess.run(change)
        sess.run(change)
        np.testing.assert_array_equal(value, before, err_msg=str(step))
        assert (sess.run(variable) != before).all()


def test_only_what_is_there_is_read_and_another_shape_is_an_error(sess, tmp_path):
    w = v1.get_variable("w", [2])
    sess.run(v1.global_variables_initializer())
    write(tmp_path / "model", sess, [w])
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as other:
        variables = [v1.get_variable("w", [3]), v1.get_variable("new", [])]
        values = read_variables(str(tmp_path / "model"), variables)
        assert list(values) == ["w"]
        with pytest.raises(CheckpointError, match=r"'w' has shape \(3,\), but its value has shape \(2,\)"):
            assign_by_name(other, values, variables)


def test_damaged_files_are_an_error(sess, tmp_path):
    w = v1.get_variable("w", [2])
    sess.run(v1.global_variables_initializer())
    write(tmp_path / "model", sess, [w])
    (tmp_path / "model.index").write_bytes(b"damaged" * 20)
    with pytest.raises(CheckpointError, match="torn or damaged"):
        read_variables(str(tmp_path / "model"), [w])
