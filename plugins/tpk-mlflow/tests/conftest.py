from __future__ import annotations

import shutil

import pytest
import tensorflow as tf
from mlflow import MlflowClient

import tpk

pytest_plugins = ["tpk.testing"]


class Descent(tpk.Trainer):
    """Moves one variable towards 1."""

    def __init__(self):
        with tf.Graph().as_default():
            super().__init__()
            w = tf.compat.v1.get_variable("w", [], initializer=tf.compat.v1.zeros_initializer())
            cost = tf.square(w - 1.0, name="cost")
            self.train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(cost)


@pytest.fixture
def descend():
    """Return a function that trains a variable with arguments of `tpk.Trainer.train` and returns the trainer."""

    def train(steps=2, epochs=2, **options):
        trainer = Descent()
        trainer.train(steps_per_epoch=steps, max_epoch=epochs, **options)
        return trainer

    return train


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """An empty MLflow store in a SQLite file; MLflow takes seconds to create one."""
    directory = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as elsewhere:
        # The default experiment stores its files in the directory in which the store is created.
        elsewhere.chdir(directory)
        MlflowClient(f"sqlite:///{directory}/mlflow.db").search_experiments()
    return directory / "mlflow.db"


@pytest.fixture
def store(empty_store, tmp_path, monkeypatch):
    """The URI of an empty store for one test, and a client for it."""
    # MLflow writes the files of runs to the current directory.
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    return uri, MlflowClient(uri)


@pytest.fixture(scope="session", autouse=True)
def _silence():
    """Turn off MLflow's telemetry and its retries."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        environment.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        environment.delenv("MLFLOW_TRACKING_URI", raising=False)
        environment.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
        yield
