from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import tensorflow as tf
import wandb

import tpk

pytest_plugins = ["tpk.testing"]
sys.path.insert(0, str(Path(__file__).parent))

# Port 9 ("discard") is unused today.
UNREACHABLE = "http://127.0.0.1:9"


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


@pytest.fixture(scope="session", autouse=True)
def _alone(tmp_path_factory):
    """Isolate W&B from its server and from the user's settings. W&B reads the environment once per process."""
    directory = tmp_path_factory.mktemp("wandb")
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            environment.delenv(name)
        environment.setenv("WANDB_BASE_URL", UNREACHABLE)
        environment.setenv("WANDB_ERROR_REPORTING", "false")
        environment.setenv("WANDB_CONFIG_DIR", str(directory / "settings"))
        environment.setenv("NETRC", str(directory / "netrc"))
        # W&B also looks for settings in the current directory.
        environment.chdir(directory)
        yield


@pytest.fixture
def logged_in(monkeypatch):
    """Set an API key for an unreachable server for the duration of the test."""
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    wandb.teardown()
    yield
    wandb.teardown()
