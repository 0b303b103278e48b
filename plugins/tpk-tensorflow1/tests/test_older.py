"""Modules with the names that Python, NumPy and SciPy have removed."""

from __future__ import annotations

import collections.abc
import inspect
import warnings

import numpy
import pytest
import scipy.special
from tpk_tensorflow1.older import collections as collections1, inspect as inspect1, numpy as numpy1, time as time1
from tpk_tensorflow1.older.numpy import lib
from tpk_tensorflow1.older.scipy import misc, ndimage


def test_numpy_has_its_old_names():
    assert numpy1.float is float
    assert numpy1.zeros(2, numpy1.bool).dtype == bool
    assert numpy1.float_ is numpy.float64
    assert -numpy.inf == numpy1.NINF
    assert numpy1.product([2, 3]) == 6
    assert numpy1.asfarray([1, 2]).dtype == numpy.float64
    assert numpy1.asscalar(numpy.array([3])) == 3
    assert numpy1.math.sqrt(4) == 2
    with pytest.warns(PendingDeprecationWarning, match="matrix subclass"):
        assert (numpy1.mat([[1, 2]]) * numpy1.mat([[3], [4]])).tolist() == [[11]]
    assert issubclass(numpy1.VisibleDeprecationWarning, Warning)
    with pytest.raises(AttributeError, match="nothing_like_this"):
        numpy1.nothing_like_this  # noqa: B018


def test_every_renamed_name_of_numpy_leads_somewhere():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy 1.26 still has some of the old names, and warns of them.
        for name in numpy1._RENAMED:
            getattr(numpy1, name)


def test_numpy_has_its_old_arguments():
    assert numpy1.reshape(numpy.arange(4), newshape=(2, 2)).tolist() == [[0, 1], [2, 3]]
    assert numpy1.histogram([1, 1, 3], bins=2, normed=True)[0].sum() == 1
    assert numpy1.array(numpy.arange(2), copy=False, dtype=float).tolist() == [0, 1]
    assert lib.pad(numpy.ones(1), 1, "constant").tolist() == [0, 1, 0]
    assert lib.stride_tricks is numpy.lib.stride_tricks


def test_numpy_joins_and_adds_up_iterators():
    assert numpy1.hstack([n] for n in range(2)).tolist() == [0, 1]
    assert numpy1.sum(n for n in range(4)) == 6
    assert numpy1.sum([[1, 2], [3, 4]], axis=0).tolist() == [4, 6]


def test_numpy_reads_numbers_from_bytes_into_an_array_that_can_be_written():
    numbers = numpy1.fromstring(b"\1\2", dtype=numpy.uint8)
    numbers += 1
    assert numbers.tolist() == [2, 3]
    assert numpy1.fromstring("1 2", sep=" ").tolist() == [1, 2]


def test_rows_of_different_shapes_become_objects(tmp_path):
    rows = list(zip([numpy.zeros(3), numpy.ones(3)], [numpy.zeros(2), numpy.ones(2)], strict=True))
    data = numpy1.array(rows)
    assert (data.shape, data.dtype) == ((2, 2), object)
    xs, ys = zip(*data[[1, 0]], strict=True)
    assert numpy1.array(xs).tolist() == [[1, 1, 1], [0, 0, 0]]
    assert numpy1.array(ys).shape == (2, 2)
    assert numpy1.asarray([[1, 2], [3]]).tolist() == [[1, 2], [3]]
    assert numpy1.array([[1, 2], [3, 4]]).dtype == int
    numpy1.save(tmp_path / "rows.npy", rows)
    assert numpy.load(tmp_path / "rows.npy", allow_pickle=True).shape == (2, 2)
    with pytest.raises(ValueError, match="inhomogeneous"):
        numpy1.array([[1, 2], [3]], dtype=float)


def test_python_has_its_old_names():
    assert collections1.Mapping is collections.abc.Mapping
    assert collections1.OrderedDict is collections.OrderedDict
    assert collections1.abc is collections.abc

    def function(first, second=2, *rest, **further):
        pass

    assert inspect1.getargspec(function) == (["first", "second"], "rest", "further", (2,))
    assert inspect1.signature is inspect.signature
    assert 0 < time1.clock() <= time1.clock()
    for module in (collections1, inspect1, time1):
        assert not hasattr(module, "__path__")


def test_scipy_has_functions_that_have_moved():
    assert misc.logsumexp is scipy.special.logsumexp
    assert ndimage.zoom is scipy.ndimage.zoom


def test_an_image_is_written_and_read(tmp_path):
    image = numpy.arange(60, dtype=numpy.uint8).reshape(4, 5, 3)
    misc.imsave(tmp_path / "a.png", image)
    assert misc.imread(tmp_path / "a.png").tolist() == image.tolist()
    gray = misc.imread(str(tmp_path / "a.png"), flatten=True)
    assert (gray.shape, gray.dtype) == ((4, 5), numpy.float32)
    assert ndimage.imread(tmp_path / "a.png", mode="L").shape == (4, 5)


def test_the_values_of_an_image_are_scaled_unless_they_are_bytes(tmp_path):
    misc.imsave(tmp_path / "a.png", numpy.array([[-1.0, 0.0, 1.0]]))
    assert misc.imread(tmp_path / "a.png").tolist() == [[0, 128, 255]]
    assert numpy.array(misc.toimage([[0.0, 1.0]], cmin=0, cmax=2)).tolist() == [[0, 128]]
    assert numpy.array(misc.toimage([[0.0, 1.0]], mode="F")).tolist() == [[0, 1]]


def test_an_image_is_resized_to_a_size_a_factor_or_a_percentage():
    image = numpy.arange(60, dtype=numpy.uint8).reshape(4, 5, 3)
    for size in ([8, 10], (8.0, 10.0), 2.0, 200):
        assert misc.imresize(image, size).shape == (8, 10, 3)
    assert misc.imresize(image, (2, 5), interp="nearest").tolist() == image[1::2].tolist()
    assert misc.imrotate(image[:, :4], 180).tolist() == image[::-1, 3::-1].tolist()


@pytest.mark.parametrize(("shape", "mode"), [((5, 6, 2), None), ((4,), None), ((5, 6, 1), None), ((5, 6), "RGB")])
def test_an_array_that_is_no_image_is_an_error(shape, mode):
    with pytest.raises(ValueError, match=rf"an array of shape \[{', '.join(map(str, shape))}\] is not an image"):
        misc.toimage(numpy.zeros(shape), mode=mode)
