from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from tpk.errors import ConfigError, PeerError
from tpk.strategies import ProcessGroup
from tpk.strategies.processes.plain_data import pack


class WithAnother(ProcessGroup):
    """The process group of rank 0 with one other process, which sends certain bytes."""

    def __init__(self, theirs):
        super().__init__(0, 2)
        self._theirs = theirs
        self.sent = []

    def gather_bytes(self, data):
        self.sent.append(data)
        return [data, self._theirs]


def test_each_gets_the_values_of_all():
    mine = {"counts": np.arange(3), "name": "a"}
    own, theirs = WithAnother(pack(what="counts", value=(1, b"x"))).gather_object("counts", mine)
    np.testing.assert_equal(own, mine)
    assert theirs == (1, b"x")


class Bomb:
    """Whoever unpickles it makes a directory."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize(
    "theirs", [pickle.dumps(("counts", Bomb())), b"", b"garbage", pack(value=1), pack(what="x")[:-3]]
)
def test_what_another_sends_runs_no_code(theirs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PeerError, match="what rank 1 has sent is not from this version of tpk"):
        WithAnother(theirs).gather_object("counts", 1)
    assert not list(tmp_path.iterdir())


def test_who_has_a_value_that_cannot_be_told_says_so_to_the_others():
    ours = WithAnother(pack(what="counts", value=1))
    with pytest.raises(
        ConfigError, match=r"rank 0 cannot tell the others 'counts': value\['x'\] is a .*object"
    ) as failed:
        ours.gather_object("counts", {"x": object()})
    with pytest.raises(PeerError, match=r"rank 1 has failed: ConfigError\(.*rank 0 cannot tell") as told:
        WithAnother(ours.sent[0]).gather_object("counts", 1)
    assert repr(failed.value) in str(told.value)


def test_processes_at_different_points_are_an_error():
    with pytest.raises(PeerError, match="rank 0 is at 'counts', rank 1 at 'sums'"):
        WithAnother(pack(what="sums", value=1)).gather_object("counts", 1)
