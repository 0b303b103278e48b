"""What can be said about the strategy without a Horovod."""

from __future__ import annotations

import os
import sys

import pytest
from tpk_horovod.bootstrap import environment, placement
from tpk_horovod.strategy import HorovodStrategy

import tpk
from tpk.cluster.spec import Cluster


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "fp8"},
        {"op": "sum"},
        {"fusion_bytes": -1},
        {"fusion_bytes": 1.5},
    ],
)
def test_wrong_options_are_errors_that_name_them(options):
    (name,) = options
    with pytest.raises(tpk.ConfigError, match=f"horovod: {name}="):
        HorovodStrategy(**options)


def test_a_timeout_that_cannot_be_is_an_error():
    with pytest.raises(tpk.ConfigError, match=r"Timeouts\(barrier=0\): expected a positive number of seconds"):
        HorovodStrategy(timeouts={"barrier": 0})


def test_without_horovod_the_error_has_the_command_that_builds_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", None)
    with pytest.raises(tpk.PluginImportError, match=r"python -m tpk_horovod\.build"):
        HorovodStrategy().join()


def test_before_it_joins_a_process_is_alone():
    strategy = HorovodStrategy(devices=2)
    assert (strategy.rank, strategy.world_size, strategy.local_rank, strategy.local_size) == (0, 1, 0, 1)
    assert strategy.process_group.gather_object("numbers", 3) == [3]
    strategy.leave()


def test_places_on_several_hosts():
    workers = ["127.0.0.1:1", "127.0.0.2:1", "127.0.0.1:2", "127.0.0.3:1"]
    placed = [placement(Cluster(workers=workers, index=rank)) for rank in range(4)]
    kinds = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    assert [tuple(int(settings[f"HOROVOD_{kind}"]) for kind in kinds) for settings in placed] == [
        (0, 4, 0, 2, 0, 3),
        (1, 4, 0, 1, 1, 3),
        (2, 4, 1, 2, 0, 1),
        (3, 4, 0, 1, 2, 3),
    ]
    assert {settings["HOROVOD_GLOO_RENDEZVOUS_ADDR"] for settings in placed} == {"127.0.0.1"}
    assert {settings["HOROVOD_GLOO_RENDEZVOUS_PORT"] for settings in placed} == {"1"}


def test_the_environment_of_the_user_comes_first_and_is_as_it_was_afterwards(monkeypatch):
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "7")
    monkeypatch.delenv("HOROVOD_HOSTNAME", raising=False)
    with environment({"HOROVOD_FUSION_THRESHOLD": "8", "HOROVOD_HOSTNAME": "here"}):
        assert (os.environ["HOROVOD_FUSION_THRESHOLD"], os.environ["HOROVOD_HOSTNAME"]) == ("7", "here")
    assert os.environ["HOROVOD_FUSION_THRESHOLD"] == "7"
    assert "HOROVOD_HOSTNAME" not in os.environ
