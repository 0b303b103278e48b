"""`tf.contrib.learn.datasets`: tables in CSV files, the irises, and MNIST."""

from __future__ import annotations

import csv
from typing import Any, NamedTuple

import numpy as np

from tpk_tensorflow1.contrib.learn.datasets import mnist
from tpk_tensorflow1.missing import finder_in, own_names

Datasets = mnist.Datasets


class Dataset(NamedTuple):
    """A table of features, and the target of each row."""

    data: Any
    target: Any


def load_csv_with_header(filename: str, target_dtype: Any, features_dtype: Any, target_column: int = -1) -> Dataset:
    """Read a CSV file whose first row starts with the number of rows and the number of features.

    Args:
        filename: the path.
        target_dtype: the dtype of the target.
        features_dtype: the dtype of the features.
        target_column: the column of the target.
    """
    return _read_csv(filename, target_dtype, features_dtype, target_column, skip=1)


def load_csv_without_header(filename: str, target_dtype: Any, features_dtype: Any, target_column: int = -1) -> Dataset:
    """Read a CSV file; see `load_csv_with_header`."""
    return _read_csv(filename, target_dtype, features_dtype, target_column, skip=0)


def _read_csv(filename: str, target_dtype: Any, features_dtype: Any, target_column: int, skip: int) -> Dataset:
    with open(filename, newline="") as file:
        rows = list(csv.reader(file))[skip:]
    targets = [row.pop(target_column) for row in rows]
    return Dataset(np.array(rows, features_dtype), np.array(targets, target_dtype))


def load_dataset(name: str, size: str = "small", test_with_fake_data: bool = False) -> Any:
    """Return the data set ``"iris"``, ``"boston"`` or ``"mnist"``; the last one from the directory ``MNIST-data``.

    Raises:
        ValueError: the name is unknown.
    """
    loaders = {"boston": load_boston, "iris": load_iris, "mnist": lambda: mnist.read_data_sets("MNIST-data")}
    if name not in loaders:
        raise ValueError(f"no data set is called {name!r}; there are {', '.join(loaders)}")
    return loaders[name]()


def load_iris(data_path: str | None = None) -> Dataset:
    """Return the measures of 150 irises from a CSV file with header, by default from scikit-learn."""
    if data_path is not None:
        return load_csv_with_header(data_path, int, float)
    from sklearn.datasets import load_iris

    irises = load_iris()
    return Dataset(irises.data, irises.target)


def load_boston(data_path: str | None = None) -> Dataset:
    """Return the prices of houses in Boston from a CSV file with header.

    Raises:
        ValueError: there is no path; libraries do not contain this data set any more.
    """
    if data_path is None:
        raise ValueError("load_boston needs the path of a CSV file: libraries do not contain this data set any more")
    return load_csv_with_header(data_path, float, float)


__all__ = ["mnist", *own_names(__name__)]

__getattr__ = finder_in("tf.contrib.learn.datasets", __all__)
