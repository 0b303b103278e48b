"""Options of the strategy, tested without Horovod."""

from __future__ import annotations

import os
import sys

import pytest
import tensorflow as tf
from tpk_distributed import Cluster
from tpk_horovod.bootstrap import environment, placement
from tpk_horovod.ops import reduce_over_processes
from tpk_horovod.strategy import HorovodStrategy
from tpk_horovod.trainer import HorovodTrainer

import tpk


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "fp8"},
        {"fusion_bytes": -1},
        {"fusion_bytes": 1.5},
    ],
)
def test_invalid_options_are_errors_that_name_them(options):
    (name,) = options
    with pytest.raises(tpk.ConfigError, match=f"horovod: {name}="):
        HorovodStrategy(**options)


def test_sums_and_adasum_are_mutually_exclusive():
    with pytest.raises(tpk.ConfigError, match="average=False and adasum=True are mutually exclusive"):
        HorovodStrategy(average=False, adasum=True)


def test_the_description_has_the_options_for_gradients():
    assert HorovodStrategy(devices=["/cpu:0"], average=False).describe() == {
        "average": False,
        "sync_variables": "broadcast",
        "shard_data": True,
        "compression": None,
        "adasum": False,
    }


@pytest.mark.parametrize("make", [HorovodStrategy, HorovodTrainer])
def test_spellings_of_other_systems(make):
    made = make(gpus=["/cpu:0", "/cpu:1"])
    assert getattr(made, "strategy", made).num_replicas == 2
    with pytest.raises(TypeError, match=r"op=: write average=False for sums, and adasum=True"):
        make(op="sum")


class FakeHorovod:
    """A fake Horovod for building reductions, with two processes that have the same values."""

    Average, Sum, Adasum = "average", "sum", "adasum"

    class Compression:
        class none:
            @staticmethod
            def compress(tensor):
                return tensor, None

            @staticmethod
            def decompress(tensor, how):
                return tensor

    @staticmethod
    def nccl_built():
        return False

    @staticmethod
    def size():
        return 2

    @staticmethod
    def size_op():
        return tf.constant(2)

    @staticmethod
    def allreduce(tensor, name, op, compression):
        return {"average": tensor, "sum": tensor * 2, "adasum": tensor}[op]

    @staticmethod
    def allgather(tensor, name):
        return tf.concat([tensor, tensor], 0)


@pytest.mark.parametrize(("op", "dense", "row"), [("average", 3.0, 5.0), ("sum", 6.0, 10.0)])
def test_dense_and_sparse_gradients_are_averaged_or_summed(op, dense, row):
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        slices = tf.IndexedSlices(tf.constant([[5.0]]), tf.constant([1]), tf.constant([3, 1]))
        reduced = reduce_over_processes(FakeHorovod, [tf.constant(3.0), slices], FakeHorovod.Compression.none, op)
        assert sess.run(reduced[0]) == dense
        assert sess.run(tf.convert_to_tensor(reduced[1])).tolist() == [[0.0], [row], [0.0]]


def test_an_invalid_timeout_is_an_error():
    with pytest.raises(tpk.ConfigError, match=r"Timeouts\(barrier=0\): expected a positive number of seconds"):
        HorovodStrategy(timeouts={"barrier": 0})


def test_the_error_about_a_missing_horovod_says_how_to_build_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", None)
    with pytest.raises(tpk.PluginImportError, match=r"python -m tpk_horovod\.build"):
        HorovodStrategy().join()


def test_before_join_a_process_is_alone():
    strategy = HorovodStrategy(devices=2)
    assert (strategy.rank, strategy.world_size, strategy.local_rank, strategy.local_size) == (0, 1, 0, 1)
    assert strategy.process_group.gather_object("numbers", 3) == [3]
    strategy.leave()


def test_placement_on_several_hosts():
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


def test_the_users_environment_takes_precedence_and_is_restored(monkeypatch):
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "7")
    monkeypatch.delenv("HOROVOD_HOSTNAME", raising=False)
    with environment({"HOROVOD_FUSION_THRESHOLD": "8", "HOROVOD_HOSTNAME": "here"}):
        assert (os.environ["HOROVOD_FUSION_THRESHOLD"], os.environ["HOROVOD_HOSTNAME"]) == ("7", "here")
    assert os.environ["HOROVOD_FUSION_THRESHOLD"] == "7"
    assert "HOROVOD_HOSTNAME" not in os.environ
