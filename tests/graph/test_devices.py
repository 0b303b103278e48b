from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.devices import add_cpu_devices, is_gpu, resolve_devices

v1 = tf.compat.v1


@pytest.fixture
def gpus(monkeypatch):
    """Let the machine have so many GPUs."""

    def pretend(count):
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a GPU"] * count)

    pretend(0)
    return pretend


@pytest.mark.parametrize(
    ("count", "devices", "expected"),
    [
        (0, None, ["/cpu:0"]),
        (0, 3, ["/cpu:0", "/cpu:1", "/cpu:2"]),
        (0, [2, 0], ["/cpu:2", "/cpu:0"]),
        (0, "/cpu:1", ["/cpu:1"]),
        (3, None, ["/gpu:0", "/gpu:1", "/gpu:2"]),
        (3, 2, ["/gpu:0", "/gpu:1"]),
        (3, (2, 1), ["/gpu:2", "/gpu:1"]),
        (3, ["/device:GPU:1", "/cpu:5"], ["/device:GPU:1", "/cpu:5"]),
        (3, [0, "/cpu:0"], ["/gpu:0", "/cpu:0"]),
        (0, "/job:worker/task:1/gpu:0", ["/job:worker/task:1/gpu:0"]),
    ],
)
def test_counts_indices_and_strings_become_strings(gpus, count, devices, expected):
    gpus(count)
    assert resolve_devices(devices) == expected


@pytest.mark.parametrize("devices", [0, -1, True, 1.5])
def test_what_is_neither_count_nor_indices_nor_strings_is_an_error(gpus, devices):
    with pytest.raises(ConfigError, match=r"devices=.*: expected a positive count, indices, or device strings"):
        resolve_devices(devices)


@pytest.mark.parametrize("devices", [[], [1, 1], ["/cpu:0", "/device:CPU:0"], [0, "/cpu:0"]])
def test_each_device_holds_one_tower(gpus, devices):
    with pytest.raises(ConfigError, match="expected at least one device, and each only once"):
        resolve_devices(devices)


@pytest.mark.parametrize("name", ["gpu0", "2", "/cpu", "/tpu:0", "/gpu:*", ""])
def test_a_string_that_is_no_device_is_an_error(gpus, name):
    with pytest.raises(ConfigError, match=r"is no device; expected a string such as '/gpu:0'"):
        resolve_devices([name])


def test_an_index_that_cannot_be_is_an_error(gpus):
    with pytest.raises(ConfigError, match="'/cpu:-1' is no device"):
        resolve_devices([-1])


@pytest.mark.parametrize("devices", [3, [0, 2], "/gpu:2", "/device:GPU:7"])
def test_more_gpus_than_there_are_is_an_error_that_lists_them(gpus, devices):
    gpus(2)
    with pytest.raises(ConfigError, match=r"there is no device '.*'\. GPUs that exist: /gpu:0, /gpu:1\. CPU"):
        resolve_devices(devices)


def test_a_gpu_on_a_machine_without_any_is_an_error_that_says_so(gpus):
    with pytest.raises(ConfigError, match=r"no device '/gpu:0'\. GPUs that exist: none\."):
        resolve_devices("/gpu:0")


@pytest.mark.parametrize(
    ("before", "devices", "after"),
    [
        (0, ["/cpu:0", "/cpu:3"], 4),
        (8, ["/cpu:1"], 8),
        (0, ["/gpu:0", "/gpu:1"], 1),
        (0, [], 1),
        (0, ["/device:CPU:1", "/gpu:5"], 2),
    ],
)
def test_the_session_gets_as_many_cpu_devices_as_are_needed(before, devices, after):
    config = v1.ConfigProto(intra_op_parallelism_threads=1)
    if before:
        config.device_count["CPU"] = before
    adapted = add_cpu_devices(config, devices)
    assert adapted.device_count["CPU"] == after
    assert adapted.intra_op_parallelism_threads == 1
    assert dict(config.device_count) == ({"CPU": before} if before else {}), "the user's own config changed"


@pytest.mark.parametrize("device", ["/gpu:0", "/device:GPU:1", "/job:w/task:0/device:GPU:0"])
def test_is_gpu(device):
    assert is_gpu(device)
    assert not is_gpu(device.lower().replace("gpu", "cpu"))
    assert not is_gpu("elsewhere")
