"""A whole dataflow through a model: here, and in worker processes."""

from __future__ import annotations

import os
import signal
import sys
import threading

import numpy as np
import psutil
import pytest
import tensorflow as tf

from tpk.dataflow import DataFromList, MapData
from tpk.errors import ConfigError, InputError
from tpk.predict import MultiProcessDatasetPredictor, PredictConfig, SimpleDatasetPredictor

TIMEOUT = 200
need_workers = pytest.mark.skipif(sys.platform == "win32", reason="worker processes need Unix sockets")


@pytest.fixture
def no_process_stays():
    """After the test, none of the processes that it started is there; what hangs is ended, and an error."""
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}

    def started():
        return [child for child in me.children(recursive=True) if child.pid not in before]

    def end():
        for child in started():
            child.kill()

    watchdog = threading.Timer(TIMEOUT, end)
    watchdog.start()
    try:
        yield started
        _, alive = psutil.wait_procs(started(), timeout=60)
        assert not alive
    finally:
        watchdog.cancel()
        end()


def test_each_datapoint_goes_through_the_model_in_order(config_of, by_numpy, batches):
    flow = MapData(DataFromList([[x] for x in batches]), lambda datapoint: {"x": datapoint[0]})
    with SimpleDatasetPredictor(config_of(), flow) as predictor:
        lazily = predictor.get_result()
        np.testing.assert_allclose(next(lazily)[0], by_numpy(batches[0]), rtol=1e-5, atol=1e-5)
        results = predictor.get_all_result()
    assert len(results) == len(batches)
    for x, (prediction,) in zip(batches, results, strict=True):
        np.testing.assert_allclose(prediction, by_numpy(x), rtol=1e-5, atol=1e-5)


def test_a_datapoint_that_does_not_fit_is_told_by_its_number(config_of, batches):
    with SimpleDatasetPredictor(config_of(), [[batches[0]], [batches[0], batches[0]]]) as predictor:
        with pytest.raises(InputError, match="takes 1 inputs") as caught:
            predictor.get_all_result()
        assert caught.value.__notes__ == ["This was at datapoint 1 of the dataflow."]


def test_an_invalid_config_or_dataflow_is_an_error(config_of, model):
    with pytest.raises(ConfigError, match="takes a PredictConfig"):
        SimpleDatasetPredictor(model, [])
    with pytest.raises(ConfigError, match="takes an iterable"):
        MultiProcessDatasetPredictor(config_of(), 3, 2)
    with pytest.raises(ConfigError, match="num_proc must be positive"):
        MultiProcessDatasetPredictor(config_of(), [], 0)


def config_for_workers():
    """A model whose function goes to the workers by value, because this module is not there."""

    def build(x):
        weights = tf.compat.v1.get_variable("w", [3])
        tf.identity(x * weights, name="scaled")

    build.__module__ = "__main__"
    signature = [tf.TensorSpec([None, 3], tf.float32, "x")]
    weights = {"w": np.array([1, 2, 3], np.float32)}
    return PredictConfig(
        tower_func=build, input_signature=signature, session_init=weights, output_names={"scaled": "scaled"}
    )


@need_workers
@pytest.mark.timeout(TIMEOUT + 60)
def test_processes_give_the_same_in_the_same_order_and_a_dead_one_is_named(no_process_stays):
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal([size % 3 + 1, 3], dtype=np.float32) for size in range(12)]
    with MultiProcessDatasetPredictor(config_for_workers(), [[x] for x in batches], 2) as predictor:
        results = predictor.get_all_result()
        workers = {child.pid for child in no_process_stays()}
        assert (len(results), len(workers)) == (12, 2)
        for x, found in zip(batches, results, strict=True):
            np.testing.assert_allclose(found["scaled"], x * [1, 2, 3], rtol=1e-6, atol=1e-6)
        again = predictor.get_result()
        np.testing.assert_allclose(next(again)["scaled"], batches[0] * [1, 2, 3], rtol=1e-6, atol=1e-6)
        assert {child.pid for child in no_process_stays()} == workers, "the workers of the first pass are used again"
        os.kill(min(workers), signal.SIGKILL)
        with pytest.raises(InputError, match=r"worker \d of 2 of MultiProcessDatasetPredictor.*killed by signal 9"):
            list(again)


@need_workers
@pytest.mark.timeout(TIMEOUT + 60)
def test_an_error_in_a_worker_is_raised_with_its_cause(no_process_stays):
    flow = [[np.ones([1, 3], np.float32)], [np.ones([1, 4], np.float32)]]
    with MultiProcessDatasetPredictor(config_for_workers(), flow, 1, ordered=False, devices=["/cpu:0"]) as predictor:
        results = predictor.get_result()
        np.testing.assert_array_equal(next(results)["scaled"], [[1, 2, 3]])
        with pytest.raises(InputError, match="the input 'x' of the predictor does not fit") as caught:
            next(results)
        assert "in worker 1 of 1 of MultiProcessDatasetPredictor" in str(caught.value.__cause__)


@need_workers
@pytest.mark.timeout(TIMEOUT + 60)
def test_a_process_begins_with_the_function_of_worker_init(tmp_path, monkeypatch, no_process_stays):
    (tmp_path / "in_tf1.py").write_text(
        "import tensorflow as tf\n\ndef begin():\n    tf.compat.v1.disable_v2_tensorshape()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def build(x):
        tf.identity(x * int(isinstance(x.shape[0], tf.compat.v1.Dimension)), name="is_tf1")

    build.__module__ = "__main__"
    config = PredictConfig(
        tower_func=build, input_signature=[tf.TensorSpec([None], tf.float32, "x")], output_names=["is_tf1"]
    )
    with MultiProcessDatasetPredictor(config, [[np.ones(1, np.float32)]], 1, worker_init="in_tf1:begin") as predictor:
        assert predictor.get_all_result()[0][0].tolist() == [1.0]
    with pytest.raises(ConfigError, match="expected the name of a function"):
        MultiProcessDatasetPredictor(config, [], 1, worker_init=build)


def test_a_model_that_cannot_be_pickled_is_an_error():
    lock = threading.Lock()

    def build(x):
        with lock:
            tf.identity(x, name="same")

    config = PredictConfig(
        tower_func=build, input_signature=[tf.TensorSpec([None], tf.float32, "x")], output_names=["same"]
    )
    with pytest.raises(ConfigError, match="cannot be sent to another process"):
        MultiProcessDatasetPredictor(config, [[[1.0]]], 1).get_all_result()
