"""Files of monitors when a killed run resumes from its checkpoint."""

from __future__ import annotations

import json
import logging
from contextlib import suppress

import pytest
import tensorflow as tf
from registered import RegisteredMonitors
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from tpk.checkpoint.encoding import decode, encode, state_keys
from tpk.errors import ConfigError
from tpk.monitors import JSONWriter, Monitor, Monitors, ScalarPrinter, TFEventWriter


def make(kind, trainer):
    writer = kind(clock=lambda: 5.0)
    writer.trainer = trainer
    writer.setup_graph(trainer)
    return writer


def report(writer, step, **scalars):
    writer.trainer.global_step = step
    for name, value in scalars.items():
        writer.process_scalar(name, value)


def content(writer):
    return writer.path.read_text() if writer.path.exists() else None


@pytest.mark.parametrize("flushed", [True, False])
def test_rows_after_the_checkpoint_are_removed_and_the_current_row_is_kept(trainer, flushed):
    whole = make(JSONWriter, trainer)
    report(whole, 1, cost=1)
    report(whole, 2, cost=2)
    state = whole.state_dict()
    report(whole, 2, error=7)
    report(whole, 3, cost=3, late=1)
    whole.after_train(trainer)
    expected = content(whole)
    if flushed:
        # The end of the training has written a row that was not complete at the checkpoint.
        killed = make(JSONWriter, trainer)
        report(killed, 9, other=9)
        killed.after_train(trainer)
    resumed = make(JSONWriter, trainer)
    resumed.load_state_dict(state)
    report(resumed, 2, error=7)
    report(resumed, 3, cost=3, late=1)
    resumed.after_train(trainer)
    assert content(resumed) == expected


def test_a_checkpoint_before_the_first_row(trainer):
    first = make(JSONWriter, trainer)
    state = first.state_dict()
    assert content(first) is None
    report(first, 1, cost=1)
    first.after_train(trainer)
    expected = content(first)
    resumed = make(JSONWriter, trainer)
    resumed.load_state_dict(state)
    assert not content(resumed)
    report(resumed, 1, cost=1)
    resumed.after_train(trainer)
    assert content(resumed) == expected


@pytest.mark.parametrize("remove", [True, False])
def test_a_file_that_became_shorter_is_logged(trainer, remove, caplog):
    first = make(JSONWriter, trainer)
    for step in range(4):
        report(first, step, cost=step)
    first.flush()
    state = first.state_dict()
    first.after_train(trainer)
    if remove:
        first.path.unlink()
    else:
        first.path.write_text("".join(first.path.read_text().splitlines(keepends=True)[:2]))
    resumed = make(JSONWriter, trainer)
    resumed.load_state_dict(state)
    assert "missing" in caplog.text
    report(resumed, 4, cost=4)
    resumed.after_train(trainer)
    assert "4" in content(resumed)


def test_starting_over_renames_the_file(trainer, caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    first = make(JSONWriter, trainer)
    kept = []
    for number in (1, 2):
        report(first, number, cost=number)
        first.after_train(trainer)
        kept.append(content(first))
        Monitors(trainer, [first]).start_over()
        assert content(first) is None
    Monitors(trainer, [first]).start_over()
    asides = [first.path.with_name(f"stats-{number}{first.path.suffix}") for number in (1, 2)]
    assert [path.read_text() for path in asides] == kept
    assert all(f"it is now {path}" in caplog.text for path in asides)


@pytest.mark.parametrize("damage", [b"\0\0\0", b'{"epoch_num": 1, "glo', b"\xff\xfe", b"17"])
def test_damaged_lines_are_reported_and_a_copy_is_kept(trainer, damage, caplog):
    first = make(JSONWriter, trainer)
    for step in range(4):
        report(first, step, cost=step)
    first.flush()
    state = first.state_dict()
    report(first, 4, cost=4)
    first.after_train(trainer)
    lines = first.path.read_bytes().splitlines()
    lines[1] = damage.ljust(len(lines[1]))
    first.path.write_bytes(b"".join(line + b"\n" for line in lines))
    damaged = first.path.read_bytes()
    resumed = make(JSONWriter, trainer)
    resumed.load_state_dict(state)
    copy = resumed.path.with_name("stats-1.jsonl")
    assert copy.read_bytes() == damaged
    assert f"{resumed.path}: removed damaged lines (2); a copy of the file is in {copy}" in caplog.text
    report(resumed, 4, cost=4)
    resumed.after_train(trainer)
    assert [json.loads(line)["cost"] for line in content(resumed).splitlines()] == [0, 2, 3, 4]


def test_pending_values_are_printed_after_the_resume(trainer, caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    first, second = ScalarPrinter(), ScalarPrinter()
    first.process_scalar("cost", 0.5)
    second.load_state_dict(first.state_dict())
    second.trigger_epoch(trainer)
    assert "cost 0.5" in caplog.text


def test_rows_are_not_written_through_a_link(trainer, tmp_path_factory):
    victim = tmp_path_factory.mktemp("elsewhere") / "victim"
    victim.write_text("private, without a line end")
    writer = make(JSONWriter, trainer)
    writer.path.symlink_to(victim)
    with pytest.raises(ConfigError, match="is a symbolic link"):
        make(JSONWriter, trainer)
    # One that came later.
    for write in (
        lambda: report(writer, 1, cost=1),
        writer.flush,
        lambda: writer.load_state_dict({"file": {"size": 0}, "rows": []}),
    ):
        with suppress(ConfigError):
            write()
    writer.close()
    assert victim.read_text() == "private, without a line end"


def test_a_link_among_the_event_files_is_left_alone(trainer, tmp_path_factory):
    victim = tmp_path_factory.mktemp("elsewhere") / "victim"
    victim.write_text("private")
    first = make(TFEventWriter, trainer)
    link = trainer.run_dir / "events.out.tfevents.0000000001.host.1.0.TFEventWriter"
    link.symlink_to(victim)
    first.process_event(tf.compat.v1.Event(step=3))
    state = first.state_dict()
    first.after_train(trainer)
    second = make(TFEventWriter, trainer)
    second.load_state_dict(state)
    second.start_over()
    assert victim.read_text() == "private"
    assert sorted(path.name for path in trainer.run_dir.iterdir()) == [link.name, "kept-1"]
    assert not any(path.is_symlink() for path in (trainer.run_dir / "kept-1").iterdir())


def test_a_link_in_the_place_of_an_event_file_is_not_followed(trainer, tmp_path_factory):
    victim = tmp_path_factory.mktemp("elsewhere") / "victim"
    victim.write_text("private")
    earlier = make(TFEventWriter, trainer)
    earlier.process_event(tf.compat.v1.Event(step=1))
    earlier.after_train(trainer)
    (path,) = trainer.run_dir.iterdir()
    path.unlink()
    beginning, number = path.stem.rsplit(".", 1)  # The number counts the event files of this process.
    (trainer.run_dir / f"{beginning}.{int(number) + 1}.TFEventWriter").symlink_to(victim)
    writer = make(TFEventWriter, trainer)
    with pytest.raises(FileExistsError):
        writer.process_event(tf.compat.v1.Event(step=3)), writer.flush()
    writer.after_train(trainer)  # into another file
    assert victim.read_text() == "private"
    path = trainer.run_dir / f"{beginning}.{int(number) + 2}.TFEventWriter"
    assert [event.step for event in EventFileLoader(str(path)).Load()] == [0, 3]


def test_while_paused_nothing_is_recorded(trainer):
    class Count(Monitor):
        calls = 0

        def process_scalar(self, name, value):
            self.calls += 1

    monitor = Count()
    monitors = RegisteredMonitors(trainer, monitor)
    monitors.pause()
    monitors.put_scalar("cost", 1)
    monitors.resume()
    monitors.put_scalar("cost", 2)
    assert (monitor.calls, monitors.get_history("cost")) == (1, [(0, 2.0)])


def test_state_keys_do_not_depend_on_the_order():
    class Setter:
        def __init__(self, state_key=""):
            self.state_key = state_key

    assert state_keys([Setter("a"), JSONWriter(), Setter(), Setter("b"), Setter(), JSONWriter("x")]) == [
        "Setter(a)",
        "JSONWriter(stats.jsonl)",
        "Setter",
        "Setter(b)",
        "Setter#2",
        "JSONWriter(x)",
    ]


def test_a_monitor_that_was_failing_at_the_checkpoint_keeps_its_output(trainer, caplog):
    """Its file must not be mistaken for the file of an attempt that left no checkpoint."""

    def monitors():
        writer = JSONWriter(clock=lambda: 5.0)
        return RegisteredMonitors(trainer, writer), writer

    killed, writer = monitors()
    killed.put_scalar("cost", 1)
    writer.flush()
    before = content(writer)
    writer.state_dict = lambda: 1 / 0  # as on a full disk
    state = killed.state_dict()
    writer.close()
    resumed, writer = monitors()
    resumed.load_state_dict(state)
    assert content(writer) == before
    assert "JSONWriter was failing when the checkpoint was taken; its output stays as it is" in caplog.text


def test_events_that_could_not_be_written_are_in_the_checkpoint(trainer, monkeypatch):
    def full(*arguments):
        raise OSError("No space left on device")

    killed = make(TFEventWriter, trainer)
    with monkeypatch.context() as patch:
        patch.setattr(tf.io, "TFRecordWriter", full)
        killed.process_event(tf.compat.v1.Event(step=3))
        state = encode(killed.state_dict(), "")
    resumed = make(TFEventWriter, trainer)
    resumed.load_state_dict(decode(json.loads(json.dumps(state))))
    resumed.after_train(trainer)
    (path,) = trainer.run_dir.glob("events.*")
    assert [event.step for event in EventFileLoader(str(path)).Load()] == [0, 3]
