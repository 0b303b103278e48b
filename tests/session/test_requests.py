"""Requests that change from run to run, contradict each other, or cannot be served."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from hooked_sessions import Ask, assert_same, hooked, op, t

from tpk.errors import SessionError
from tpk.plugin import Callback
from tpk.session.hooked import MAX_PLANS

v1 = tf.compat.v1


class Fresh(Callback):
    """Asks in each run for what `make` gives it, and keeps what it gets."""

    def __init__(self, make):
        self.make, self.run, self.got = make, 0, []

    def before_run(self, run_context):
        self.run += 1
        return self.make(self.run)

    def after_run(self, run_context, run_values):
        self.got.append(run_values)


# Feeds that change


def test_what_was_fed_once_is_not_expected_again(sess):
    ours = hooked(sess)
    for _ in range(2):
        assert ours.run(t("same_b"), {t("b"): [[5.0, 6.0]]}).tolist() == [[5.0, 6.0]]
        assert ours.run(t("same_b")).tolist() == [[1.0, 1.0]]


def test_a_placeholder_that_is_not_fed_any_more_is_an_error_of_tensorflow(sess):
    ours = hooked(sess)
    ours.run(t("total"), {t("a"): [[1.0, 1.0]]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="must feed a value for placeholder tensor 'a'") as error:
        ours.run(t("total"))
    assert error.value.op is op("a")


def test_a_hook_may_feed_in_some_runs_only(sess):
    feeds = [None, {t("b"): [[3.0, 3.0]]}, {}, {"b:0": [[4.0, 4.0]]}]
    hook = Fresh(lambda run: v1.train.SessionRunArgs(None, feeds[run % 4]))
    ours = hooked(sess, hook)
    total = t("total")
    results = [ours.run(total, {t("a"): [[1.0, 1.0]]})[0, 0] for _ in range(8)]
    assert results == [4.0, 2.0, 5.0, 2.0] * 2


# Structures that change


def test_a_dict_that_lost_a_key_gives_values_under_their_own_keys(sess):
    fetches = {"a": t("seven"), "b": t("letters")}
    ours = hooked(sess)
    assert_same(ours.run(fetches), sess.run(fetches))
    same = {"a": t("seven"), "b": t("letters")}
    fetches.pop("a")
    assert_same(ours.run(same), sess.run(same))
    assert_same(ours.run(fetches), sess.run(fetches))


def test_a_dict_that_is_filled_anew_in_place_is_seen_as_it_is(sess):
    inner = {"x": t("seven")}
    fetches = [inner, {"deep": [inner]}]
    ours = hooked(sess)
    for change in (lambda: inner.pop("x"), lambda: inner.update(y=t("letters")), lambda: inner.update(x=t("pair"))):
        assert_same(ours.run(fetches), sess.run(fetches))
        change()
    assert_same(ours.run(fetches, options=v1.RunOptions()), sess.run(fetches))


class Key:
    """A key that equals others like it, and may change."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Key) and self.value == other.value

    def __hash__(self):
        return hash(self.value)


@pytest.mark.parametrize(
    "keys",
    [(1, True), (True, 1), (0, False, 0.0, -0.0), ("a", str), (1, np.int64(1), 1.0), (Key(1), Key(1)), ((1,), (True,))],
)
def test_equal_keys_come_back_as_they_were_given(sess, keys):
    ours = hooked(sess)
    for key in keys:
        (result,) = ours.run({key: t("seven")})
        assert result is key


def test_a_key_that_changes_is_still_the_key(sess):
    key = Key(1)
    ours = hooked(sess)
    ours.run({key: t("seven")})
    key.value = 2
    assert ours.run({key: t("seven")}) == {Key(2): 7.0}


def test_a_type_that_expands_to_other_fetches_in_each_run_is_asked_in_each(sess):
    class Either:
        chosen = "seven"

    from tensorflow.python.client.session import register_session_run_conversion_functions

    register_session_run_conversion_functions(Either, lambda each: ([t(each.chosen)], lambda values: values[0]))
    either, ours = Either(), hooked(sess)
    assert ours.run(either) == 7.0
    either.chosen = "letters"
    assert ours.run(either).tolist() == [b"x", b"y"]


# Many requests


@pytest.mark.parametrize("step_changes", [False, True])
def test_hundreds_of_different_requests_take_no_memory_and_give_the_right_values(sess, step_changes):
    seven, tensors = t("seven"), [tf.constant(float(number)) for number in range(2 * MAX_PLANS)]
    fresh, steady = Fresh(lambda run: {f"loss/{run}": seven}), Ask([t("letters")])
    ours = hooked(sess, steady, fresh)

    def run(times):
        for _ in range(times):
            number = (fresh.run + 1) % len(tensors) if step_changes else 0
            assert ours.run([tensors[number]]) == [number]
            assert fresh.got[-1].results == {f"loss/{fresh.run}": 7.0}
            fresh.got.clear()
            steady.got.clear()

    run(MAX_PLANS)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run(600)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000_000


def test_a_composite_made_anew_for_each_run_is_compiled_once(sess, graph, compiled):
    with graph.as_default():
        sparse = tf.sparse.from_dense([[0.0, 1.0]])
    parts = (sparse.indices, sparse.values, sparse.dense_shape)
    ours = hooked(sess)
    for _ in range(MAX_PLANS):
        fetches = tf.SparseTensor(*parts)
        assert_same(ours.run(fetches), sess.run(sparse))
    assert len(compiled) == 1


def test_the_structures_used_last_stay_compiled(sess, compiled):
    ours = hooked(sess)
    ours.run({"first": t("letters")})
    for number in range(2 * MAX_PLANS):
        assert ours.run({number: t("seven")})[number] == 7.0
    assert len(compiled) == 2
    assert ours.run({"first": t("letters")})["first"].tolist() == [b"x", b"y"]
    assert len(compiled) == 3


def test_a_run_with_options_compiles_nothing(sess, compiled):
    ours = hooked(sess)
    ours.run(t("seven"), options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE))
    ours.run(t("seven"), run_metadata=v1.RunMetadata())
    assert not compiled


# What hooks are given


def test_hooks_always_get_options_metadata_and_a_context_of_their_own(sess):
    contexts = []
    one = Fresh(lambda run: None)
    one.before_run = lambda run_context: contexts.append(run_context)
    ours = hooked(sess, one, Fresh(lambda run: t("seven")))
    for _ in range(2):
        ours.run(op("bump"))
    assert contexts[0] is not contexts[1]
    for values in one.got:
        assert values.results is None
        assert values.options == v1.RunOptions()
        assert values.run_metadata == v1.RunMetadata()


def test_a_stop_that_was_requested_is_not_requested_again(sess):
    class StopOnce(Callback):
        seen = ()

        def before_run(self, run_context):
            self.seen += (run_context.stop_requested,)
            if len(self.seen) == 1:
                run_context.request_stop()

    ours = hooked(sess, hook := StopOnce())
    ours.run(op("bump"))
    ours.run(op("bump"))
    assert hook.seen == (False, False)


def test_every_run_option_is_merged(sess):
    one = v1.RunOptions(report_tensor_allocations_upon_oom=True, timeout_in_ms=7)
    two = v1.RunOptions(output_partition_graphs=True, timeout_in_ms=60_000, inter_op_thread_pool=0)
    two.debug_options.reset_disk_byte_usage = True
    hooks = [
        Fresh(lambda run, options=options: v1.train.SessionRunArgs(None, options=options)) for options in (one, two)
    ]
    hooked(sess, *hooks).run(t("seven"))
    merged = hooks[0].got[0].options
    assert merged.report_tensor_allocations_upon_oom
    assert merged.output_partition_graphs
    assert merged.debug_options.reset_disk_byte_usage
    assert merged.timeout_in_ms == 60_000
    assert one.timeout_in_ms == 7


# Errors


def callback_feeding(feed_dict):
    return Fresh(lambda run: v1.train.SessionRunArgs(None, feed_dict))


@pytest.mark.parametrize("keys", [("a:0", "tensor"), ("tensor", "a:0")])
def test_a_tensor_fed_under_two_names_is_an_error_that_names_both_who_do(sess, keys):
    first, second = ({"a:0": "a:0", "tensor": t("a")}[key] for key in keys)
    ours = hooked(sess, callback_feeding({second: [[1.0, 1.0]]}))
    with pytest.raises(SessionError, match=r"'a:0' is fed twice in one step: by the step and by callback 'Fresh'"):
        ours.run(t("total"), {first: [[2.0, 2.0]]})
    with pytest.raises(SessionError, match=r"'a:0' is fed twice in one step: by the step and by the step"):
        hooked(sess).run(t("total"), {first: [[2.0, 2.0]], second: [[2.0, 2.0]]})


def test_a_part_of_a_sparse_tensor_is_fed_once(sess, graph):
    sparse = tf.SparseTensor(t("sparse/indices"), t("sparse/values"), t("sparse/shape"))
    ours = hooked(sess, callback_feeding({t("sparse/values"): [1.0]}))
    with graph.as_default(), pytest.raises(SessionError, match="'sparse/values:0' is fed twice"):
        ours.run(sparse.values, {sparse: v1.SparseTensorValue([[0, 1]], [5.0], [1, 2])})


@pytest.mark.parametrize(
    ("request_of", "error"),
    [
        (lambda: "nothing:0", ValueError),
        (lambda: {"x": None}, TypeError),
        (lambda: v1.train.SessionRunArgs(object()), TypeError),
    ],
)
def test_an_error_in_what_a_callback_asks_for_names_it(sess, request_of, error):
    bad = request_of()
    ours = hooked(sess, Ask(t("seven")), Fresh(lambda run: bad))
    for _ in range(2):
        with pytest.raises(error) as raised:
            ours.run(t("total"), {t("a"): [[1.0, 1.0]]})
        assert raised.value.__notes__ == ["in callback 'Fresh', hook 'before_run'"]


def test_an_error_in_what_the_step_asks_for_blames_no_callback(sess):
    ours = hooked(sess, Ask(t("seven")))
    for fetches, feed_dict in (("nothing:0", None), ("total:0", {t("a"): np.ones([3, 5])})):
        with pytest.raises(ValueError) as raised:
            ours.run(fetches, feed_dict)
        assert not getattr(raised.value, "__notes__", None)


def test_a_feed_dict_that_is_none_is_a_type_error_that_says_whose(sess):
    with pytest.raises(TypeError, match=r"the step feeds \[1\], which is not a dict"):
        hooked(sess).run(t("seven"), [1])
    with pytest.raises(TypeError, match="callback 'Fresh' feeds 3, which is not a dict"):
        hooked(sess, callback_feeding(3)).run(t("seven"))


def test_what_cannot_be_placed_says_where_it_was_made(graph):
    with graph.as_default(), tf.device("/gpu:0"):
        tf.linalg.matmul(tf.ones([2, 2]), tf.ones([2, 2]), name="misplaced")
    with v1.Session(graph=graph, config=v1.ConfigProto(allow_soft_placement=False)) as sess:
        with pytest.raises(tf.errors.InvalidArgumentError) as theirs:
            sess.run("misplaced:0")
        with pytest.raises(tf.errors.InvalidArgumentError) as ours:
            hooked(sess).run("misplaced:0")
    assert ours.value.op is theirs.value.op
    assert "test_requests.py" in str(ours.value)
    assert "defined at" in str(ours.value)


@pytest.mark.parametrize("fetches", ["seven:0", ["letters:0"]])
def test_a_closed_session_raises_a_runtime_error_for_what_it_has_not_run_before(sess, fetches):
    ours = hooked(sess)
    ours.run("seven:0")
    sess.close()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="closed Session"):
            ours.run(fetches)
