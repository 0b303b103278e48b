from __future__ import annotations

import pytest
import tensorflow as tf
from tpk_distributed import Cluster
from tpk_distributed.collective.collective_strategy import CollectiveStrategy, check_communication

from tpk.errors import ConfigError, TrainerStateError

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
        ({"timeouts": {"patience": 1}}, "expected a Timeouts, or a mapping with any of start, heartbeat"),
        ({"cluster": Cluster(workers=PAIR.workers, ps=["127.0.0.1:1"], job="ps")}, "has no parameter servers"),
    ],
)
def test_invalid_options_are_an_error(options, message):
    with pytest.raises(ConfigError, match=message):
        CollectiveStrategy(**{"cluster": PAIR, **options})


def test_nccl_between_processes_on_a_gpu_that_is_split_is_an_error(monkeypatch):
    gpus = [tf.config.PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in (0, 1)]
    parts = {gpus[0]: [tf.config.LogicalDeviceConfiguration(memory_limit=1024)] * 2}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: gpus if kind == "GPU" else [])
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", parts.get)
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
