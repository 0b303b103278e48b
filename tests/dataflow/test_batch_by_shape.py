from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tpk.dataflow import BatchDataByShape
from tpk.errors import ConfigError, InputError


@given(st.lists(st.integers(1, 4), max_size=30), st.integers(1, 4), st.booleans())
def test_batches_have_one_shape_each_and_all_of_it(sizes, batch_size, remainder):
    datapoints = [{"x": np.full(size, number), "id": number} for number, size in enumerate(sizes)]
    batches = list(BatchDataByShape(datapoints, batch_size, "x", remainder))
    delivered = []
    for batch in batches:
        assert batch["x"].shape == (len(batch["id"]), sizes[batch["id"][0]])
        assert (batch["x"][:, 0] == batch["id"]).all()
        assert batch["x"].ctypes.data % 64 == 0
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
        ([1], "datapoint 1 has no component 1, but has 1 components"),
        (3, "datapoint 1 has no component 1, but is of type int"),
        ([1, [[1], [1, 2]]], "component 1 of datapoint 1 has no shape"),
        ([np.zeros(2), 1], r"component 0 of datapoint 1 has shape \(2,\), but that of datapoint 0"),
    ],
)
def test_what_is_wrong_names_component_and_datapoint(datapoint, message):
    with pytest.raises(InputError, match=f"BatchDataByShape: {message}"):
        list(BatchDataByShape([[np.zeros(1), 1], datapoint], 2, 1))


def test_it_has_no_length_and_needs_a_size():
    with pytest.raises(TypeError, match="not known"):
        len(BatchDataByShape([], 1, 0))
    with pytest.raises(ConfigError, match="BatchDataByShape: batch_size must be 1 or more, not 0"):
        BatchDataByShape([], 0, 0)
