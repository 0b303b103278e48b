from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf

from tpk.checkpoint import DictRestore, SaverRestore
from tpk.checkpoint.session_init import as_session_init
from tpk.errors import CheckpointError

v1 = tf.compat.v1


@pytest.fixture
def sess():
    with tf.Graph().as_default() as graph:
        v1.get_variable("w", [2], initializer=v1.zeros_initializer())
        v1.get_variable("scope/step", initializer=np.int64(0), trainable=False)
        initializer = v1.global_variables_initializer()
        saver = v1.train.Saver()
        graph.finalize()
        with v1.Session(graph=graph) as sess:
            sess.run(initializer)
            sess.saver = saver
            yield sess


def values(sess):
    return {name: sess.run(f"{name}/Read/ReadVariableOp:0").tolist() for name in ("w", "scope/step")}


def test_a_dictionary_gives_values_in_a_finalized_graph(sess):
    DictRestore({"w:0": [1, 2], "scope/step": 7}).run(sess)
    assert values(sess) == {"w": [1.0, 2.0], "scope/step": 7}


def test_what_does_not_match_is_reported_by_name(sess, caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    DictRestore({"w": [1, 2], "other": 3}).run(sess)
    assert values(sess)["scope/step"] == 0
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    lines = [line.split() for line in record.getMessage().splitlines()]
    assert " ".join(lines[0]) == "restored 1 variables from the dictionary, 1 missing, 1 unused"
    assert [line[:2] for line in lines[2:]] == [["missing", "scope/step"], ["unused", "other"], ["loaded", "w"]]


def test_if_all_matches_it_is_no_warning(sess, caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    DictRestore({"w": [1, 2], "scope/step": 3}).run(sess)
    (record,) = caplog.records
    assert record.levelname == "INFO"


def test_a_wrong_shape_is_an_error_that_names_both(sess):
    with pytest.raises(CheckpointError, match=r"'w' has shape \(2,\), the value for it \(3,\)"):
        DictRestore({"w": [1, 2, 3]}).run(sess)


def test_nothing_that_fits_is_an_error(sess):
    with pytest.raises(CheckpointError, match="no variable of the graph is in the dictionary"):
        DictRestore({"x": 1}).run(sess)


@pytest.fixture
def checkpoint(sess, tmp_path):
    DictRestore({"w": [1, 2], "scope/step": 7}).run(sess)
    path = sess.saver.save(sess, str(tmp_path / "model"), global_step=5, write_meta_graph=False)
    DictRestore({"w": [0, 0], "scope/step": 0}).run(sess)
    return path


@pytest.mark.parametrize(
    "name", ["model-5", "model-5.index", "model-5.data-00000-of-00001", "."], ids=["prefix", "index", "data", "dir"]
)
def test_a_checkpoint_of_a_saver_is_restored(sess, checkpoint, tmp_path, name):
    SaverRestore(tmp_path / name).run(sess)
    assert values(sess) == {"w": [1.0, 2.0], "scope/step": 7}


def test_ignored_names_keep_their_initial_values(sess, checkpoint, caplog):
    SaverRestore(checkpoint, ignore=["w:0"]).run(sess)
    assert values(sess) == {"w": [0.0, 0.0], "scope/step": 7}
    assert not caplog.messages


@pytest.mark.parametrize(("path", "message"), [("nowhere", "no file"), (".", "no checkpoint in the directory")])
def test_a_missing_checkpoint_is_an_error_that_names_it(tmp_path, path, message):
    with pytest.raises(CheckpointError, match=message):
        SaverRestore(tmp_path / path)


def test_what_session_init_may_be(checkpoint):
    assert as_session_init(None) is None
    assert isinstance(as_session_init({"w": 1}), DictRestore)
    restore = as_session_init(checkpoint)
    assert isinstance(restore, SaverRestore)
    assert as_session_init(restore) is restore
    with pytest.raises(CheckpointError, match="expected a SessionInit"):
        as_session_init(3)
