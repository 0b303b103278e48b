from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph import random
from tpk.graph.determinism import deterministic_ops

v1 = tf.compat.v1

OPS = {
    "normal": lambda **options: random.normal([64], **options),
    "truncated_normal": lambda **options: random.truncated_normal([64], **options),
    "uniform": lambda **options: random.uniform([64], **options),
    "integers": lambda **options: random.uniform([64], 0, 2**30, tf.int32, **options),
    "shuffle": lambda **options: random.shuffle(tf.range(64), **options),
    "dropout": lambda **options: random.dropout(tf.ones([64]), 0.5, **options),
    "seed": lambda **options: random.step_seed(**options),
}


def drawn(build, steps=(0,), seed=7, restore=None):
    """What `build()` draws in each of the steps, in a new graph and a new session; of one step, without the list."""
    with tf.Graph().as_default(), v1.Session() as sess:
        if seed is not None:
            v1.set_random_seed(seed)
        tensors = build()
        sess.run(v1.global_variables_initializer())
        if restore:
            v1.train.Saver().restore(sess, restore)
        count, values = v1.train.get_global_step(), []
        for step in steps:
            count.load(step, sess)
            values.append(sess.run(tensors))
    return values if len(steps) > 1 else values[0]


def is_same(one, other):
    return np.array_equal(one, other)


def all_differ(values):
    return len({np.asarray(value).tobytes() for value in values}) == len(values)


@pytest.mark.parametrize("op", OPS)
def test_random_numbers_depend_only_on_the_step_the_seeds_and_the_name(op):
    build = OPS[op]
    steps = drawn(build, range(4))
    assert all_differ([*steps, drawn(build, seed=8), drawn(lambda: build(seed=1)), drawn(lambda: build(name="other"))])
    # Another session, begun in the middle.
    assert is_same(drawn(build, [2]), steps[2])
    assert is_same(drawn(lambda: build(seed=1)), drawn(lambda: build(seed=1)))


def test_random_numbers_do_not_depend_on_other_ops_in_the_graph():
    def among_others():
        random.normal([3])
        tf.random.normal([5])
        with tf.name_scope("elsewhere"):
            random.normal([3], name="noise")
        noise = random.normal([64], name="noise")
        random.normal([3], name="noise")
        return noise

    assert is_same(drawn(among_others), drawn(lambda: random.normal([64], name="noise")))


def test_scopes_and_branches_and_iterations_differ():
    def build():
        values = [random.uniform([9]) for _ in range(2)]
        for scope in ("tower0", "tower1", "tower0"):
            with tf.name_scope(f"{scope}/"):
                values.append(random.uniform([9]))
        always = v1.placeholder_with_default(True, [])
        values.append(tf.cond(always, lambda: random.uniform([9]), lambda: random.uniform([9])))
        values.append(tf.cond(~always, lambda: random.uniform([9]), lambda: random.uniform([9])))
        values += tf.unstack(tf.map_fn(lambda _: random.uniform([9]), tf.zeros([3])), num=3)
        nested = tf.map_fn(lambda _: tf.map_fn(lambda _: random.uniform([9]), tf.zeros([2])), tf.zeros([2]))
        return [*values, *tf.unstack(tf.reshape(nested, [4, 9]), num=4)]

    first, second = drawn(build, [0, 1])
    assert all_differ([*first, *second])
    assert all(map(is_same, drawn(build, [1]), second))


def test_both_branches_differ_though_their_scopes_are_one():
    def build(flag):
        return tf.cond(v1.placeholder_with_default(flag, []), lambda: random.normal([4]), lambda: random.normal([4]))

    assert not is_same(drawn(lambda: build(True)), drawn(lambda: build(False)))


def test_the_first_op_may_be_in_a_branch_or_a_scope():
    def build():
        with v1.variable_scope("layer"), tf.name_scope("tower0"), tf.control_dependencies([tf.no_op()]):
            return tf.cond(v1.placeholder_with_default(True, []), lambda: random.normal([4]), lambda: tf.zeros([4]))

    assert all_differ(drawn(build, range(3)))
    with tf.Graph().as_default():
        build()
        variables = sorted(variable.op.name for variable in v1.global_variables())
        assert variables == ["global_step", "tpk_further_runs", "tpk_random_seed"]
        assert not v1.trainable_variables()


def test_the_first_random_op_may_be_in_a_reusing_scope():
    def build():
        with v1.variable_scope("shared", reuse=True):
            return random.normal([4])

    assert all_differ(drawn(build, range(2), seed=None))


def test_all_ops_of_a_run_see_one_step_however_the_run_counts():
    with tf.Graph().as_default(), v1.Session() as sess:
        v1.set_random_seed(7)
        values = [random.normal([4], name="noise")]
        count = v1.train.get_global_step().assign_add(1, read_value=False)
        values.append(random.normal([4], name="late"))
        (read,) = random.step_reads()
        with tf.control_dependencies([read]):
            counted = v1.train.get_global_step().assign_add(1, read_value=False)
        sess.run(v1.global_variables_initializer())
        runs = [sess.run([*values, counted])[:2] for _ in range(30)]
        sess.run(count)
    expected = drawn(lambda: [random.normal([4], name="noise"), random.normal([4], name="late")], range(30))
    assert all(is_same(one, other) for one, other in zip(runs, expected, strict=True))


def test_there_is_nothing_to_read_without_random_ops():
    with tf.Graph().as_default():
        assert random.step_reads() == []


def test_a_graph_without_a_seed_draws_its_own_which_checkpoints_hold(tmp_path):
    def build():
        return random.normal([8])

    path = str(tmp_path / "model")
    with tf.Graph().as_default(), v1.Session() as sess:
        noise = build()
        sess.run(v1.global_variables_initializer())
        v1.train.get_global_step().load(5, sess)
        v1.train.Saver().save(sess, path, write_meta_graph=False)
        expected = sess.run(noise)
    assert is_same(drawn(build, [5], seed=None, restore=path), expected)
    assert not is_same(drawn(build, [5], seed=None), expected)
    # An op with a seed does not need a seed of the graph, like TensorFlow's ops.
    seeded = drawn(lambda: random.normal([8], seed=3), seed=None)
    assert is_same(drawn(lambda: random.normal([8], seed=3), seed=None), seeded)
    assert not is_same(drawn(lambda: random.normal([8], seed=4), seed=None), seeded)


def test_a_seed_of_the_graph_is_that_of_the_program_and_not_of_the_checkpoint():
    with tf.Graph().as_default():
        v1.set_random_seed(0)
        random.normal([3])
        assert [variable.op.name for variable in v1.global_variables()] == ["global_step", "tpk_further_runs"]


def test_processes_draw_other_numbers():
    def build(index):
        random.set_process_index(index)
        return random.uniform([9])

    values = [drawn(lambda index=index: build(index)) for index in range(3)]
    assert all_differ(values)
    assert is_same(values[0], drawn(lambda: random.uniform([9])))
    assert all_differ([drawn(lambda index=index: build(index), seed=None) for index in range(3)])


def test_the_process_has_to_be_known_before():
    with tf.Graph().as_default():
        random.normal([3], name="noise")
        with pytest.raises(ConfigError, match=r"set_process_index\(1\) comes too late: 'noise'"):
            random.set_process_index(1)


def test_distributions():
    steps = range(4)
    many = [20_000]
    # Within 5 standard errors.
    normal = np.concatenate(drawn(lambda: random.normal(many, 3.0, 2.0), steps))
    assert normal.mean() == pytest.approx(3, abs=5 * 2 / 80_000**0.5)
    assert normal.std() == pytest.approx(2, abs=5 * 2 / 160_000**0.5)
    truncated = np.concatenate(drawn(lambda: random.truncated_normal(many, 3.0, 2.0), steps))
    assert -1 <= truncated.min() < -0.9 and 6.9 < truncated.max() <= 7
    uniform = np.concatenate(drawn(lambda: random.uniform(many, 2.0, 6.0), steps))
    assert 2 <= uniform.min() < 2.01 and 5.99 < uniform.max() < 6
    assert uniform.mean() == pytest.approx(4, abs=5 * 4 / (12 * 80_000) ** 0.5)
    counts = np.bincount(np.concatenate(drawn(lambda: random.uniform(many, 0, 5, tf.int64), steps)), minlength=5)
    assert counts == pytest.approx([16_000] * 5, abs=5 * (80_000 * 0.2 * 0.8) ** 0.5)


def test_steps_and_names_are_independent():
    steps = drawn(lambda: [random.normal([2000], name=name) for name in "abcdefgh"], range(8))
    correlations = np.corrcoef(np.reshape(steps, [64, 2000])) - np.eye(64)
    assert np.abs(correlations).max() < 5.5 / 2000**0.5


def test_shuffle_moves_rows_as_a_whole_and_anywhere():
    rows = np.arange(12).reshape(6, 2)
    steps = np.array(drawn(lambda: random.shuffle(rows), range(300)))
    assert all(sorted(map(tuple, step)) == sorted(map(tuple, rows)) for step in steps)
    # Each row is about as often in each place.
    for place in range(6):
        assert np.bincount(steps[:, place, 0] // 2, minlength=6) == pytest.approx([50] * 6, abs=33)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64], ids=lambda it: it.name)
def test_floating_types(dtype):
    with tf.Graph().as_default():
        shape = v1.placeholder(tf.int64, [2])
        for op in (random.normal, random.truncated_normal, random.uniform):
            assert op(shape, dtype=dtype).dtype == op([2, 3], dtype=dtype).dtype == dtype
            assert op(tf.TensorShape([2, 3]), dtype=dtype).shape == op(np.array([2, 3]), dtype=dtype).shape == (2, 3)
    ones = np.ones([50, 50])
    kept = drawn(lambda: random.dropout(tf.cast(ones, dtype), 0.5)).astype(np.float64)
    assert set(kept.ravel()) == {0, 2}
    # The same units are dropped in every precision.
    assert (kept == drawn(lambda: random.dropout(tf.cast(ones, tf.float32), 0.5))).all()


def test_names_are_those_that_were_asked_for():
    with tf.Graph().as_default(), tf.name_scope("tower0"):
        for op, build in OPS.items():
            if op != "seed":
                assert build(name=f"my_{op}").name == f"tower0/my_{op}:0"


@pytest.mark.parametrize("rate", [0.3, "tensor"])
def test_dropout_keeps_the_mean_and_passes_gradients_through_the_mask(rate):
    def build():
        fraction = v1.placeholder_with_default(0.3, []) if rate == "tensor" else rate
        x = v1.placeholder_with_default(np.full([400, 50], 2.0, np.float32), [None, 50])
        y = random.dropout(x, fraction)
        assert y.shape.as_list() == [None, 50]
        return y, tf.gradients(y, x)[0]

    y, gradient = drawn(build)
    np.testing.assert_allclose(y, gradient * 2)
    np.testing.assert_allclose(np.unique(gradient), [0, 1 / 0.7], rtol=1e-6)
    assert y.mean() == pytest.approx(2, abs=5 * 2 * (0.3 / 0.7 / 20_000) ** 0.5)


def test_dropout_of_infinite_values_is_zero():
    kept = drawn(lambda: random.dropout(tf.fill([100], np.inf), 0.5))
    assert set(kept) == {0, np.inf}


@pytest.mark.parametrize("noise_shape", [(None, 1, 4), (30, 1, 4), "tensor"])
def test_dropout_with_one_decision_for_an_axis(noise_shape):
    def build():
        x = v1.placeholder_with_default(np.ones([30, 5, 4], np.float32), [None, 5, 4])
        return random.dropout(x, 0.5, tf.constant([30, 1, 4]) if noise_shape == "tensor" else noise_shape)

    kept = drawn(build)
    assert (kept == kept[:, :1]).all()
    assert set(kept.ravel()) == {0, 2}
    assert len({row.tobytes() for row in kept[:, 0]}) > 5


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: random.dropout(tf.ones([3]), 1.0), r"dropout\(rate=1\.0\): expected a number in \[0, 1\)"),
        (lambda: random.dropout(tf.ones([3]), -0.1), r"dropout\(rate=-0\.1\)"),
        (lambda: random.dropout(tf.range(3), 0.5), "dropout of int32: expected a floating-point type"),
        (lambda: random.uniform([3], dtype=tf.int32), r"uniform\(dtype=int32\) has no maxval"),
    ],
)
def test_what_is_refused(build, message):
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=message):
        build()


def test_eager_execution_is_refused():
    with pytest.raises(ConfigError, match="TensorFlow executes eagerly"):
        random.normal([3])
    with pytest.raises(ConfigError, match="TensorFlow executes eagerly"):
        tf.function(lambda: random.normal([3]), autograph=False)()


@contextlib.contextmanager
def control_flow_v1():
    v1.disable_control_flow_v2()
    try:
        yield
    finally:
        v1.enable_control_flow_v2()


def test_code_that_may_run_several_times_in_a_step_is_an_error():
    def loop():
        tf.while_loop(lambda i: i < 3, lambda i: i + tf.cast(random.normal([], name="noise"), tf.int32), [0])

    @tf.autograph.experimental.do_not_convert
    def draw(*_):
        return random.normal([], name="noise")

    with tf.Graph().as_default(), tf.name_scope("tower0"):
        with control_flow_v1(), pytest.raises(ConfigError, match=r"'tower0/while/noise' is inside a tf\.while_loop"):
            loop()
        with pytest.raises(ConfigError, match=r"'tower0/noise' is inside the function 'draw.*step_seed\(\) outside"):
            tf.function(draw, autograph=False)()
        with pytest.raises(ConfigError, match="inside the function 'Dataset_map"):
            tf.data.Dataset.range(3).map(draw)


def test_branches_of_tensorflow_1_work():
    def build():
        with control_flow_v1():
            return tf.cond(v1.placeholder_with_default(True, []), lambda: random.normal([4]), lambda: tf.zeros([4]))

    assert all_differ(drawn(build, range(3)))


def test_seeds_are_for_tensorflows_stateless_ops():
    def build():
        seed = random.step_seed("outside")
        inside = tf.function(lambda seed: tf.random.stateless_gamma([5], seed, alpha=2.0), autograph=False)
        return inside(seed)

    assert all_differ(drawn(build, range(3)))


def test_determinism_asks_for_a_seed():
    with deterministic_ops():
        with tf.Graph().as_default(), pytest.raises(ConfigError, match=r"'noise' has no seed.*TrainConfig\(seed="):
            random.normal([3], name="noise")
        assert drawn(lambda: random.normal([3])).shape == drawn(lambda: random.normal([3], seed=0), seed=None).shape
