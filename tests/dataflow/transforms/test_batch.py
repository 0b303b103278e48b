from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tpk.dataflow import BatchData, BatchDataByShape, DataFromGenerator, DataFromList, MapData, Position
from tpk.errors import ConfigError, InputError


def pairs(count: int) -> list[list[object]]:
    return [[np.full((2, 3), number, np.float32), number] for number in range(count)]


@given(st.integers(0, 20), st.integers(1, 7), st.booleans(), st.booleans())
def test_unbatching_gives_the_datapoints_back(count, batch_size, remainder, use_list):
    flow = BatchData(pairs(count), batch_size, remainder=remainder, use_list=use_list)
    batches = list(flow)
    assert len(batches) == len(flow)
    kept = count if remainder else count - count % batch_size
    unbatched = [
        (image[0, 0], label) for images, labels in batches for image, label in zip(images, labels, strict=True)
    ]
    assert unbatched == [(number, number) for number in range(kept)]


def test_arrays_keep_their_dtype_and_get_a_first_dimension():
    images, labels = next(iter(BatchData(pairs(4), 4)))
    assert (images.shape, images.dtype) == ((4, 2, 3), np.float32)
    assert labels.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("batches", [BatchData, lambda data, size: BatchDataByShape(data, size, 0)])
def test_large_arrays_of_a_batch_are_aligned(batches):
    large = [[np.full((100, 100), number, np.float32)] for number in range(40)]
    for number, (images,) in enumerate(batches(large, 4)):
        assert images.ctypes.data % 64 == 0
        assert images.flags.c_contiguous
        assert images[:, 99, 99].tolist() == list(range(4 * number, 4 * number + 4))


def test_a_dict_becomes_a_dict_and_a_tuple_a_list():
    assert next(iter(BatchData([{"x": 1, "y": "a"}, {"y": "b", "x": 2}], 2)))["y"].tolist() == ["a", "b"]
    batch = next(iter(BatchData([(1, 2), (3, 4)], 2)))
    assert [component.tolist() for component in batch] == [[1, 3], [2, 4]]
    assert type(batch) is list


def test_lists_take_what_does_not_stack():
    batch = next(iter(BatchData([[np.zeros(2), None], [np.zeros(3), {}]], 2, use_list=True)))
    assert [array.shape for array in batch[0]] == [(2,), (3,)]
    assert batch[1] == [None, {}]


def test_bytes_keep_their_trailing_zeros():
    (batch,) = next(iter(BatchData([[b"a\0"], [b"bcd"]], 2)))
    assert batch.tolist() == [b"a\0", b"bcd"]


def test_arrays_of_texts_of_different_lengths_stack():
    (batch,) = next(iter(BatchData([[np.array(["a", "b"])], [np.array(["cde", "f"])]], 2)))
    assert batch.tolist() == [["a", "b"], ["cde", "f"]]


def test_python_numbers_promote_and_numpy_scalars_keep_their_dtype():
    mixed, scalars = next(iter(BatchData([[1, np.uint8(1)], [2.5, np.uint8(2)]], 2)))
    assert mixed.tolist() == [1.0, 2.5]
    assert scalars.dtype == np.uint8


def failure(datapoints: list[object]) -> str:
    """Return the message of the error, which is the same for a flow that may write to its arrays again."""
    messages = []
    for flow in (datapoints, DataFromGenerator(lambda: iter(datapoints))):
        with pytest.raises(InputError) as caught:
            list(BatchData(flow, 2))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    return messages[0]


def test_a_wrong_shape_names_component_shapes_and_datapoint():
    message = failure([[0, np.zeros(3)], [0, np.zeros(3)], [0, np.zeros(3)], [0, np.zeros((2, 2))]])
    assert "component 1 has shape (2, 2) in datapoint 3, but (3,) in datapoint 2, the first of its batch" in message


def test_a_wrong_dtype_names_component_dtypes_and_datapoint():
    message = failure([{"x": np.zeros(3)}, {"x": np.zeros(3, np.float32)}])
    assert "component 'x' has dtype float32 in datapoint 1, but float64 in datapoint 0" in message


@pytest.mark.parametrize(
    ("second", "has"),
    [([1], "has 1 components"), ({"x": 1, "y": 2}, "has the keys ['x', 'y']"), ([1, 2, 3], "has 3 components")],
)
def test_another_structure_names_the_datapoint(second, has):
    message = failure([[1, 2], second])
    assert f"datapoint 1 {has}, but datapoint 0, the first of its batch, has 2 components" in message


def test_a_list_and_a_dict_with_the_same_keys_do_not_mix():
    assert "datapoint 1 has the keys [0], but datapoint 0" in failure([[1], {0: 1}])


def test_dicts_with_different_keys_do_not_mix():
    message = failure([{"x": 1, "y": 2}, {"x": 1, "z": 2}])
    assert "datapoint 1 has the keys ['x', 'z'], but datapoint 0" in message


def test_what_is_no_datapoint_is_named():
    assert "datapoint 0 is of type int, which is not a list, tuple or dict" in failure([1, 2])


def test_a_masked_array_is_refused_because_its_mask_would_be_lost():
    masked = np.ma.masked_less([1, 2], 2)
    assert "component 0 of datapoint 0 is a masked array" in failure([[masked], [masked]])
    assert "component 0 of datapoint 1 is a masked array" in failure([[np.array([1, 2])], [masked]])


def test_a_ragged_list_is_an_error_and_not_an_array_of_objects():
    assert "component 0 of datapoint 0 is not an array" in failure([[[[1], [1, 2]]], [[[1], [1, 2]]]])


def test_an_object_asks_for_lists():
    assert "use_list=True" in failure([[None], [None]])


def test_a_batch_has_a_size():
    with pytest.raises(ConfigError, match="batch_size"):
        BatchData([], 0)


def test_a_batch_of_more_than_there_is_has_what_there_is():
    ((images, labels),) = BatchData(pairs(3), 5, remainder=True)
    assert images.shape == (3, 2, 3)
    assert images[:, 0, 0].tolist() == labels.tolist() == [0, 1, 2]


def test_what_becomes_an_array_fits_in_with_arrays():
    datapoints = [[np.array([1, 2]), 1], ([3, 4], 2.5), [np.array([5, 6]), 3]]
    for flow in (datapoints, DataFromGenerator(lambda: iter(datapoints))):
        ((values, numbers),) = BatchData(flow, 3)
        assert values.tolist() == [[1, 2], [3, 4], [5, 6]]
        assert numbers.tolist() == [1, 2.5, 3]


def test_a_datapoint_that_is_unlike_the_others_is_copied_as_they_are():
    def refilling():
        array, nested = np.empty(3), [0.0, 0.0, 0.0]
        for number in range(4):
            array[:] = nested[:] = [float(number)] * 3
            yield [nested if number == 2 else array]

    ((values,),) = BatchData(DataFromGenerator(refilling), 4)
    assert values[:, 0].tolist() == [0, 1, 2, 3]


def test_a_batch_is_not_changed_by_those_after_it():
    first, second = BatchData(pairs(4), 2)
    assert first[0][:, 0, 0].tolist() == [0, 1]
    assert second[0][:, 0, 0].tolist() == [2, 3]


def test_a_worker_makes_only_its_own_batches_and_they_are_those_of_one():
    touched = [[], []]

    def share(index):
        def touch(datapoint):
            touched[index].append(datapoint[0])
            return datapoint

        return BatchData(MapData(DataFromList([[number] for number in range(10)]), touch), 2).shard(index, 2)

    batches = [[batch[0].tolist() for batch in share(index)] for index in range(2)]
    assert batches == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7]]]
    assert touched == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7]]
    assert [len(share(index)) for index in range(2)] == [3, 2]


def test_a_datapoint_is_numbered_as_in_the_whole_pass_after_a_resumption():
    position = Position(BatchData([[0]] * 4 + [[1, 2]], 2))
    next(iter(position))
    resumed = Position(BatchData([[0]] * 4 + [[1, 2]] * 2, 2))
    resumed.load_state_dict(position.state_dict())
    (batch,) = next(iter(resumed))
    assert batch.tolist() == [0, 0]
    resumed = Position(BatchData([[0]] * 3 + [[1, 2]], 2))
    resumed.load_state_dict(position.state_dict())
    with pytest.raises(InputError, match="datapoint 3 has 2 components"):
        next(iter(resumed))


@given(st.lists(st.integers(1, 4), max_size=30), st.integers(1, 4), st.booleans())
def test_batches_have_one_shape_each_and_all_of_it(sizes, batch_size, remainder):
    datapoints = [{"x": np.full(size, number), "id": number} for number, size in enumerate(sizes)]
    batches = list(BatchDataByShape(datapoints, batch_size, "x", remainder))
    delivered = []
    for batch in batches:
        assert batch["x"].shape == (len(batch["id"]), sizes[batch["id"][0]])
        assert (batch["x"][:, 0] == batch["id"]).all()
        delivered += batch["id"].tolist()
    of_each = {size: [number for number, other in enumerate(sizes) if other == size] for size in sizes}
    expected = []
    for numbers in of_each.values():
        expected += numbers if remainder else numbers[: len(numbers) // batch_size * batch_size]
    assert sorted(delivered) == sorted(expected)
    assert all(len(batch["id"]) == batch_size for batch in batches) or remainder


def test_a_batch_comes_as_soon_as_it_is_full():
    batches = iter(BatchDataByShape([[np.zeros(size)] for size in (1, 2, 1)] + [None], 2, 0))
    assert next(batches)[0].shape == (2, 1)


@pytest.mark.parametrize(
    ("datapoint", "message"),
    [
        ([1], "datapoint 1 has no component 1: it has 1 components"),
        (3, "datapoint 1 has no component 1: it is of type int"),
        ([1, [[1], [1, 2]]], "component 1 of datapoint 1 has no shape"),
        ([np.zeros(2), 1], r"component 0 has shape \(2,\) in datapoint 1, but \(1,\) in datapoint 0"),
    ],
)
def test_what_is_wrong_names_component_and_datapoint(datapoint, message):
    with pytest.raises(InputError, match=f"BatchDataByShape: {message}"):
        list(BatchDataByShape([[np.zeros(1), 1], datapoint], 2, 1))


def test_it_has_no_length_and_needs_a_size():
    with pytest.raises(TypeError, match="is unknown"):
        len(BatchDataByShape([], 1, 0))
    with pytest.raises(ConfigError, match="BatchDataByShape: batch_size must be an integer, 1 or more, not 0"):
        BatchDataByShape([], 0, 0)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6.0).reshape(2, 3)[::-1],
        np.arange(6.0).reshape(2, 3).T,
        np.arange(6)[::2],
        np.zeros((0, 3)),
        np.array(3.0),
        np.array([1, 2], ">i2"),
        np.array(["2026-11-28"], "M8[D]"),
        np.array(["a", "bc"]),
        np.array([None, "text"]),
        np.array([(1, "text")], [("number", "i4"), ("object", "O")]),
        np.zeros((200, 200)),
    ],
    ids=lambda array: f"{array.dtype}, {array.shape}, {array.strides}",
)
@pytest.mark.parametrize("refills", [False, True])
def test_any_array_is_batched_as_numpy_stacks_it(array, refills):
    source = [[array], [array.copy()], [array]]
    flow = MapData(source, list) if refills else source
    ((batch,),) = BatchData(flow, 3)
    expected = np.stack([array] * 3)
    assert (batch.dtype, batch.shape, batch.tolist()) == (expected.dtype, expected.shape, expected.tolist())
    assert batch.flags.writeable and batch.flags.c_contiguous


def test_dicts_with_default_values_are_compared_by_their_keys():
    first, second = (defaultdict(int, {name: 1}) for name in "ab")
    with pytest.raises(InputError, match=r"has the keys \['b'\], but datapoint 0.* has the keys \['a'\]"):
        list(BatchData([first, second], 2))
    assert list(second) == ["b"]
