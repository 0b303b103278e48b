"""How values of other shapes, dtypes and names get into variables."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.checkpoint import ChainInit, DictRestore, NpzRestore, SaverRestore, SaverRestoreRelaxed, SessionInit, SmartInit
from tpk.checkpoint.session_init import as_session_init
from tpk.errors import CheckpointError

v1 = tf.compat.v1


@pytest.fixture
def make_sess(request):
    """Return a function that opens a session with variables of given shapes and dtypes, all zero."""

    def make(**specs):
        graph = tf.Graph()
        with graph.as_default():
            for name, (shape, dtype) in specs.items():
                v1.get_variable(name.replace("__", "/"), shape, dtype, initializer=v1.zeros_initializer())
            saver, initializer = v1.train.Saver(), v1.global_variables_initializer()
        graph.finalize()
        sess = v1.Session(graph=graph)
        request.addfinalizer(sess.close)
        sess.run(initializer)
        sess.saver = saver
        return sess

    return make


def value(sess, name):
    (variable,) = [each for each in sess.graph.get_collection("variables") if each.name == f"{name}:0"]
    return sess.run(variable)


def table(caplog):
    """Return the rows of the last table in the log: status, name and the rest."""
    return [tuple(line.split(maxsplit=2)) for line in caplog.messages[-1].splitlines()[2:]]


@pytest.fixture
def save(make_sess, tmp_path):
    """Return a function that writes a checkpoint with given values, and returns its prefix."""

    def save(name, **values):
        arrays = {key: np.asarray(array) for key, array in values.items()}
        sess = make_sess(**{key: (array.shape, tf.as_dtype(array.dtype)) for key, array in arrays.items()})
        DictRestore({key.replace("__", "/"): array for key, array in arrays.items()}).run(sess)
        with sess.graph.as_default():
            return sess.saver.save(sess, str(tmp_path / name), write_meta_graph=False, write_state=False)

    return save


# Shapes.


def test_all_shapes_that_do_not_fit_are_in_the_error_and_nothing_is_assigned(make_sess, save):
    prefix = save("other", a=np.ones(3, "f4"), b=np.ones((2, 2), "f4"), c=np.ones(1, "f4"))
    sess = make_sess(a=([2], tf.float32), b=([4], tf.float32), c=([1], tf.float32))
    with pytest.raises(CheckpointError) as caught:
        SaverRestore(prefix).run(sess)
    message = str(caught.value)
    assert "'a' has shape (2,), the value for it (3,)" in message
    assert "'b' has shape (4,), the value for it (2, 2)" in message
    assert "'c'" not in message and prefix in message
    assert value(sess, "c").tolist() == [0]


@pytest.mark.parametrize("is_mapping", [False, True])
def test_the_advice_of_the_error_works(is_mapping, make_sess, save):
    values = {"a": np.ones(3, "f4"), "c": np.ones(1, "f4")}
    sess = make_sess(a=([2], tf.float32), c=([1], tf.float32))
    with pytest.raises(CheckpointError) as caught:
        SmartInit(values if is_mapping else save("other", **values)).run(sess)
    advice = re.search(
        r"session_init=(tpk\.SmartInit\(.*\)) restores the variables that are the same", str(caught.value)
    )
    eval(advice[1], {"tpk": tpk, "values": values}).run(sess)
    assert (value(sess, "a").tolist(), value(sess, "c").tolist()) == ([0, 0], [1])


def test_the_relaxed_one_reshapes_what_it_can_and_leaves_out_the_rest_with_a_warning(make_sess, save, caplog):
    prefix = save("other", a=np.ones(3, "f4"), b=np.arange(4, dtype="f4").reshape(2, 2), c=np.ones((), "f4"))
    sess = make_sess(a=([2], tf.float32), b=([4], tf.float32), c=([1], tf.float32))
    caplog.set_level(logging.INFO, logger="tpk")
    SaverRestoreRelaxed(prefix).run(sess)
    assert value(sess, "a").tolist() == [0, 0]
    assert value(sess, "b").tolist() == [0, 1, 2, 3]
    assert value(sess, "c").tolist() == [1]
    assert caplog.records[-1].levelname == "WARNING"
    statuses = {name: (status, rest) for status, name, rest in table(caplog)}
    assert statuses["a"][0] == "mismatched" and "(2,)" in statuses["a"][1] and "(3,)" in statuses["a"][1]
    assert statuses["b"][0] == "loaded" and statuses["b"][1].endswith("reshaped")


def test_relaxed_where_nothing_fits_is_a_warning_too(make_sess, save, caplog):
    sess = make_sess(a=([2], tf.float32))
    SaverRestoreRelaxed(save("other", a=np.ones(3, "f4"))).run(sess)
    assert [row[:2] for row in table(caplog)] == [("mismatched", "a")]


# Dtypes.


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (np.array([0.1, np.inf, np.nan]), tf.float32),
        (np.array([0.1, -2], np.float32), tf.bfloat16),
        (np.array([1.5, 2], np.float16), tf.float64),
        (np.array([1, 2], np.int32), tf.int64),
        (np.array([1, 2], np.int32), tf.float64),
        (np.array([True, False]), tf.int32),
        (np.array([0.5], np.float32), tf.complex64),
    ],
)
def test_a_safe_cast_is_done_and_said(make_sess, caplog, stored, wanted):
    sess = make_sess(a=(stored.shape, wanted))
    caplog.set_level(logging.INFO, logger="tpk")
    DictRestore({"a": stored}).run(sess)
    np.testing.assert_array_equal(value(sess, "a"), stored.astype(wanted.as_numpy_dtype))
    assert table(caplog)[0][2].endswith(f"cast from {stored.dtype} to {wanted.name}")


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (np.array([1.0]), tf.int32),
        (np.array([1]), tf.int32),
        (np.array([1]), tf.float32),
        (np.array([-1], np.int8), tf.uint8),
        (np.array([1j]), tf.float64),
        (np.array(["a"]), tf.float32),
        (np.array([1], "M8[s]"), tf.int64),
    ],
)
def test_any_other_cast_is_an_error_that_names_both_dtypes(make_sess, stored, wanted):
    sess = make_sess(a=([1], wanted), b=([1], wanted))
    with pytest.raises(CheckpointError) as caught:
        DictRestore({"a": stored, "b": stored}).run(sess)
    name = "string" if stored.dtype.kind == "U" else stored.dtype.name
    assert f"'a' is {wanted.name}, the value for it {name}" in str(caught.value)
    assert f"'b' is {wanted.name}" in str(caught.value)


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [(np.array([1.0, 1e300]), tf.float32), (np.array([1, 2**53 + 1]), tf.float64), ([1, 300], tf.int8)],
)
def test_a_number_that_would_be_lost_is_an_error(make_sess, stored, wanted):
    with pytest.raises(CheckpointError, match=rf"'a' is {wanted.name} and cannot hold"):
        DictRestore({"a": stored}).run(make_sess(a=([2], wanted)))


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [([1, 300], tf.bfloat16), ([0.1, 0.2], tf.float16), ([1, 2], tf.uint8), (["x", "yz"], tf.string)],
)
def test_plain_python_values_take_on_the_dtype_in_silence(make_sess, caplog, stored, wanted):
    sess = make_sess(a=([2], wanted))
    caplog.set_level(logging.INFO, logger="tpk")
    DictRestore({"a": stored}).run(sess)
    expected = [b"x", b"yz"] if wanted == tf.string else np.array(stored, wanted.as_numpy_dtype)
    np.testing.assert_array_equal(value(sess, "a"), expected)
    assert "cast" not in caplog.text


# Names.


def test_a_prefix_stands_before_the_names_of_the_checkpoint(make_sess, save, caplog):
    prefix = save("backbone", w=np.ones(2, "f4"), global_step=np.int64(9))
    sess = make_sess(net__w=([2], tf.float32), w=([2], tf.float32), global_step=([], tf.int64))
    SaverRestore(prefix, "net", ignore=["global_step:0"]).run(sess)
    assert value(sess, "net/w").tolist() == [1, 1]
    assert value(sess, "w").tolist() == [0, 0] and value(sess, "global_step") == 0
    assert [row[:2] for row in table(caplog)] == [("missing", "w"), ("loaded", "net/w")]


@pytest.mark.parametrize("ignored", ["net/w", "w"])
def test_what_is_ignored_may_be_named_as_in_the_graph_or_as_stored(make_sess, ignored, caplog):
    sess = make_sess(net__w=([2], tf.float32), net__b=([], tf.float32))
    DictRestore({"w": np.ones(3), "b": 1.0}, prefix="net", ignore=[ignored]).run(sess)
    assert value(sess, "net/w").tolist() == [0, 0] and value(sess, "net/b") == 1
    assert not caplog.messages


def test_an_ignored_name_that_is_nowhere_is_said(make_sess, caplog):
    DictRestore({"w": 1.0}, ignore=["wieghts"]).run(make_sess(w=([], tf.float32)))
    assert "wieghts" in caplog.text


def test_one_string_to_ignore_is_an_error():
    with pytest.raises(CheckpointError, match="collection of names"):
        DictRestore({"w": 1.0}, ignore="w")


def test_where_a_prefix_is_missing_the_error_says_which(make_sess):
    with pytest.raises(CheckpointError, match="They match with prefix='net/inner'"):
        DictRestore({"w": 1.0, "x/b": 1.0}).run(make_sess(net__inner__w=([], tf.float32)))


@pytest.mark.parametrize(
    ("values", "message"), [({3: 1.0}, "has a key 3, a int"), ({"w": 1.0, "w:0": 2.0}, "both 'w' and 'w:0'")]
)
def test_a_dictionary_without_clear_names_is_an_error(values, message):
    with pytest.raises(CheckpointError, match=message):
        DictRestore(values)


# .npz files.


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_an_npz_file_is_restored(make_sess, tmp_path, write, monkeypatch):
    sess = make_sess(a__w=([2, 3], tf.float32), text=([2], tf.string), half=([2], tf.bfloat16))
    half = np.array([1.5, -2], tf.bfloat16.as_numpy_dtype)
    weights = np.arange(6, dtype="f4").reshape(3, 2).T
    write(tmp_path / "x.npz", **{"a/w": weights, "text": np.array([b"x", b"yz"]), "half": half, "unused": np.ones(9)})
    as_session_init(str(tmp_path / "x.npz")).run(sess)
    np.testing.assert_array_equal(value(sess, "a/w"), weights)
    assert value(sess, "text").tolist() == [b"x", b"yz"]
    np.testing.assert_array_equal(value(sess, "half"), half)


def test_of_an_npz_file_only_what_is_needed_is_read(make_sess, tmp_path):
    np.savez(tmp_path / "x.npz", needed=np.ones(2, "f4"), other=np.arange(1000.0))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    at = data.index(np.arange(1000.0).tobytes())
    data[at + 80] ^= 1
    (tmp_path / "x.npz").write_bytes(data)
    sess = make_sess(needed=([2], tf.float32))
    NpzRestore(tmp_path / "x.npz").run(sess)
    assert value(sess, "needed").tolist() == [1, 1]
    with pytest.raises(CheckpointError, match=r"x\.npz: the array 'other' cannot be read: Bad CRC-32"):
        NpzRestore(tmp_path / "x.npz").run(make_sess(other=([1000], tf.float64)))


@pytest.mark.parametrize("size", [0, 1, 100, 400])
def test_a_torn_npz_file_is_an_error_that_names_it(tmp_path, size):
    np.savez(tmp_path / "x.npz", a=np.ones(50))
    data = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(data[:size])
    with pytest.raises(CheckpointError, match=r"x\.npz: the file is damaged, or not an \.npz file"):
        as_session_init(tmp_path / "x.npz")


def test_an_npz_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="there is no file"):
        as_session_init(str(tmp_path / "x.npz"))


def test_pickles_are_not_read(make_sess, tmp_path):
    np.savez(tmp_path / "x.npz", a=np.array([{}, None], object))
    with pytest.raises(CheckpointError, match="'a' contains Python objects"):
        NpzRestore(tmp_path / "x.npz").run(make_sess(a=([2], tf.float32)))


# Several places.


def test_of_several_places_the_last_wins_and_one_table_tells_which(make_sess, save, tmp_path, caplog):
    prefix = save("first", a=np.float32(1), b=np.float32(1), c=np.float32(1))
    np.savez(tmp_path / "second.npz", b=np.float32(2), c=np.float32(2), extra=np.float32(2))
    sess = make_sess(a=([], tf.float32), b=([], tf.float32), c=([], tf.float32), d=([], tf.float32))
    caplog.set_level(logging.INFO, logger="tpk")
    ChainInit([prefix, None, ChainInit([tmp_path / "second.npz"]), {"c": 3.0}]).run(sess)
    assert [value(sess, name) for name in "abcd"] == [1, 2, 3, 0]
    assert len(caplog.messages) == 1
    assert "restored 3 variables" in caplog.messages[0]
    rows = {name: (status, rest) for status, name, rest in table(caplog)}
    assert {name: status for name, (status, _) in rows.items()} == {
        "a": "loaded",
        "b": "loaded",
        "c": "loaded",
        "d": "missing",
        "extra": "unused",
    }
    assert rows["a"][1].endswith("first") and rows["b"][1].endswith("second.npz")
    assert rows["c"][1].endswith("from the dictionary")


def test_of_several_places_all_problems_are_told_before_anything_is_assigned(make_sess):
    sess = make_sess(a=([2], tf.float32), b=([2], tf.float32))
    with pytest.raises(CheckpointError, match=r"(?s)2 problems.*'b' has shape.*no variable of the graph"):
        ChainInit([{"a": [1, 1]}, {"b": [1]}, {"c": [1]}]).run(sess)
    assert value(sess, "a").tolist() == [0, 0]


def test_a_chain_takes_what_only_runs(make_sess):
    sess = make_sess(a=([], tf.float32))
    seen = []

    class Watch(SessionInit):
        def run(self, sess):
            seen.append(value(sess, "a"))

    ChainInit([Watch(), {"a": 1.0}, Watch(), {"a": 2.0}, Watch()]).run(sess)
    assert seen == [0, 1, 2]


def test_smart_init_takes_everything(make_sess, save, tmp_path):
    prefix = save("model.ckpt-7", a=np.float32(1), b=np.float32(1))
    np.savez(tmp_path / "x.npz", b=np.float32(2))
    for obj, expected in [
        (None, [0, 0]),
        ("", [0, 0]),
        ([], [0, 0]),
        (prefix, [1, 1]),
        (tmp_path / "x.npz", [0, 2]),
        ({"a": 5.0}, [5, 0]),
        ([prefix, str(tmp_path / "x.npz"), None, [DictRestore({"a": 4.0})]], [4, 2]),
    ]:
        sess = make_sess(a=([], tf.float32), b=([], tf.float32))
        SmartInit(obj).run(sess)
        assert [value(sess, "a"), value(sess, "b")] == expected, obj
    with pytest.raises(CheckpointError, match="session_init is 3"):
        SmartInit([3])


@pytest.mark.parametrize("kind", ["checkpoint", "npz", "dict"])
def test_smart_init_ignores_mismatches_on_request_only(make_sess, save, tmp_path, kind):
    values = {"a": np.ones((1, 2), "f4"), "b": np.ones(3, "f4")}
    np.savez(tmp_path / "x.npz", **values)
    obj = {"checkpoint": save("x", **values), "npz": str(tmp_path / "x.npz"), "dict": values}[kind]
    sess = make_sess(a=([2], tf.float32), b=([2], tf.float32))
    with pytest.raises(CheckpointError, match="2 problems"):
        SmartInit(obj).run(sess)
    SmartInit([obj], ignore_mismatch=True).run(sess)
    assert value(sess, "a").tolist() == [1, 1] and value(sess, "b").tolist() == [0, 0]


@pytest.mark.parametrize("limit", ["_VALUES_PER_RUN", "_BYTES_PER_RUN"])
def test_many_values_take_several_runs(make_sess, monkeypatch, limit):
    monkeypatch.setattr(f"tpk.graph.variables.{limit}", 2)
    names = [f"v{index}" for index in range(5)]
    sess = make_sess(**{name: ([], tf.float32) for name in names})
    DictRestore({name: index for index, name in enumerate(names)}).run(sess)
    assert [value(sess, name) for name in names] == [0, 1, 2, 3, 4]


def test_a_variable_of_any_shape_takes_any_value():
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as sess:
        initial = v1.placeholder_with_default(tf.zeros([2, 2]), None)
        v1.get_variable("a", initializer=initial, validate_shape=False, use_resource=False)
        sess.run(v1.global_variables_initializer())
        DictRestore({"a": [1, 2, 3]}).run(sess)
        assert value(sess, "a").tolist() == [1, 2, 3]


def test_variables_that_share_their_initial_value_are_told_apart():
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as sess:
        initial = tf.constant([0.0, 0.0])
        for name in ("a", "b"):
            v1.get_variable(name, initializer=initial)
        sess.run(v1.global_variables_initializer())
        DictRestore({"a": [1, 2], "b": [3, 4]}).run(sess)
        assert value(sess, "a").tolist() == [1, 2] and value(sess, "b").tolist() == [3, 4]


def test_where_no_name_fits_it_is_a_warning_on_request(make_sess, save, tmp_path, caplog):
    prefix = save("other", a=np.float32([1, 2]))
    np.savez(tmp_path / "other.npz", a=np.float32([1, 2]))
    inits = [
        DictRestore({"a": [1, 2]}, must_match=False),
        NpzRestore(tmp_path / "other.npz", must_match=False),
        SaverRestore(prefix, must_match=False),
        SaverRestoreRelaxed(prefix, must_match=False),
        SmartInit(prefix, must_match=False),
        SmartInit([{"a": [1, 2]}, tmp_path / "other.npz"], ignore_mismatch=True, must_match=False),
    ]
    for init in inits:
        sess = make_sess(b=([2], tf.float32))
        caplog.clear()
        init.run(sess)
        (warning, *_) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert warning.startswith("no variable of the graph is in")
        assert value(sess, "b").tolist() == [0, 0]
        init.run(make_sess(a=([2], tf.float32)))


def test_one_of_several_that_need_not_fit_keeps_nothing_from_the_others(make_sess):
    sess = make_sess(b=([2], tf.float32))
    ChainInit([DictRestore({"a": [1, 2]}, must_match=False), {"b": [3, 4]}]).run(sess)
    assert value(sess, "b").tolist() == [3, 4]
    with pytest.raises(CheckpointError, match="must_match=False"):
        ChainInit([{"a": [1, 2]}, {"b": [3, 4]}]).run(sess)


def test_what_need_not_fit_still_has_to_have_the_right_shape(make_sess):
    with pytest.raises(CheckpointError, match="has shape"):
        DictRestore({"b": [1, 2, 3]}, must_match=False).run(make_sess(b=([2], tf.float32)))
