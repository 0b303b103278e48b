"""What holds for every source that takes its data from somewhere: each datapoint once, in order."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk.dataflow import DataFromGenerator, DataFromIterable
from tpk.errors import InputError
from tpk.input_source import FeedInput, QueueInput, StagingInput, TFDatasetInput, remap_input_source


def as_dataset(flow, **options):
    return TFDatasetInput(
        lambda: tf.data.Dataset.from_tensor_slices((np.array([number for (number,) in flow], np.int32),)), **options
    )


FLOW_SOURCES = {
    "feed": FeedInput,
    "queue": QueueInput,
    "small queue": lambda flow, **options: QueueInput(flow, queue_size=1, **options),
    "dataset of a flow": TFDatasetInput,
    "remapped": lambda flow, **options: remap_input_source(FeedInput(flow, **options), ["number"]),
    "staged queue": lambda flow, **options: StagingInput(QueueInput(flow, **options), nr_stage=3),
    "staged small queue": lambda flow, **options: StagingInput(QueueInput(flow, queue_size=1, **options)),
}
SOURCES = {
    **FLOW_SOURCES,
    "dataset": as_dataset,
    "staged dataset": lambda flow, **options: StagingInput(as_dataset(flow, **options), nr_stage=2),
}


@pytest.fixture(params=SOURCES)
def make_source(request):
    return SOURCES[request.param]


@pytest.fixture(params=FLOW_SOURCES)
def make_flow_source(request):
    return FLOW_SOURCES[request.param]


def numbers(count):
    return [[number] for number in range(count)]


@pytest.mark.parametrize("towers", [1, 2, 3])
def test_epoch_after_epoch_in_order(make_source, drive, specs, towers):
    with drive(make_source(numbers(5)), specs("number"), towers) as training:
        assert training.first_components(10) == [step % 5 for step in range(10 * towers)]


def test_reset_state_starts_from_the_beginning(make_source, drive, specs):
    with drive(make_source(numbers(5)), specs("number")) as training:
        for steps in (3, 5, 7, 0, 1):
            assert training.first_components(steps) == [step % 5 for step in range(steps)]
            training.source.reset_state()
        assert training.first_components(5) == list(range(5))


def test_a_finite_source_ends_after_its_last_datapoint(make_source, drive, specs):
    with drive(make_source(numbers(5), infinite=False), specs("number")) as training:
        assert training.first_components(5) == list(range(5))
        for _ in range(2):
            with pytest.raises(tf.errors.OutOfRangeError):
                training.step()


def test_a_finite_source_starts_again_after_its_end(make_source, drive, specs):
    with drive(make_source(numbers(3), infinite=False), specs("number")) as training:
        for _ in range(3):
            assert training.first_components(3) == list(range(3))
            with pytest.raises(tf.errors.OutOfRangeError):
                training.step()
            training.source.reset_state()


def test_towers_that_do_not_all_get_a_datapoint_end_a_finite_source(make_source, drive, specs):
    with drive(make_source(numbers(5), infinite=False), specs("number"), towers=2) as training:
        assert training.first_components(2) == [0, 1, 2, 3]
        with pytest.raises(tf.errors.OutOfRangeError):
            training.step()


def test_the_size_is_the_length_of_a_pass(make_source, drive, specs):
    source = make_source(numbers(5))
    with drive(source, specs("number")):
        assert source.size == 5


def test_the_size_of_a_flow_without_length_is_unknown(make_flow_source, drive, specs):
    source = make_flow_source(DataFromGenerator(lambda: iter(numbers(5))))
    with drive(source, specs("number")):
        assert source.size is None


def test_an_empty_source_is_an_error_and_not_an_endless_loop(make_source, drive, specs):
    with (
        drive(make_source([]), specs("number")) as training,
        pytest.raises(InputError, match=r"delivered no element|has no datapoint"),
    ):
        training.step()


def test_a_flow_is_made_ready_once_and_iterated_once_for_each_pass(make_flow_source, drive, specs):
    calls = []

    class Flow:
        def reset_state(self):
            calls.append("reset_state")

        def __iter__(self):
            calls.append("iter")
            yield from numbers(2)

    with drive(make_flow_source(Flow(), infinite=False), specs("number")) as training:
        training.first_components(2)
        training.source.reset_state()
        training.first_components(2)
    assert calls == ["reset_state", "iter", "iter"]


def test_iterators_of_the_flow_are_closed_at_the_end(make_flow_source, drive, specs):
    closed = []

    def datapoints():
        try:
            while True:
                yield [0]
        finally:
            closed.append(True)

    with drive(make_flow_source(DataFromGenerator(datapoints)), specs("number")) as training:
        training.step()
    assert closed == [True]


def test_an_iterator_that_the_user_made_is_the_users_to_close(drive, specs):
    mine = ([number] for number in range(3))
    with drive(FeedInput(mine), specs("number")) as training:
        training.step()
    assert next(mine) == [1]


def test_a_one_shot_iterator_serves_one_pass(make_flow_source, drive, specs):
    with drive(make_flow_source(iter(numbers(3))), specs("number")) as training:
        assert training.first_components(3) == [0, 1, 2]
        with pytest.raises(InputError, match="one-shot iterator"):
            training.step()


def test_a_one_shot_iterator_cannot_start_again(make_flow_source, drive, specs):
    with drive(make_flow_source(iter(numbers(9))), specs("number")) as training:
        training.step()
        with pytest.raises(InputError, match="start from the beginning again"):
            training.source.reset_state()
            training.step()


def test_a_flow_that_is_empty_the_second_time_is_an_error(make_flow_source, drive, specs):
    passes = iter([numbers(2), []])
    with drive(make_flow_source(DataFromGenerator(lambda: next(passes))), specs("number")) as training:
        assert training.first_components(2) == [0, 1]
        with pytest.raises(InputError, match="delivered 2 datapoints, and nothing when it was iterated again"):
            training.step()


def failing_flow(good):
    yield from numbers(good)
    raise ZeroDivisionError("in the user's data code")


def test_an_error_of_the_data_code_arrives_itself_after_the_good_datapoints(make_flow_source, drive, specs):
    with drive(make_flow_source(DataFromIterable(failing_flow(3))), specs("number")) as training:
        assert training.first_components(3) == [0, 1, 2]
        with pytest.raises(ZeroDivisionError, match="in the user's data code") as caught:
            training.step()
    assert [entry.name for entry in caught.traceback if "test_delivery" in str(entry.path)][-1] == "failing_flow"
    assert "datapoint 3 from DataFromIterable" in caught.value.__notes__[0]


def test_an_error_when_the_next_pass_begins_arrives_itself(make_flow_source, drive, specs):
    passes = iter([numbers(2), failing_flow(0)])
    with drive(make_flow_source(DataFromGenerator(lambda: next(passes))), specs("number")) as training:
        assert training.first_components(2) == [0, 1]
        with pytest.raises(ZeroDivisionError) as caught:
            training.step()
    assert "datapoint 2 from DataFromGenerator" in caught.value.__notes__[0]


def test_a_wrong_datapoint_is_an_error_that_names_it(make_flow_source, drive, specs):
    with drive(make_flow_source([[0], [1], [np.zeros(3)]]), specs("number")) as training:
        assert training.first_components(2) == [0, 1]
        with pytest.raises(InputError, match=r"datapoint 2, component 0 \('number'\)"):
            training.step()


def test_the_datapoints_may_be_dicts(make_flow_source, drive, specs):
    flow = [{"second": 10 * number, "first": number} for number in range(3)]
    source = make_flow_source(flow)
    if hasattr(source, "names"):
        source.names = ["first", "second"]
    with drive(source, specs("first", "second")) as training:
        assert [training.step() for _ in range(3)] == [[[number, 10 * number]] for number in range(3)]


def test_text_enters_the_graph(make_flow_source, drive):
    signature = [tf.TensorSpec([None], tf.string, "number")]
    with drive(make_flow_source([[["é", "b"]], [np.array([b"c\0"], object)]]), signature) as training:
        assert training.step()[0][0].tolist() == ["é".encode(), b"b"]
        assert training.step()[0][0].tolist() == [b"c\0"]


def test_a_step_can_be_taken_only_between_before_train_and_after_train(drive, specs):
    with drive(FeedInput(numbers(3)), specs("number")) as training:
        training.step()
    with pytest.raises(InputError, match="before_train"):
        training.step()


def test_callbacks_of_sources_run_in_every_process(make_source, drive, specs):
    assert all(not callback.chief_only for callback in drive(make_source(numbers(3)), specs("number")).callbacks)


def test_a_source_is_set_up_once(make_source, drive, specs):
    source = make_source(numbers(3))
    drive(source, specs("number"))
    with pytest.raises(InputError, match="was set up before"):
        drive(source, specs("number"))


def test_tensors_come_after_setup(make_source):
    with pytest.raises(InputError, match=r"before setup\(\)"):
        make_source(numbers(3)).get_input_tensors()
