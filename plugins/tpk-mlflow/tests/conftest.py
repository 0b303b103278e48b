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
    """Return a function that trains a variable, with the arguments of `tpk.Trainer.train`, and returns the trainer."""

    def train(steps=2, epochs=2, **options):
        trainer = Descent()
        trainer.train(steps_per_epoch=steps, max_epoch=epochs, **options)
        return trainer

    return train


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """MLflow's store in a SQLite file, which takes MLflow seconds to make."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def store(empty_store, tmp_path, monkeypatch):
    """The address of an empty store of a test's own, and a client that reads it."""
    # MLflow puts the files of runs into the current directory.
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    return uri, MlflowClient(uri)


@pytest.fixture(scope="session", autouse=True)
def _silence():
    """Have MLflow tell nobody of these tests, nor ask again and again where nobody answers."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        environment.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        environment.delenv("MLFLOW_TRACKING_URI", raising=False)
        environment.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
        yield
