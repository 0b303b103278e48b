from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import ConfigError, SessionError
from tpk.graph.optimizers.accumulation import AccumGradOptimizer
from tpk.graph.optimizers.weight_averages import MovingAverageOptimizer, averaged_weights
from tpk.graph.variables import assign_values

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def session():
    sess = v1.Session()
    sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    return sess


def sgd():
    return v1.train.GradientDescentOptimizer(0.1)


def train_op(optimizer, *variables):
    """An op that adds 0.1 to each variable."""
    return optimizer.apply_gradients([(-tf.ones_like(variable), variable) for variable in variables])


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.999])
def test_averages_are_tensorflows_own_without_the_initial_value(decay):
    w = v1.get_variable("w", initializer=[-100.0, 7.0])
    opt = MovingAverageOptimizer(sgd(), decay)
    step = train_op(opt, w)
    ours = opt.get_slot(w, "average")
    updates = v1.placeholder(tf.float32, [])
    theirs = tf.train.ExponentialMovingAverage(decay, num_updates=updates - 1, name="theirs")
    with tf.control_dependencies([step]):
        both = theirs.apply([w])
    with session() as sess:
        for n in range(25):
            sess.run(both, {updates: n})
            # The averages are of the variables after the update; the first one is that variable.
            average, expected, value = sess.run([ours, theirs.average(w), w])
            np.testing.assert_allclose(average, expected, rtol=1e-6, atol=1e-6)
            if n == 0:
                np.testing.assert_array_equal(average, value)


def test_only_trained_variables_are_averaged():
    w = v1.get_variable("w", initializer=0.0)
    other = v1.get_variable("other", initializer=0.0)
    opt = MovingAverageOptimizer(sgd())
    train_op(opt, w)
    assert opt.get_slot(other, "average") is None
    assert {variable.op.name for variable in opt.variables()} == {
        "w/ExponentialMovingAverage",
        "w/ExponentialMovingAverage/num_updates",
    }


@pytest.mark.parametrize("use_resource", [True, False])
def test_averaged_weights_take_the_place_of_the_weights_and_go_without_a_trace(use_resource):
    special = np.array([-0.0, np.inf, np.nan, 1e-45], np.float32)
    special.view(np.uint32)[2] = 0x7FC12345  # a NaN with a payload
    w = v1.get_variable("w", initializer=np.zeros(4, np.float32), use_resource=use_resource)
    b = v1.get_variable("b", initializer=1.0, use_resource=use_resource)
    opt = MovingAverageOptimizer(sgd(), 0.5)
    step = train_op(opt, w, b)
    with session() as sess:
        for _ in range(3):
            sess.run(step)
        assign_values(sess, [(w, special)])
        averages = sess.run([opt.get_slot(w, "average"), opt.get_slot(b, "average")])
        for _ in range(2):
            with averaged_weights(sess):
                for value, average in zip(sess.run([w, b]), averages, strict=True):
                    np.testing.assert_array_equal(value, average)
            assert sess.run(w).tobytes() == special.tobytes()
            assert sess.run(b) == pytest.approx(1.3)
            after = sess.run([opt.get_slot(w, "average"), opt.get_slot(b, "average")])
            np.testing.assert_array_equal(after[0], averages[0])
        # What kept the weights in the meantime takes no memory now.
        assert all(kept.size == 0 for kept in sess.run(v1.local_variables()))
        # Both go on as if nothing had been: neither shares what the other changes.
        sess.run(step)
        assert sess.run(b) == pytest.approx(1.4)
        assert sess.run(opt.get_slot(b, "average")) != averages[1]


def test_an_error_brings_the_weights_back():
    w = v1.get_variable("w", initializer=0.0)
    step = train_op(MovingAverageOptimizer(sgd(), 0.5), w)
    with session() as sess:
        for _ in range(3):
            sess.run(step)
        with pytest.raises(KeyboardInterrupt), averaged_weights(sess):
            assert sess.run(w) != pytest.approx(0.3)
            raise KeyboardInterrupt
        assert sess.run(w) == pytest.approx(0.3)
        with averaged_weights(sess):  # and it can be done again
            pass


def test_before_the_first_update_the_weights_are_their_own_averages():
    w = v1.get_variable("w", initializer=3.0)
    train_op(MovingAverageOptimizer(sgd()), w)
    with session() as sess, averaged_weights(sess):
        assert sess.run(w) == 3.0


def test_averages_of_several_optimizers_are_swapped_together():
    a, b = (v1.get_variable(name, initializer=0.0) for name in "ab")
    opts = [MovingAverageOptimizer(sgd(), 0.5) for _ in range(2)]
    steps = [train_op(opt, variable) for opt, variable in zip(opts, (a, b), strict=True)]
    with session() as sess:
        for _ in range(3):
            sess.run(steps)
        with averaged_weights(sess):
            swapped = sess.run([a, b])
        assert swapped == sess.run([opts[0].get_slot(a, "average"), opts[1].get_slot(b, "average")])
        assert sess.run([a, b]) == [pytest.approx(0.3)] * 2


def test_towers_that_update_the_same_variables_share_their_averages():
    w = v1.get_variable("w", initializer=0.0)
    opt = MovingAverageOptimizer(sgd(), 0.0)
    steps = [train_op(opt, w) for _ in range(2)]
    assert len(opt.variables()) == 2
    with session() as sess:
        for step in steps:
            sess.run(step)
        assert sess.run(opt.get_slot(w, "average")) == pytest.approx(0.2)


def test_inside_an_accumulation_updates_count():
    w = v1.get_variable("w", initializer=0.0)
    average = MovingAverageOptimizer(sgd(), 0.5)
    step = train_op(AccumGradOptimizer(average, 2), w)
    reference = v1.get_variable("reference", initializer=0.0)
    plain = MovingAverageOptimizer(sgd(), 0.5)
    plain_step = train_op(plain, reference)
    with session() as sess:
        for _ in range(3):
            sess.run([step, plain_step])
            sess.run(step)
            assert sess.run(average.get_slot(w, "average")) == sess.run(plain.get_slot(reference, "average"))
        with averaged_weights(sess):
            assert sess.run(w) == sess.run(average.get_slot(w, "average"))


def test_variables_of_16_bits_have_averages_of_32():
    w = v1.get_variable("w", initializer=tf.constant([1.0], tf.bfloat16))
    opt = MovingAverageOptimizer(v1.train.GradientDescentOptimizer(1.0), 0.5)
    step = opt.apply_gradients([(tf.constant([-1.0], tf.bfloat16), w)])
    with session() as sess:
        for _ in range(3):
            sess.run(step)
        average = sess.run(opt.get_slot(w, "average"))
        assert average.dtype == np.float32
        with averaged_weights(sess):
            assert sess.run(w) == average.astype(sess.run(w).dtype)
        assert sess.run(w).astype(np.float32) == [4.0]


def test_averages_work_across_devices():
    with tf.device("/cpu:1"):
        w = v1.get_variable("w", initializer=0.0)
    with tf.device("/cpu:2"):
        opt = MovingAverageOptimizer(sgd(), 0.5)
        step = train_op(opt, w)
    assert opt.get_slot(w, "average").device.lower().endswith("cpu:1")
    with v1.Session(config=v1.ConfigProto(device_count={"CPU": 3})) as sess:
        sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        sess.run(step)
        with averaged_weights(sess):
            assert sess.run(w) == pytest.approx(0.1)


def test_tensorflow_finds_the_averages_in_a_checkpoint(tmp_path):
    w = v1.get_variable("w", initializer=0.0)
    opt = MovingAverageOptimizer(sgd(), 0.5)
    step = train_op(opt, w)
    with session() as sess:
        for _ in range(3):
            sess.run(step)
        path = v1.train.Saver().save(sess, str(tmp_path / "model"))
        average = sess.run(opt.get_slot(w, "average"))
    with tf.Graph().as_default(), v1.Session() as sess:
        w = v1.get_variable("w", initializer=0.0)
        v1.train.Saver(tf.train.ExponentialMovingAverage(0.5).variables_to_restore()).restore(sess, path)
        assert sess.run(w) == average


def test_averages_within_averages_are_an_error():
    w = v1.get_variable("w", initializer=0.0)
    step = train_op(MovingAverageOptimizer(sgd(), 0.5), w)
    with session() as sess:
        for _ in range(3):
            sess.run(step)
        with averaged_weights(sess):
            with pytest.raises(SessionError, match="'w' already has the value of its average"), averaged_weights(sess):
                pass
            assert sess.run(w) != pytest.approx(0.3)
        assert sess.run(w) == pytest.approx(0.3)


def test_a_graph_without_averages_is_an_error():
    train_op(sgd(), v1.get_variable("w", initializer=0.0))
    with session() as sess, pytest.raises(ConfigError, match="no averages of weights"), averaged_weights(sess):
        pass


@pytest.mark.parametrize("decay", [-0.1, 1.0, 2, float("nan")])
def test_a_decay_that_is_out_of_range_is_an_error(decay):
    with pytest.raises(ConfigError, match="expected at least 0 and less than 1"):
        MovingAverageOptimizer(sgd(), decay)
