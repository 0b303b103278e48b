from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
import tensorflow as tf

from tpk.monitors import Monitors
from tpk.plugin.progress import Progress

sys.path.insert(0, str(Path(__file__).parent))


class TrainerStub:
    """What monitors see of a trainer, with counters that a test sets."""

    def __init__(self, run_dir=None):
        self.graph = tf.Graph()
        self.run_dir = run_dir
        self.is_chief = True
        self.epoch_num = 1
        self.local_step = 0
        self.global_step = 0
        self.loop = types.SimpleNamespace(steps_per_epoch=10, max_epoch=20, progress=Progress(), is_in_run_step=False)
        self.stop_reasons = []
        self.request_stop = self.stop_reasons.append
        self.announcements = []
        self.checkpoints = self
        self.monitors = Monitors(self)

    def take_announcements(self):
        return self.announcements


@pytest.fixture
def trainer(tmp_path):
    return TrainerStub(tmp_path)


@pytest.fixture
def trainer_without_run_dir():
    return TrainerStub(None)
