"""One model on several devices, and a model fed by an input source."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError, InputError, SessionError
from tpk.predict import FeedfreePredictor, MultiThreadAsyncPredictor, MultiTowerOfflinePredictor


def test_all_devices_compute_the_same_as_one(config_of, by_numpy, batches):
    with MultiTowerOfflinePredictor(config_of(), devices=["/cpu:0", "/cpu:1"]) as predict:
        assert [each.outputs[0].device for each in predict.get_predictors()] == ["/device:CPU:0", "/device:CPU:1"]
        for index, x in enumerate(batches):
            np.testing.assert_allclose(predict.get_predictor(index)(x)[0], by_numpy(x), rtol=1e-5, atol=1e-5)
        assert predict.get_predictor(3) is predict.get_predictors()[1]


def test_calls_go_to_the_devices_in_turn(config_of, batches):
    with MultiTowerOfflinePredictor(config_of(output_names=["where"], model=Where()), devices=3) as predict:
        assert [int(predict(batches[0])[0]) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


class Where(tpk.ModelDesc):
    """Tells which tower it is."""

    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x")]

    def build_graph(self, x):
        index = tpk.get_current_tower_context().index
        tf.add(tf.cast(index, tf.float32), 0 * tf.reduce_sum(x), name="where")
        weights = tf.compat.v1.get_variable("fc/W", [3, 2])
        return tf.reduce_sum(x @ weights + tf.compat.v1.get_variable("fc/b", [2]))

    def optimizer(self):
        raise AssertionError("nothing is trained")


def test_a_list_of_datapoints_comes_back_in_order(config_of, by_numpy):
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal([size % 4 + 1, 3], dtype=np.float32) for size in range(50)]
    datapoints = [{"x": x} if number % 2 else [x] for number, x in enumerate(inputs)]
    with MultiTowerOfflinePredictor(config_of(output_names={"p": "prediction"}), devices=2) as predict:
        results = predict.predict_all(iter(datapoints))
        assert predict.predict_all([]) == []
    assert len(results) == 50
    for x, found in zip(inputs, results, strict=True):
        np.testing.assert_allclose(found["p"], by_numpy(x), rtol=1e-5, atol=1e-5)


def test_a_datapoint_that_does_not_fit_is_told_by_its_number(config_of, batches):
    with MultiTowerOfflinePredictor(config_of(), devices=2) as predict:
        with pytest.raises(InputError, match="'x'") as caught:
            predict.predict_all([[batches[0]], [batches[1]], [batches[2][0]], [batches[3]]])
        assert caught.value.__notes__ == ["This was at datapoint 2."]
        with pytest.raises(InputError, match="expected a list or tuple"):
            predict.predict_all([batches[0]])

        def broken():
            yield [batches[0]]
            raise OSError("no such image")

        with pytest.raises(OSError, match="no such image"):
            predict.predict_all(broken())


def test_requests_of_many_are_batched_over_all_devices(config_of, by_numpy, batches):
    with (
        MultiTowerOfflinePredictor(config_of(), devices=2) as towers,
        MultiThreadAsyncPredictor(towers.get_predictors(), max_batch=2) as batched,
    ):
        futures = [batched.put_task([row]) for row in batches[0]]
        found = [future.result(60)[0] for future in futures]
    np.testing.assert_allclose(found, by_numpy(batches[0]), rtol=1e-5, atol=1e-5)


def test_devices_that_do_not_exist_are_refused(config_of):
    with pytest.raises(ConfigError, match="no device '/gpu:7'"):
        MultiTowerOfflinePredictor(config_of(), devices=["/gpu:7"])


def source_of(batches, kind, **options):
    flow = [[x, np.zeros([len(x), 2], np.float32)] for x in batches]
    return kind(flow, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda batches: source_of(batches, tpk.FeedInput, infinite=False),
        lambda batches: source_of(batches, tpk.QueueInput, infinite=False),
        lambda batches: tpk.StagingInput(source_of(batches, tpk.QueueInput, infinite=False)),
        lambda batches: tpk.TFDatasetInput(
            lambda: tf.data.Dataset.from_tensor_slices((np.stack([batches[0]] * 3), np.zeros([3, 4, 2], np.float32)))
        ),
    ],
    ids=["FeedInput", "QueueInput", "StagingInput", "TFDatasetInput"],
)
def test_an_input_source_is_run_through_the_model(config_of, by_numpy, batches, make):
    source = make(batches)
    wanted = [batches[0]] * 3 if isinstance(source, tpk.TFDatasetInput) else batches
    with FeedfreePredictor(config_of(), source) as predictor:
        found = [prediction for (prediction,) in itertools.islice(predictor, 3)]
        (prediction,) = predictor() if len(wanted) > 3 else [found.pop()]
        found.append(prediction)
    for x, prediction in zip(wanted[: len(found)], found, strict=True):
        np.testing.assert_allclose(prediction, by_numpy(x), rtol=1e-5, atol=1e-5)


def test_the_end_of_the_data_is_clear_and_it_can_begin_anew(config_of, batches):
    with FeedfreePredictor(
        config_of(output_names={"p": "total"}), source_of(batches, tpk.QueueInput, infinite=False)
    ) as p:
        first = [results["p"] for results in p]
        assert [len(each) for each in first] == [len(x) for x in batches]
        with pytest.raises(tf.errors.OutOfRangeError, match=r"QueueInput\) is exhausted after 5 datapoints"):
            p()
        p.reset_state()
        for again, before in zip(p, first, strict=True):
            np.testing.assert_array_equal(again["p"], before)


def test_an_error_of_the_data_is_raised_unchanged(config_of, batches):
    def broken():
        yield [batches[0], np.zeros([4, 2], np.float32)]
        raise OSError("no such image")

    source = tpk.QueueInput(tpk.dataflow.DataFromGenerator(broken), infinite=False)
    with FeedfreePredictor(config_of(), source) as predictor, pytest.raises(OSError, match="no such image"):
        list(predictor)


def test_it_leaves_no_thread_and_no_session(config_of, batches):
    before = set(threading.enumerate())
    predictor = FeedfreePredictor(config_of(), source_of(batches, tpk.QueueInput))
    predictor()
    assert set(threading.enumerate()) - before
    predictor.close()
    predictor.close()
    assert not {thread for thread in set(threading.enumerate()) - before if "hang" not in thread.name.lower()}
    with pytest.raises((SessionError, RuntimeError), match="closed"):
        predictor()


def test_an_invalid_input_source_is_an_error(config_of, batches):
    with pytest.raises(ConfigError, match=r"takes a tpk\.InputSource"):
        FeedfreePredictor(config_of(), batches)
