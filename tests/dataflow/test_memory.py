from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from tpk.dataflow import aligned_empty


@given(hnp.array_shapes(min_dims=0, min_side=0), st.sampled_from(["u1", "i4", "f8", "c16", "?", "U3"]))
def test_an_aligned_array_is_an_ordinary_one_that_starts_on_64_bytes(shape, dtype):
    array = aligned_empty(shape, dtype)
    assert array.shape == shape
    assert array.dtype == np.dtype(dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.size == 0 or array.ctypes.data % 64 == 0


def test_objects_get_an_ordinary_array():
    assert aligned_empty((2,), object).tolist() == [None, None]
