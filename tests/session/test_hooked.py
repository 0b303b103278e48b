"""The step engine, held against TensorFlow's own `Session.run` and `MonitoredSession`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from hooked_sessions import STRUCTURES, Ask, assert_same, hooked, op, t

from tpk.errors import SessionError, StopTraining
from tpk.graph.fetches import ReusableFeeds
from tpk.plugin import Callback, HookManager, Progress
from tpk.plugin.step import raise_stop
from tpk.session import HookedSession

v1 = tf.compat.v1


@pytest.mark.parametrize("structure", STRUCTURES)
def test_fetches_have_the_structure_and_values_of_session_run(sess, structure):
    fetches = STRUCTURES[structure]()
    ours = hooked(sess)
    expected = sess.run(fetches)
    for _ in range(3):  # compiled, then reused
        assert_same(ours.run(fetches), expected)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_hook_gets_the_structure_and_values_of_session_run(sess, structure):
    asked = Ask(STRUCTURES[structure]())
    expected = sess.run(asked.request)
    ours = hooked(sess, Ask(t("seven")), asked)
    for _ in range(2):
        assert ours.run(t("letters")).tolist() == [b"x", b"y"]
    for got in asked.got:
        assert_same(got, expected)


FEEDS = {
    "array": lambda: {t("a"): np.ones((3, 2), np.float32)},
    "array of another dtype": lambda: {t("a"): np.ones((3, 2), np.int64)},
    "not contiguous": lambda: {t("a"): np.arange(12, dtype=np.float32).reshape(2, 6).T[::3]},
    "list": lambda: {t("a"): [[1, 2], [3, 4]]},
    "empty": lambda: {t("a"): np.zeros((0, 2), np.float32)},
    "two": lambda: {t("b"): [[2.0, 3.0]], t("a"): [[1.0, 1.0]]},
    "by name": lambda: {"a:0": [[1.0, 1.0]]},
    "numpy scalar": lambda: {t("a"): [[1, 1]], t("whole"): np.int32(4)},
    "python int": lambda: {t("a"): [[1, 1]], t("whole"): 4},
    "strings": lambda: {t("a"): [[1, 1]], t("words"): ["x", b"yz"]},
    "array of strings": lambda: {t("a"): [[1, 1]], t("words"): np.array(["x", "yz"])},
    "unknown rank": lambda: {t("a"): [[1, 1]], t("anything"): [[True]]},
}


@pytest.mark.parametrize("feeds", FEEDS)
def test_feeds_mean_what_they_mean_to_session_run(sess, feeds):
    feed_dict = FEEDS[feeds]()
    known = [key if isinstance(key, str) else key.name for key in feed_dict]
    results = {"whole:0": "twice", "words:0": "same_words", "anything:0": "same_thing"}
    fetches = [t("total"), *(t(results[name]) for name in known if name in results)]
    expected = sess.run(fetches, feed_dict)
    ours = hooked(sess)
    for _ in range(2):
        assert_same(ours.run(fetches, feed_dict), expected)


def test_a_tensor_that_is_fed_and_fetched_gives_what_was_fed(sess):
    feed_dict = {t("a"): [[1.0, 2.0]]}
    expected = sess.run([t("a"), t("total")], feed_dict)
    assert_same(hooked(sess).run([t("a"), t("total")], feed_dict), expected)


def test_sparse_feeds_take_the_ordinary_run(sess, graph):
    sparse = tf.SparseTensor(t("sparse/indices"), t("sparse/values"), t("sparse/shape"))
    value = v1.SparseTensorValue([[0, 1]], [5.0], [1, 2])
    expected = sess.run(sparse.values, {sparse: value})
    assert_same(hooked(sess).run(sparse.values, {sparse: value}), expected)


BAD_FEEDS = {
    "shape": lambda: {t("a"): np.ones((3, 5))},
    "rank": lambda: {t("a"): np.ones(3)},
    "not a number": lambda: {t("a"): [["x", "y"]]},
    "does not fit the dtype": lambda: {t("a"): [[1, 1]], t("whole"): 2**40},
    "a tensor": lambda: {t("a"): t("seven")},
    "no key": lambda: {"nothing:0": 1.0},
}


@pytest.mark.parametrize("feeds", BAD_FEEDS)
def test_bad_feeds_raise_what_session_run_raises(sess, feeds):
    feed_dict = BAD_FEEDS[feeds]()
    ours = hooked(sess)
    ours.run(t("total"), {t("a"): [[1, 1]]})
    with pytest.raises(Exception) as theirs:
        sess.run(t("total"), feed_dict)
    with pytest.raises(type(theirs.value)) as error:
        ours.run(t("total"), feed_dict)
    assert str(error.value) == str(theirs.value)


def test_bad_fetches_raise_what_session_run_raises(sess):
    with pytest.raises(ValueError, match="nothing:0"):
        hooked(sess).run("nothing:0")
    with pytest.raises(TypeError, match="None"):
        hooked(sess).run(None)


def test_a_failing_op_raises_what_session_run_raises(sess, graph):
    with graph.as_default():
        failing = v1.debugging.assert_equal(t("whole"), 1, message="whole is not one")
    with pytest.raises(tf.errors.InvalidArgumentError) as theirs:
        sess.run(failing, {t("whole"): 2})
    with pytest.raises(tf.errors.InvalidArgumentError) as ours:
        hooked(sess).run(failing, {t("whole"): np.array(2, np.int32)})
    assert ours.value.op is theirs.value.op
    assert "whole is not one" in str(ours.value)
    assert "test_hooked.py" in str(ours.value)  # where the user made the op


def test_a_closed_session_raises_what_session_run_raises(sess):
    ours = hooked(sess)
    ours.run(op("bump"))
    sess.close()
    with pytest.raises(RuntimeError, match="closed Session"):
        ours.run(op("bump"))


def test_everything_happens_in_one_run(sess):
    ours = hooked(sess, Ask(op("bump")), Ask([op("bump"), t("seven")]))
    ours.run(op("bump"))
    assert sess.run(v1.global_variables()[0]) == 1


def test_requests_that_change_from_step_to_step_get_their_own_results(sess):
    class Alternate(Callback):
        def __init__(self):
            self.step, self.got = 0, []

        def before_run(self, run_context):
            self.step += 1
            return None if self.step % 2 else [t("seven")]

        def after_run(self, run_context, run_values):
            self.got.append(run_values.results)

    alternate, steady = Alternate(), Ask(t("letters"))
    ours = hooked(sess, alternate, steady)
    for _ in range(4):
        ours.run(op("bump"))
    assert alternate.got == [None, [7.0], None, [7.0]]
    assert [got.tolist() for got in steady.got] == [[b"x", b"y"]] * 4


def test_of_those_who_ask_for_the_same_all_the_time_one_may_change_it(sess):
    """The same objects again and again are a run that is known; nobody may get the results of one that was before."""
    seven, letters, rows = t("seven"), t("letters"), t("rows")
    first, second = Ask(seven), Ask(letters)
    ours = hooked(sess, first, second)
    values = {each: sess.run(each).tolist() for each in ("seven:0", "letters:0", "rows:0")}
    for asked in [(rows, seven, letters)] * 3 + [(rows, rows, letters)] * 2 + [(rows, rows, None), (seven, rows, None)]:
        own, first.request, second.request = asked
        results = [ours.run(own), first.got[-1], second.got[-1]]
        assert [each if each is None else each.tolist() for each in results] == [
            None if each is None else values[each.name] for each in asked
        ]


def test_a_run_that_is_known_counts_as_often_as_it_is_told_to(sess):
    progress = Progress()
    ours = hooked(sess, Ask(t("seven")), progress=progress)
    counts = []
    for steps in (1, 1, 0, 0, 1, 3, 1):
        progress.offer(steps)
        ours.run(op("bump"))
        counts.append(progress.global_step)
    assert counts == [1, 2, 2, 2, 3, 6, 7]


def test_what_one_run_tells_of_itself_is_not_told_of_the_next(sess):
    asked = Ask(t("seven"))
    told = []
    asked.after_run = lambda run_context, run_values: told.append(run_values)
    ours = hooked(sess, asked)
    for options in (None, None, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), None):
        ours.run(op("bump"), options=options)
    assert [values.options.trace_level for values in told] == [0, 0, v1.RunOptions.FULL_TRACE, 0]
    assert [bool(values.run_metadata.step_stats.dev_stats) for values in told] == [False, False, True, False]


def test_a_list_that_is_changed_in_place_is_seen_as_changed(sess):
    fetches = [t("seven")]
    ours = hooked(sess)
    assert ours.run(fetches) == [7.0]
    fetches.append(t("letters"))
    assert len(ours.run(fetches)) == 2


def test_a_new_request_object_each_step_is_compiled_once(sess, compiled):
    class Fresh(Callback):
        def before_run(self, run_context):
            return v1.train.SessionRunArgs((t("seven"),))

    ours = hooked(sess, Fresh())
    for _ in range(600):
        ours.run(op("bump"))
    assert len(compiled) == 1


def test_the_first_completed_run_of_a_step_counts_it(sess, graph):
    manager = HookManager()
    progress = Progress()
    ours = HookedSession(sess, manager.compile_step(), progress)
    ours.run(op("bump"))  # No step is offered.
    assert progress.global_step == 0
    progress.offer()
    with pytest.raises(tf.errors.InvalidArgumentError):
        ours.run(t("total"))  # `a` is not fed
    assert progress.global_step == 0
    ours.run(op("bump"))
    ours.run(op("bump"))
    assert progress.global_step == 1


def test_a_failed_run_outside_of_the_step_does_not_take_the_step_away(sess):
    class FailsBesides(Callback):
        """Fails in a run of another thread, during which the loop offers a step."""

        def before_run(self, run_context):
            if run_context.original_args.fetches is not bump:
                progress.offer()
                raise RuntimeError("beside the step")

    bump, progress = op("bump"), Progress()
    manager = HookManager()
    manager.register_all([FailsBesides()])
    ours = HookedSession(sess, manager.compile_step(), progress)
    with pytest.raises(RuntimeError, match="beside the step"):
        ours.run(t("seven"))
    ours.run(bump)
    assert progress.global_step == 1


def test_one_of_the_runs_in_several_threads_counts_the_step(sess):
    bump = op("bump")
    progress = Progress()
    ours = hooked(sess, progress=progress)

    def run():
        for _ in range(100):
            ours.run(bump)

    progress.offer()
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(run) for _ in range(8)]:
            done.result()
    assert progress.global_step == 1


def test_the_same_tensor_fed_twice_is_an_error_that_names_it(sess):
    ours = hooked(sess, Ask(v1.train.SessionRunArgs(None, {t("a"): [[1.0, 1.0]]})))
    with pytest.raises(SessionError, match=r"'a:0' is fed twice"):
        ours.run(t("total"), {t("a"): [[2.0, 2.0]]})


def test_a_hook_feeds_and_the_step_gets_it(sess):
    ours = hooked(sess, Ask(v1.train.SessionRunArgs(None, {t("a"): np.float32([[1, 1]])})))
    assert ours.run(t("total")).tolist() == [[2.0, 2.0]]


def test_reusable_feeds_take_new_values_in_each_step(sess):
    class FeedsArange(Callback):
        def __init__(self):
            self.request = v1.train.SessionRunArgs(None, ReusableFeeds([t("a"), t("b")], self.take))

        def take(self):
            return [np.full([self.rows, 2], self.rows, np.float32), np.zeros([1, 2], np.float32)]

        def before_run(self, run_context):
            return self.request

    feeder = FeedsArange()
    session = hooked(sess, feeder)
    total = t("total")
    for feeder.rows in (1, 3, 2, 3):
        assert_same(session.run(total), np.full([feeder.rows, 2], feeder.rows, np.float32))
    assert_same(session.run(total, {"whole:0": 3}), np.full([3, 2], 3, np.float32))
    with pytest.raises(SessionError, match="fed twice"):
        session.run(total, {t("a"): np.zeros([1, 2])})


def test_options_of_all_requests_are_merged_and_metadata_is_handed_out(sess):
    seen = []

    class Trace(Callback):
        def before_run(self, run_context):
            return v1.train.SessionRunArgs(t("seven"), options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE))

        def after_run(self, run_context, run_values):
            seen.append(run_values)

    metadata = v1.RunMetadata()
    ours = hooked(sess, Trace())
    ours.run(op("bump"), options=v1.RunOptions(timeout_in_ms=5000), run_metadata=metadata)
    ours.run(op("bump"))
    assert seen[0].options.timeout_in_ms == 5000
    assert seen[0].options.trace_level == v1.RunOptions.FULL_TRACE
    assert seen[0].run_metadata is metadata
    assert all(values.run_metadata.step_stats.dev_stats and values.results == 7.0 for values in seen)


def test_a_run_context_shows_the_original_run_and_the_raw_session(sess):
    class Look(Callback):
        def before_run(self, run_context):
            self.context = run_context

    look = Look()
    hooked(sess, look).run(t("total"), {t("a"): [[1, 1]]})
    assert look.context.session is sess
    assert look.context.original_args.fetches is t("total")


def test_a_requested_stop_takes_effect_after_the_hooks_of_the_step(sess):
    class Stop(Callback):
        def after_run(self, run_context, run_values):
            run_context.request_stop()

    last = Ask(t("seven"))
    with pytest.raises(StopTraining, match="a hook asked for the end"):
        hooked(sess, Stop(), last, take_stop=raise_stop).run(op("bump"))
    assert last.got == [7.0]


@pytest.mark.parametrize("hook", ["before_run", "after_run"])
def test_an_error_in_a_hook_names_it(sess, hook):
    class Broken(Callback):
        pass

    def fail(self, run_context, *run_values):
        raise KeyError("mine")

    if hook == "before_run":
        Broken.before_run = lambda self, run_context: fail(self, run_context)
    else:
        Broken.after_run = lambda self, run_context, run_values: fail(self, run_context)
    with pytest.raises(KeyError, match="mine") as error:
        hooked(sess, Ask(t("seven")), Broken()).run(op("bump"))
    assert error.value.__notes__ == [f"in callback 'Broken', hook {hook!r}"]


class Translates(Callback):
    def __init__(self, cause):
        self.cause = cause

    def translate_error(self, error):
        return self.cause


def test_the_cause_of_a_failed_run_is_raised_in_its_place(sess):
    ours = hooked(sess, Translates(ZeroDivisionError("in the data")))
    for fetches in (t("total"), "total:0"):
        with pytest.raises(ZeroDivisionError) as raised:
            ours.run(fetches)
        assert isinstance(raised.value.__cause__, tf.errors.InvalidArgumentError)


def test_a_cause_keeps_the_chain_that_it_has(sess):
    own = OSError("the disk")
    cause = ValueError("in the data")
    cause.__cause__ = own
    with pytest.raises(ValueError, match="in the data") as raised:
        hooked(sess, Translates(cause)).run(t("total"))
    assert raised.value.__cause__ is own


def test_the_same_hooks_get_the_same_under_a_monitored_session(graph):
    class Record(v1.train.SessionRunHook):
        def __init__(self, request):
            self.request, self.seen = request, []

        def before_run(self, run_context):
            return None if self.request is None else v1.train.SessionRunArgs(self.request)

        def after_run(self, run_context, run_values):
            self.seen.append(run_values.results)

    class Adapt(Callback):
        def __init__(self, hook):
            self.before_run = hook.before_run
            self.after_run = hook.after_run

    requests = [None, t("seven"), [op("bump"), t("letters")], {"a": (t("seven"),)}]
    ours, theirs = ([Record(request) for request in requests] for _ in range(2))
    initializer = v1.global_variables_initializer()
    with v1.train.MonitoredSession(hooks=theirs) as monitored:
        monitored.run(initializer)
        expected = monitored.run([t("total"), op("bump")], {t("a"): [[1, 1]]})
    with v1.Session(graph=graph) as sess:
        sess.run(initializer)
        got = hooked(sess, *map(Adapt, ours)).run([t("total"), op("bump")], {t("a"): [[1, 1]]})
    assert_same(got, expected)
    for one, other in zip(ours, theirs, strict=True):
        assert_same(one.seen[-1], other.seen[-1])
