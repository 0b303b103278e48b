"""What makes a checkpoint complete, and how damage shows."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys

import pytest

from tpk.checkpoint import checkpoint_directory
from tpk.checkpoint.checkpoint_directory import CheckpointDirectory
from tpk.checkpoint.files import checksum, describe_file, newest_complete, read_checkpoint, state_bytes
from tpk.errors import CheckpointError


def writes(text, suffixes=(".index", ".data-00000-of-00001")):
    """What writes "variables"."""

    def write(prefix):
        for suffix in suffixes:
            with open(prefix + suffix, "w") as file:
                file.write(text + suffix)

    return write


def names(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def directory(tmp_path):
    directory = CheckpointDirectory(tmp_path)
    for step in (1, 2):
        directory.write(step, writes(f"variables {step} " * 20), {"progress": {"global_step": step}})
    return directory


def test_a_checkpoint_is_what_was_written(tmp_path, directory):
    checkpoint = newest_complete(tmp_path)
    assert (checkpoint.step, checkpoint.name) == (2, "model-2")
    assert checkpoint.prefix == str(tmp_path / "model-2")
    assert checkpoint.state == {"progress": {"global_step": 2}}
    assert json.loads(checkpoint.state_path.read_text())["format"] == 1
    assert names(tmp_path) == [
        f"{kind}-{step}{suffix}"
        for kind, suffixes in (("model", [".data-00000-of-00001", ".index"]), ("state", [".json"]))
        for step in (1, 2)
        for suffix in suffixes
    ]


@pytest.mark.parametrize("file", ["state-2.json", "model-2.index", "model-2.data-00000-of-00001"])
def test_damage_is_found_and_the_checkpoint_before_is_used(tmp_path, directory, file, caplog):
    path = tmp_path / file
    whole = path.read_bytes()
    rng = random.Random(file)
    places = [rng.randrange(len(whole)) for _ in range(50)]
    flipped = [whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :] for at in places]
    cut = [whole[:at] for at in places]
    zeroed = [whole[:at] + bytes(len(whole) - at) for at in places]
    for content in [*flipped, *cut, *zeroed, b"", whole + b"x"]:
        path.write_bytes(content)
        caplog.clear()
        assert newest_complete(tmp_path).step == 1
        assert str(path) in caplog.text
    path.unlink()
    assert newest_complete(tmp_path).step == 1
    assert f"{path} is missing" in caplog.text


def test_variables_without_a_state_are_no_checkpoint(tmp_path, directory, caplog):
    directory.write(3, writes("weights only"), None)
    assert newest_complete(tmp_path).step == 2
    assert "state-3.json is missing" in caplog.text


def test_a_format_of_the_future_is_not_guessed_at(tmp_path, directory, monkeypatch):
    monkeypatch.setattr(checkpoint_directory, "FORMAT", 2)
    directory.write(3, writes("variables"), {})
    with pytest.raises(CheckpointError, match=r"has format 2.*reads format 1"):
        read_checkpoint(tmp_path, 3)
    assert newest_complete(tmp_path).step == 2


def forge(tmp_path, step=2, **changes):
    """Give a state another content, and the checksum of that."""
    path = tmp_path / f"state-{step}.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    content |= changes
    path.write_bytes(state_bytes({key: value for key, value in content.items() if value is not ...}))


FILE = {"size": 1, "checksum": "crc32:00000000"}
MALFORMED = {
    **{f"no {key}": {key: ...} for key in ("format", "name", "files", "state")},
    **{
        f"{key} is {value!r}": {key: value}
        for key in ("format", "name", "files", "state")
        for value in (None, 5, "x", [], [1])
    },
    "an unknown format of nobody": {"format": 7, "tpk": ...},
    "no files": {"files": {}},
    "no index": {"files": {"model-2.data-00000-of-00001": FILE}},
    "a file without facts": {"files": {"model-2.index": {}}},
    "a file whose facts are none": {"files": {"model-2.index": "x"}},
    "a size that is no number": {"files": {"model-2.index": {**FILE, "size": "1"}}},
    "a checksum that is none": {"files": {"model-2.index": {**FILE, "checksum": None}}},
    "an unknown kind of value": {"state": {"a": {"__tpk__": "strange"}}},
    "an unhashable kind of value": {"state": {"a": {"__tpk__": []}}},
    "an array without data": {"state": {"a": {"__tpk__": "ndarray", "dtype": "<f4", "shape": [3], "base64": ""}}},
    "an array of objects": {"state": {"a": {"__tpk__": "ndarray", "dtype": "O", "shape": [0], "base64": ""}}},
    "a key that is a list": {"state": {"__tpk__": "dict", "items": [[[], 1]]}},
}


@pytest.mark.parametrize("changes", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_state_with_a_right_checksum_is_passed_over(tmp_path, directory, changes, caplog):
    forge(tmp_path, **changes)
    assert newest_complete(tmp_path).step == 1
    assert f"skipping the checkpoint of step 2: {tmp_path / 'state-2.json'}" in caplog.text
    assert directory.write(2, writes("others"), {"new": True}) == "model-2"
    assert newest_complete(tmp_path).state == {"new": True}
    directory.remove("model-2")
    assert names(tmp_path) == names_of_step(1)


def names_of_step(step):
    return [f"model-{step}.data-00000-of-00001", f"model-{step}.index", f"state-{step}.json"]


@pytest.mark.parametrize(
    "body", [b"", b"x}", b"[]}", b'"a": ' + b"[" * 100_000, b'"a": "\xff"}', b'"a": ' + b"9" * 5000 + b"}"]
)
def test_what_is_no_json_but_has_a_right_checksum_is_passed_over(tmp_path, directory, body, caplog):
    (tmp_path / "state-2.json").write_bytes(b'{"checksum": "%s",\n' % checksum([body]).encode() + body)
    assert newest_complete(tmp_path).step == 1
    assert str(tmp_path / "state-2.json") in caplog.text


@pytest.fixture
def outside(tmp_path):
    """A directory that is nobody's business, with a checkpoint that is complete."""
    path = tmp_path.parent / f"{tmp_path.name}-outside"
    path.mkdir()
    CheckpointDirectory(path).write(2, writes("private"), {})
    (path / "notes.index").write_text("private")
    return path


@pytest.mark.parametrize(
    "name",
    [
        *("../{}/*", "../{}/model-2", "{}/model-2", "/{}/model-2", "model-2/../model-2", ".."),
        *("*", "model-*", "model-[0-9]", "model-2*"),
        *("", "model-1", "model-2.index", "model-2\n", "model-2\0", "\ud800-2"),
    ],
)
def test_what_a_state_names_outside_of_the_directory_is_neither_read_nor_removed(
    tmp_path, directory, outside, name, caplog
):
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    name = name.format(outside.name)
    files = {f"{name}{path.name.removeprefix('model-2')}": describe_file(path) for path in outside.glob("model-2.*")}
    forge(tmp_path, name=name, files=files)
    assert newest_complete(tmp_path).step == 1
    assert str(tmp_path / "state-2.json") in caplog.text
    directory.prepare()
    directory.remove("model-2")
    directory.write(2, writes("others"), {"new": True})
    directory.write(2, writes("yet others"), {"new": True})
    directory.remove("model-2.2")
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before
    assert names(tmp_path) == names_of_step(1)


@pytest.mark.parametrize(
    "file", ["../{}/notes.index", "../{}/*.index", "model-1.index", "model-2.index/../x", "model-2."]
)
def test_the_files_of_a_state_are_files_of_that_checkpoint(tmp_path, directory, outside, file):
    content = json.loads((tmp_path / "state-2.json").read_text())
    forge(tmp_path, files={**content["files"], file.format(outside.name): describe_file(outside / "notes.index")})
    with pytest.raises(CheckpointError, match=r"state-2\.json is not what tpk writes .* is not a file of model-2"):
        read_checkpoint(tmp_path, 2)
    assert newest_complete(tmp_path).step == 1


def test_nothing_is_none(tmp_path):
    assert newest_complete(tmp_path) is None
    assert newest_complete(tmp_path / "not there") is None


class Crash(BaseException):
    pass


def test_wherever_writing_breaks_off_what_was_there_is_complete(tmp_path, directory, monkeypatch):
    """Each call that changes the disk is the last one in turn."""
    (tmp_path / "again").mkdir()
    calls, last = 0, 0

    def breaking(original):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls > last:
                raise Crash
            return original(*arguments, **options)

        return call

    import os

    with monkeypatch.context() as patch:
        for name in ("replace", "fsync"):
            patch.setattr(os, name, breaking(getattr(os, name)))
        outcomes = []
        for last in range(30):
            calls = 0
            try:
                directory.write(2, writes(f"other {last} "), {"last": last})
                directory.point_to(["model-1", "model-2"])
            except Crash:
                outcomes.append(newest_complete(tmp_path).state)
            else:
                break
    assert 5 < len(outcomes) < 30
    assert outcomes[0] == {"progress": {"global_step": 2}}
    assert newest_complete(tmp_path).state == {"last": last}
    assert not list(tmp_path.glob(".writing*"))


def test_wherever_the_replacing_of_a_damaged_one_breaks_off_nothing_passes_for_complete_that_is_not(
    tmp_path, directory, monkeypatch
):
    import os

    (tmp_path / "model-2.index").write_text("damaged")
    found = []
    for last in range(30):
        left = last

        def breaking(original):
            def call(*arguments, **options):
                nonlocal left
                left -= 1
                if left < 0:
                    raise Crash
                return original(*arguments, **options)

            return call

        try:
            with monkeypatch.context() as patch:
                for name in ("replace", "fsync"):
                    patch.setattr(os, name, breaking(getattr(os, name)))
                directory.write(2, writes(f"other {last} "), {"last": last})
            break
        except Crash:
            found.append(newest_complete(tmp_path).state)
    before = {"progress": {"global_step": 1}}
    assert found[0] == before and len(found) > 4
    assert all(state in (before, {"last": number}) for number, state in enumerate(found))
    assert newest_complete(tmp_path).state == {"last": last}


def test_a_complete_checkpoint_is_never_overwritten_in_place(tmp_path, directory):
    assert directory.write(2, writes("variables 2 " * 20), {"new": True}) == "model-2"
    assert newest_complete(tmp_path).state == {"new": True}
    assert directory.write(2, writes("others"), {"newer": True}) == "model-2.2"
    assert newest_complete(tmp_path).prefix == str(tmp_path / "model-2.2")
    assert not list(tmp_path.glob("model-2.index"))
    assert directory.names() == ["model-1", "model-2.2"]
    assert directory.write(2, writes("again others"), {"newest": True}) == "model-2"
    assert directory.names() == ["model-1", "model-2"]
    assert newest_complete(tmp_path).state == {"newest": True}


def test_a_checkpoint_that_was_torn_is_replaced(tmp_path, directory):
    (tmp_path / "state-2.json").write_text("torn")
    assert directory.write(2, writes("others"), {"new": True}) == "model-2"
    assert newest_complete(tmp_path).state == {"new": True}


@pytest.mark.parametrize("file", ["model-2.index", "model-2.data-00000-of-00001"])
@pytest.mark.parametrize("text", ["variables 2 " * 20, "others"], ids=["the same", "others"])
@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"x" * 269), lambda path: path.unlink()])
def test_a_checkpoint_whose_files_were_damaged_is_replaced(tmp_path, directory, file, text, damage):
    """Whatever its state, which is intact, says of them."""
    damage(tmp_path / file)
    assert directory.write(2, writes(text), {"new": True}) == "model-2"
    assert newest_complete(tmp_path).state == {"new": True}
    assert (tmp_path / "model-2.index").read_text() == text + ".index"
    assert names(tmp_path) == [
        "model-1.data-00000-of-00001",
        "model-1.index",
        "model-2.data-00000-of-00001",
        "model-2.index",
        "state-1.json",
        "state-2.json",
    ]


def test_of_one_that_was_beside_another_and_was_damaged_nothing_is_left(tmp_path, directory):
    assert directory.write(2, writes("others"), {}) == "model-2.2"
    (tmp_path / "model-2.2.index").write_text("damaged")
    assert directory.write(2, writes("others"), {"new": True}) == "model-2"
    assert newest_complete(tmp_path).state == {"new": True}
    assert directory.names() == ["model-1", "model-2"]


def test_removal_begins_with_the_state(tmp_path, directory, monkeypatch):
    order = []
    unlink = type(tmp_path).unlink
    monkeypatch.setattr(type(tmp_path), "unlink", lambda path, **options: [order.append(path.name), unlink(path)])
    directory.remove("model-2")
    assert order == ["state-2.json", "model-2.index", "model-2.data-00000-of-00001"]
    assert newest_complete(tmp_path).step == 1
    directory.remove("model-2")


def test_a_failure_leaves_nothing_and_names_path_and_space(tmp_path, directory):
    def full(prefix):
        writes("half", [".data-00000-of-00001.tempstate123"])(prefix)
        raise OSError(28, "No space left on device")

    before = names(tmp_path)
    with pytest.raises(
        CheckpointError, match=rf"step 3 .* {tmp_path}: .*No space left on device\. Free disk space: \d+.*MB"
    ):
        directory.write(3, full, {})
    assert names(tmp_path) == before
    with pytest.raises(CheckpointError, match="no variables were written"):
        directory.write(3, lambda prefix: None, {})


def test_what_a_killed_process_was_writing_is_removed(tmp_path, directory, caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    before = names(tmp_path)
    (tmp_path / ".writing-model-3.index").touch()
    (tmp_path / ".writing-min-cost-3.index").touch()
    # Of one that it was removing, the index goes before the rest.
    (tmp_path / "model-0.data-00000-of-00001").touch()
    (tmp_path / "model-1.2.data-00000-of-00001").touch()
    (tmp_path / "model-of-another-kind.data-00000-of-00001").touch()
    CheckpointDirectory(tmp_path).prepare()
    others = [".writing-min-cost-3.index", "model-of-another-kind.data-00000-of-00001"]
    assert names(tmp_path) == sorted([*before, *others])
    assert "was not finished" in caplog.text


def test_nothing_is_written_through_a_link_wherever_one_was_put(tmp_path, directory):
    victim = tmp_path.parent / f"{tmp_path.name}-victim"
    victim.write_text("private")
    beside = [".writing-model-3.state", ".writing-model-pointer"]
    for name in [*beside, "state-3.json", "model-3.index", "model-3.data-00000-of-00001", "checkpoint"]:
        (tmp_path / name).symlink_to(victim)
    assert directory.write(3, writes("variables"), {"new": True}) == "model-3"
    directory.point_to(["model-3"])
    assert victim.read_text() == "private"
    assert newest_complete(tmp_path).state == {"new": True}
    assert not any(path.is_symlink() for path in tmp_path.iterdir())


def test_a_place_that_cannot_be_a_directory_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot be written to"):
        CheckpointDirectory(tmp_path / "file" / "below").prepare()


def test_reading_needs_no_tensorflow():
    code = (
        "import sys, types; sys.modules['tensorflow'] = None; import tpk;"
        "package = types.ModuleType('tpk.session'); package.__path__ = [tpk.__path__[0] + '/session'];"
        "sys.modules['tpk.session'] = package;"
        "import tpk.checkpoint.files, tpk.checkpoint.checkpoint_directory"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=280)
