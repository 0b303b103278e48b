from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.cluster.spec import Cluster
from tpk.errors import ConfigError, TrainerStateError
from tpk.strategies.collective.strategy import CollectiveStrategy, check_communication

PAIR = Cluster(workers=["127.0.0.1:2222", "127.0.0.1:2223"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"communication": "pigeon"}, "communication must be one of 'auto', 'ring', 'nccl', .*, not 'pigeon'"),
        ({"communication": "nccl"}, "'nccl' needs GPUs, but the first device is .*Use 'ring'"),
        (
            {"communication": "shared_memory", "compression": "fp16"},
            "'shared_memory' and compression='fp16' exclude each other: .* Leave one of them out",
        ),
        ({"compression": "zip"}, "compression must be one of None, 'fp16', 'bf16', not 'zip'"),
        ({"timeouts": {"heartbeat": 0}}, "heartbeat=0.*: expected a positive number"),
        ({"timeouts": {"patience": 1}}, "expected a tpk.Timeouts, or a mapping with any of start, heartbeat"),
        ({"cluster": Cluster(workers=PAIR.workers, ps=["127.0.0.1:1"], job="ps")}, "has no parameter servers"),
    ],
)
def test_invalid_options_are_an_error(options, message):
    with pytest.raises(ConfigError, match=message):
        CollectiveStrategy(**{"cluster": PAIR, **options})


def test_nccl_between_processes_on_a_gpu_that_is_split_is_an_error(pretend_gpus):
    pretend_gpus(2, gpu0=[1024, 1024])
    with pytest.raises(ConfigError, match=r"'/gpu:0' is only a part of a physical GPU.*Use 'ring'"):
        CollectiveStrategy([0], cluster=PAIR, communication="nccl")
    config = CollectiveStrategy([2], cluster=PAIR, communication="nccl").server_config(tf.compat.v1.ConfigProto())
    assert [list(each.memory_limit_mb) for each in config.gpu_options.experimental.virtual_devices] == [
        [1024, 1024],
        [],
    ]


def test_shared_memory_is_none_of_a_gpu():
    with pytest.raises(ConfigError, match=r"'shared_memory' needs CPUs, but the first device is '/gpu:0'\. Use 'auto'"):
        check_communication("shared_memory", "/gpu:0")


def test_methods_that_need_the_others_are_an_error_before_join():
    strategy = CollectiveStrategy(cluster=PAIR)
    with pytest.raises(TrainerStateError, match=r"call join\(\) first"):
        _ = strategy.heartbeat
    with tf.Graph().as_default(), pytest.raises(TrainerStateError, match=r"call join\(\) first"):
        strategy.reduce_over_processes([tf.ones([2])])
