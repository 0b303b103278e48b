from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from tpk_zmq.keys import curve_pair, key_file, user_key

from tpk.errors import ConfigError


def test_the_key_of_the_user_is_made_once_and_nobody_else_can_read_it():
    key = user_key("X")
    assert len(key) >= 32
    assert user_key("X") == key
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    assert [path.name for path in key_file().parent.iterdir()] == [key_file().name]


def test_it_is_in_the_home_unless_the_environment_says_otherwise(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert key_file() == tmp_path / ".config" / "tpk" / "zmq.key"


def test_processes_that_need_it_at_the_same_time_get_the_same(threads):
    barrier = threading.Barrier(4)

    def get():
        barrier.wait(60)
        return user_key("X")

    assert len({each.result() for each in [threads.submit(get) for _ in range(4)]}) == 1


@pytest.mark.skipif(os.name != "posix", reason="asks for POSIX permissions")
@pytest.mark.parametrize("mode", [0o644, 0o620, 0o606])
def test_a_key_that_others_can_read_or_change_is_not_used(mode):
    user_key("X")
    key_file().chmod(mode)
    with pytest.raises(ConfigError, match=r"not a key that only you can access. Remove it"):
        user_key("X")


def test_a_file_without_a_key_is_an_error():
    user_key("X")
    key_file().write_text("short\n")
    with pytest.raises(ConfigError, match="not a key that only you can access"):
        user_key("X")


def test_where_no_file_can_be_made_a_key_must_be_given(monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null/config")
    with pytest.raises(
        ConfigError, match=r"X cannot read or create the user's key: .*/dev/null/config.*Pass the same key="
    ):
        user_key("X")


def test_where_nobody_knows_the_home_a_key_must_be_given(monkeypatch):
    def nowhere(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "expanduser", nowhere)
    with pytest.raises(ConfigError, match=r"cannot read or create .* home directory.. Pass the same key="):
        user_key("X")


def test_the_pairs_of_the_two_sides_and_of_two_keys_are_different():
    pairs = [curve_pair(key, side) for key in (b"a", b"b") for side in ("server", "client")]
    assert len({part for pair in pairs for part in pair}) == 8
    assert curve_pair(b"a", "server") == pairs[0]
