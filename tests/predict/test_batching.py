"""Requests of many threads, computed in batches."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import ConfigError, InputError, SessionError
from tpk.predict import MultiThreadAsyncPredictor, OfflinePredictor, OnlinePredictor, PredictConfig

TIMEOUT = 60


class Recording(OnlinePredictor):
    """Keeps how large the batches were, and computes none before it may."""

    def __init__(self, predictor):
        super().__init__(predictor.inputs, predictor.outputs, lambda: predictor.sess)
        self.sizes = []
        self.may_go = threading.Event()
        self.is_busy = threading.Event()

    def __call__(self, *inputs):
        self.sizes.append(len(inputs[0]))
        self.is_busy.set()
        assert self.may_go.wait(TIMEOUT)
        return super().__call__(*inputs)


@pytest.fixture
def offline(config_of):
    with OfflinePredictor(config_of()) as predict:
        yield predict


@pytest.fixture
def held(offline):
    """A predictor that is at its first batch, of one request, until `may_go` is set."""
    return Recording(offline)


def rows(count):
    return np.random.default_rng(0).standard_normal([count, 3], dtype=np.float32)


def test_many_threads_get_their_own_results(offline, by_numpy):
    x = rows(400)
    with MultiThreadAsyncPredictor(offline, max_batch=8) as batched, ThreadPoolExecutor(16) as threads:
        found = list(threads.map(batched, x))
    np.testing.assert_allclose([row[0] for row in found], by_numpy(x), rtol=1e-5, atol=1e-5)


def test_waiting_requests_are_computed_together_up_to_the_maximum(held, by_numpy):
    x = rows(12)
    with MultiThreadAsyncPredictor(held, max_batch=5) as batched:
        futures = [batched.put_task([x[0]])]
        assert held.is_busy.wait(TIMEOUT)
        futures += [batched.put_task({"x": row}) for row in x[1:]]
        held.may_go.set()
        found = [future.result(TIMEOUT)[0] for future in futures]
    assert held.sizes == [1, 5, 5, 1]
    np.testing.assert_allclose(found, by_numpy(x), rtol=1e-5, atol=1e-5)


def test_the_first_of_a_batch_waits_for_others_as_long_as_it_may(held):
    held.may_go.set()
    with MultiThreadAsyncPredictor(held, max_batch=3, max_wait=TIMEOUT) as batched:
        futures = [batched.put_task([row]) for row in rows(6)]
        for future in futures:
            future.result(TIMEOUT / 2)
    assert held.sizes == [3, 3]
    with MultiThreadAsyncPredictor(held, max_batch=1000, max_wait=0.01) as batched:
        batched.put_task([rows(1)[0]]).result(TIMEOUT)


def test_several_predictors_share_the_work(offline, by_numpy):
    both = [Recording(offline), Recording(offline)]
    with MultiThreadAsyncPredictor(both, max_batch=1) as batched:
        x = rows(2)
        futures = [batched.put_task([row]) for row in x]
        assert all(each.is_busy.wait(TIMEOUT) for each in both), "one is not held up by the other"
        for each in both:
            each.may_go.set()
        found = [future.result(TIMEOUT)[0] for future in futures]
    np.testing.assert_allclose(found, by_numpy(x), rtol=1e-5, atol=1e-5)


def test_a_request_that_does_not_fit_is_refused_when_it_is_made(offline, by_numpy):
    x = rows(3)
    with MultiThreadAsyncPredictor(offline) as batched:
        good = batched.put_task([x[0]])
        with pytest.raises(
            InputError, match=r"'x'.*expected float32 of shape \(3,\), got .*without the batch dimension"
        ):
            batched.put_task([x])
        with pytest.raises(InputError, match="takes 1 inputs"):
            batched.put_task([x[0], x[1]])
        with pytest.raises(InputError, match="expected a list or tuple"):
            batched.put_task(x[0])
        np.testing.assert_allclose(good.result(TIMEOUT)[0], by_numpy(x[0]), rtol=1e-5)


def picky(x):
    """A model that fails if there is a negative number anywhere in the batch."""
    with tf.control_dependencies([tf.compat.v1.assert_non_negative(x, message="a negative one")]):
        return tf.sqrt(x, name="root")


def test_a_request_that_fails_does_not_take_the_others_with_it():
    config = PredictConfig(
        tower_func=picky, input_signature=[tf.TensorSpec([None], tf.float32, "x")], output_names=["root"]
    )
    with OfflinePredictor(config) as predict:
        held = Recording(predict)
        with MultiThreadAsyncPredictor(held) as batched:
            values = [1.0, 4.0, -1.0, 9.0]
            futures = [batched.put_task([1.0])]
            assert held.is_busy.wait(TIMEOUT)
            futures += [batched.put_task([value]) for value in values]
            held.may_go.set()
            assert [float(futures[index].result(TIMEOUT)[0]) for index in (0, 1, 2, 4)] == [1, 1, 2, 3]
            with pytest.raises(tf.errors.InvalidArgumentError, match="a negative one"):
                futures[3].result(TIMEOUT)
        assert held.sizes == [1, 4, 1, 1, 1, 1]


def test_requests_of_different_shapes_are_computed_apart():
    config = PredictConfig(
        tower_func=lambda x: tf.reduce_sum(x, 1, name="sum"),
        input_signature=[tf.TensorSpec([None, None], tf.float32, "x")],
        output_names={"s": "sum"},
    )
    with OfflinePredictor(config) as predict, MultiThreadAsyncPredictor(predict, max_wait=0.01) as batched:
        futures = [batched.put_task([np.ones(length)]) for length in (1, 2, 3, 2, 1)]
        assert [float(future.result(TIMEOUT)["s"]) for future in futures] == [1, 2, 3, 2, 1]


def test_closing_finishes_the_current_batch_and_fails_waiting_requests(held, by_numpy):
    x = rows(3)
    batched = MultiThreadAsyncPredictor(held)
    under_way = batched.put_task([x[0]])
    assert held.is_busy.wait(TIMEOUT)
    waiting = [batched.put_task([row]) for row in x[1:]]
    closing = threading.Thread(target=batched.close)
    closing.start()
    for future in waiting:
        with pytest.raises(SessionError, match="closed before it computed this request"):
            future.result(TIMEOUT)
    held.may_go.set()
    closing.join(TIMEOUT)
    np.testing.assert_allclose(under_way.result(TIMEOUT)[0], by_numpy(x[0]), rtol=1e-5)
    with pytest.raises(SessionError, match="has been closed"):
        batched.put_task([x[0]])
    batched.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("predictor-")]


def test_a_request_that_waits_for_others_is_failed_by_closing(offline):
    batched = MultiThreadAsyncPredictor(offline, max_wait=TIMEOUT)
    future = batched.put_task([rows(1)[0]])
    batched.close()
    with pytest.raises(SessionError, match="before it computed this request"):
        future.result(TIMEOUT)


def test_a_cancelled_request_is_not_computed(held):
    with MultiThreadAsyncPredictor(held) as batched:
        first = batched.put_task([rows(1)[0]])
        assert held.is_busy.wait(TIMEOUT)
        second, third = batched.put_task([rows(1)[0]]), batched.put_task([rows(1)[0]])
        assert second.cancel()
        held.may_go.set()
        first.result(TIMEOUT), third.result(TIMEOUT)
    assert held.sizes == [1, 1]


def test_the_predictors_error_reaches_whoever_asked(config_of):
    predict = OfflinePredictor(config_of())
    predict.close()
    with MultiThreadAsyncPredictor(predict) as batched, pytest.raises(SessionError, match="has been closed"):
        batched(rows(1)[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch": 0}, "max_batch must be an integer, 1 or more, not 0"),
        ({"max_batch": True}, "max_batch .* not True"),
        ({"max_wait": -1}, "max_wait .* not -1"),
        ({"max_wait": float("nan")}, "max_wait .* not nan"),
        ({"predictors": []}, "one or more OnlinePredictors"),
        ({"predictors": ["a"]}, "one or more OnlinePredictors"),
    ],
)
def test_what_cannot_be_is_refused(offline, options, message):
    with pytest.raises(ConfigError, match=message):
        MultiThreadAsyncPredictor(**{"predictors": offline, **options})


@pytest.mark.parametrize(
    ("shape", "output", "message"),
    [
        ([], "same", r"the input 'x' has shape \(\)"),
        ([4], "same", r"the input 'x' has shape \(4,\)"),
        ([None], "mean", r"the output 'mean' has shape \(\)"),
    ],
)
def test_a_model_without_a_batch_dimension_is_refused(shape, output, message):
    def model(x):
        tf.reduce_mean(x, name="mean")
        return tf.identity(x, name="same")

    signature = [tf.TensorSpec(shape, tf.float32, "x")]
    config = PredictConfig(tower_func=model, input_signature=signature, output_names=[output])
    with OfflinePredictor(config) as predict, pytest.raises(ConfigError, match=message):
        MultiThreadAsyncPredictor(predict)


def test_predictors_of_different_models_are_refused(offline, config_of):
    with OfflinePredictor(config_of(output_names=["total"])) as other, pytest.raises(ConfigError, match="differ"):
        MultiThreadAsyncPredictor([offline, other])


def test_an_output_that_turns_out_to_have_other_rows_is_an_error():
    config = PredictConfig(
        tower_func=lambda x: tf.boolean_mask(x, x > 0, name="positive"),
        input_signature=[tf.TensorSpec([None], tf.float32, "x")],
        output_names=["positive/GatherV2"],
    )
    with OfflinePredictor(config) as predict, MultiThreadAsyncPredictor(predict) as batched:
        assert batched(1.0)[0] == 1
        with pytest.raises(InputError, match="does not have one row for each datapoint"):
            batched(-1.0)
