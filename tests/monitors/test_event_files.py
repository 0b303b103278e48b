from __future__ import annotations

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from tpk.monitors.event_files import Event, EventFiles


def event(step):
    return Event(step=step, wall_time=float(step)).SerializeToString()


def files(folder, now=1000.0, max_queue=1, flush_secs=1e9, suffix=".Writer"):
    return EventFiles(folder, suffix, max_queue, flush_secs, lambda: now)


def steps(events):
    """The steps of all events, in the order in which TensorBoard reads the files."""
    read = [each for path in events.paths() for each in EventFileLoader(str(path)).Load()]
    return [each.step for each in read if not each.file_version]


class Unreliable:
    """A writer of records that writes half of what it is given, and fails, while the disk is full."""

    full = False
    make = tf.io.TFRecordWriter

    def __init__(self, path):
        self.path, self.writer = path, Unreliable.make(path)

    def write(self, record):
        self.writer.write(record)

    def flush(self):
        self.writer.flush()
        if Unreliable.full:
            with open(self.path, "rb+") as file:
                file.truncate(file.seek(0, 2) - 7)
            raise IndexError("File too large")

    def close(self):
        self.writer.close()


@pytest.fixture
def unreliable(monkeypatch):
    monkeypatch.setattr(tf.io, "TFRecordWriter", Unreliable)
    monkeypatch.setattr(Unreliable, "full", False)
    return Unreliable


@pytest.mark.parametrize("before", [0, 2])
def test_failed_writes_are_repeated_later_and_once(tmp_path, unreliable, before):
    events = files(tmp_path)
    for step in range(before):
        events.add([event(step)])
    unreliable.full = True
    for step in (before, before + 1):
        with pytest.raises(IndexError):
            events.add([event(step)])
    assert steps(events) == list(range(before))
    assert len(events.waiting) == 2
    unreliable.full = False
    events.add([event(before + 2)])
    events.close()
    assert steps(events) == list(range(before + 3))
    assert not events.waiting


def test_file_names_are_in_order_whatever_the_clock_says(tmp_path):
    for step, now in enumerate([5000.0, 5000.2, 17.0, 0.0, 6000.0]):
        events = files(tmp_path, now)
        events.add([event(step)])
        events.close()
    assert steps(events) == [0, 1, 2, 3, 4]
    assert len(events.paths()) == 5


def test_events_wait_for_others(tmp_path):
    events = files(tmp_path, max_queue=3)
    events.add([event(0)])
    events.add([event(1)])
    assert not events.paths()
    events.add([event(2)])
    assert steps(events) == [0, 1, 2]
    assert files(tmp_path, suffix=".Other").paths() == []
    patient = files(tmp_path, max_queue=3, flush_secs=0.0, suffix=".Other")
    patient.add([event(0)])
    assert steps(patient) == [0]
