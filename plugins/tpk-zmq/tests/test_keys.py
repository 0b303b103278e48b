from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from tpk_zmq.keys import curve_pair, key_file, user_key

from tpk.errors import ConfigError


def test_the_users_key_is_created_once_and_is_private():
    key = user_key("X")
    assert len(key) >= 32
    assert user_key("X") == key
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    assert [path.name for path in key_file().parent.iterdir()] == [key_file().name]


def test_it_is_in_the_home_directory_by_default(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert key_file() == tmp_path / ".config" / "tpk" / "zmq.key"


def test_concurrent_users_get_the_same_key(threads):
    barrier = threading.Barrier(4)

    def get():
        barrier.wait(60)
        return user_key("X")

    assert len({each.result() for each in [threads.submit(get) for _ in range(4)]}) == 1


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
@pytest.mark.parametrize("mode", [0o644, 0o620, 0o606])
def test_a_key_that_others_can_read_or_modify_is_an_error(mode):
    user_key("X")
    key_file().chmod(mode)
    with pytest.raises(ConfigError, match=r"not a key that only you can access. Remove it"):
        user_key("X")


def test_a_file_without_a_key_is_an_error():
    user_key("X")
    key_file().write_text("short\n")
    with pytest.raises(ConfigError, match="not a key that only you can access"):
        user_key("X")


def test_if_the_file_cannot_be_created_a_key_is_required(monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null/config")
    with pytest.raises(
        ConfigError, match=r"X cannot read or create the user's key: .*/dev/null/config.*Pass the same key="
    ):
        user_key("X")


def test_if_the_home_directory_is_unknown_a_key_is_required(monkeypatch):
    def nowhere(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "expanduser", nowhere)
    with pytest.raises(ConfigError, match=r"cannot read or create .* home directory.. Pass the same key="):
        user_key("X")


def test_the_key_pairs_of_both_sides_and_of_two_keys_differ():
    pairs = [curve_pair(key, side) for key in (b"a", b"b") for side in ("server", "client")]
    assert len({part for pair in pairs for part in pair}) == 8
    assert curve_pair(b"a", "server") == pairs[0]
