"""Horovod's operations and the process group, in two processes, without training."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("horovod", reason="build Horovod with `python -m tpk_horovod.build`")
sys.path.insert(0, str(Path(__file__).parent))

import trainings
from hosts import Processes

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The results of `trainings.operations` in each of two processes."""
    with Processes(tmp_path_factory.mktemp("operations")) as started:
        yield started.start("operations").results()


def test_values_of_any_size_are_exchanged(both):
    for result in both:
        assert result["exchanged"][:3] == [["", "x" * 1000 * size] for size in (0, 1, 100)]


def test_processes_at_different_points_notice(both):
    for rank, result in enumerate(both):
        assert f"rank {rank} is at 'something of {rank}', rank {1 - rank} at" in result["exchanged"][3]


def test_variables_of_all_dtypes_get_the_chiefs_values(both):
    for result in both:
        *values, scalar, empty = result["broadcast"]
        assert len(values) == len(trainings.BROADCAST) + 1
        np.testing.assert_array_equal(values, np.ones([len(values), 2]))
        assert (scalar, empty.shape) == (1, (0, 3))


def test_means_of_all_dtypes_are_means_over_both(both):
    for result in both:
        np.testing.assert_array_equal(result["means"], [[2, 4]] * len(trainings.REDUCED))


def test_slices_may_differ_in_number(both):
    for result in both:
        values, indices, shape = result["slices"]
        np.testing.assert_array_equal(values, [[1.0]] * 3)
        np.testing.assert_array_equal(indices, [0, 1, 2])
        np.testing.assert_array_equal(shape, [4, 1])


def test_local_ranks_are_known(both):
    assert [result["local"] for result in both] == [(0, 2), (1, 2)]
