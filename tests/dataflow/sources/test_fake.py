from __future__ import annotations

import numpy as np
import pytest

from tpk.dataflow import FakeData
from tpk.errors import ConfigError


def test_arrays_have_the_shapes_dtypes_and_domains():
    flow = FakeData(
        [(3, 4), (), (100,), (2,), (5,)],
        20,
        dtype=["float32", "int64", "uint8", "float16", bool],
        domain=[(-2, 2), (0, 3), (0, 256), (1, 2), (0, 1)],
    )
    datapoints = list(flow)
    assert len(datapoints) == len(flow) == 20
    stacked = [np.stack(component) for component in zip(*datapoints, strict=True)]
    assert [array.shape[1:] for array in stacked] == [(3, 4), (), (100,), (2,), (5,)]
    assert [array.dtype for array in stacked] == [np.float32, np.int64, np.uint8, np.float16, np.bool_]
    assert -2 <= stacked[0].min() < -1.5 < 1.5 < stacked[0].max() < 2
    assert set(stacked[1].tolist()) == {0, 1, 2}
    assert stacked[2].min() < 10 < 245 < stacked[2].max()
    assert 1 <= stacked[3].min() <= stacked[3].max() <= 2
    assert set(stacked[4].ravel().tolist()) == {False, True}


def test_each_datapoint_is_another():
    first, second, *_ = FakeData([(4,)], 5)
    assert not np.array_equal(first[0], second[0])


@pytest.mark.parametrize("random", [True, False])
def test_arrays_are_aligned(random):
    for array, label in FakeData([(3, 5), (7,)], 10, random, dtype=["float32", "int32"]):
        assert array.ctypes.data % 64 == label.ctypes.data % 64 == 0


def test_data_that_is_not_random_is_one_and_the_same():
    flow = FakeData([(4,)], 3, random=False)
    first, second, third = flow
    assert first is second is third


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shapes": [(1,)], "size": -1}, "size must be"),
        ({"shapes": [3]}, "shapes must have one shape for each component"),
        ({"shapes": [(-1,)]}, "shapes must have"),
        ({"shapes": [(1,)], "dtype": "S3"}, "dtype must be one of"),
        ({"shapes": [(1,)], "dtype": "no"}, "'no' is no dtype"),
        ({"shapes": [(1,)], "dtype": ["int32", "int32"]}, "2 values of dtype for 1 shapes"),
        ({"shapes": [(1,)], "domain": (1, 1)}, "domain must be a pair"),
        ({"shapes": [(1,)], "domain": [(0, 1), (0, 1)]}, "2 values of domain for 1 shapes"),
        ({"shapes": [(1,)], "domain": (0, 257), "dtype": "uint8"}, r"domain \(0, 257\) does not fit into uint8"),
    ],
)
def test_what_cannot_be_made_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=f"FakeData: .*{message}"):
        FakeData(**arguments)
