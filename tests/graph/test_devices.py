from __future__ import annotations

import pytest
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph import devices as module
from tpk.graph.devices import (
    add_logical_devices,
    is_gpu,
    parts_of_one_gpu,
    physical_of_logical_gpus,
    resolve_devices,
)

v1 = tf.compat.v1


@pytest.fixture
def gpus(pretend_gpus):
    """Let the machine have so many GPUs."""
    pretend_gpus(0)
    return pretend_gpus


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
def test_invalid_devices_are_an_error(gpus, devices):
    with pytest.raises(ConfigError, match=r"devices=.*: expected a positive count, indices, or device strings"):
        resolve_devices(devices)


@pytest.mark.parametrize("devices", [[], [1, 1], ["/cpu:0", "/device:CPU:0"], [0, "/cpu:0"]])
def test_each_device_holds_one_tower(gpus, devices):
    with pytest.raises(ConfigError, match="expected at least one device, and each only once"):
        resolve_devices(devices)


@pytest.mark.parametrize("name", ["gpu0", "2", "/cpu", "/tpu:0", "/gpu:*", ""])
def test_an_invalid_device_string_is_an_error(gpus, name):
    with pytest.raises(ConfigError, match=r"is not a device; expected a string such as '/gpu:0'"):
        resolve_devices([name])


def test_an_index_without_a_device_is_an_error(gpus):
    with pytest.raises(ConfigError, match="'/cpu:-1' is not a device"):
        resolve_devices([-1])


@pytest.mark.parametrize("devices", [3, [0, 2], "/gpu:2", "/device:GPU:7"])
def test_more_gpus_than_there_are_is_an_error_that_lists_them(gpus, devices):
    gpus(2)
    with pytest.raises(ConfigError, match=r"no device '.*'\. GPUs: /gpu:0, /gpu:1\. CPU"):
        resolve_devices(devices)


def test_a_gpu_on_a_machine_without_any_is_an_error_that_says_so(gpus):
    with pytest.raises(ConfigError, match=r"no device '/gpu:0'\. GPUs: none\."):
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
    adapted = add_logical_devices(config, devices)
    assert adapted.device_count["CPU"] == after
    assert adapted.intra_op_parallelism_threads == 1
    assert dict(config.device_count) == ({"CPU": before} if before else {}), "the user's own config changed"


def test_a_gpu_that_is_split_counts_as_several(gpus):
    gpus(3, gpu1=[1024, 2048])
    assert resolve_devices(None) == ["/gpu:0", "/gpu:1", "/gpu:2", "/gpu:3"]
    assert physical_of_logical_gpus() == [0, 1, 1, 2]
    assert parts_of_one_gpu(["/gpu:0", "/device:GPU:1", "/cpu:1", "/gpu:2", "/gpu:3"]) == ["/device:GPU:1", "/gpu:2"]
    assert parts_of_one_gpu(["/job:worker/task:1/gpu:1", "elsewhere", "/gpu:7"]) == []


def test_the_error_of_a_gpu_that_does_not_exist_says_how_to_split_one(gpus):
    gpus(1, gpu0=[1024, 1024])
    with pytest.raises(ConfigError, match=r"GPUs: /gpu:0, /gpu:1\..*tf\.config\.set_logical_device_configuration\("):
        resolve_devices(3)


def virtual_devices(config):
    return [list(each.memory_limit_mb) for each in config.gpu_options.experimental.virtual_devices]


def test_the_session_gets_the_gpus_as_they_are_split(gpus):
    gpus(3, gpu1=[1024, 2048])
    config = v1.ConfigProto()
    config.gpu_options.allow_growth = True
    adapted = add_logical_devices(config, ["/gpu:0"])
    assert virtual_devices(adapted) == [[], [1024, 2048], []]
    assert adapted.gpu_options.allow_growth
    assert virtual_devices(config) == []
    assert virtual_devices(add_logical_devices(adapted, [])) == [[], [1024, 2048], []]


def test_the_session_sees_only_visible_gpus_and_keeps_the_users_options(gpus):
    gpus(3, gpu1=[1024, 2048])
    config = v1.ConfigProto()
    config.gpu_options.visible_device_list = "2,1"
    assert virtual_devices(add_logical_devices(config, [])) == [[], [1024, 2048]]
    config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[7])
    assert virtual_devices(add_logical_devices(config, [])) == [[7]]


def test_gpus_that_are_whole_stay_so(gpus):
    gpus(2)
    assert virtual_devices(add_logical_devices(v1.ConfigProto(), ["/gpu:1"])) == []


@pytest.mark.parametrize("device", ["/gpu:0", "/device:GPU:1", "/job:w/task:0/device:GPU:0"])
def test_is_gpu(device):
    assert is_gpu(device)
    assert not is_gpu(device.lower().replace("gpu", "cpu"))
    assert not is_gpu("elsewhere")


@pytest.fixture
def told(gpus, caplog):
    """Collect the warnings of a process that has not warned yet."""
    module._warn_of_cpus.cache_clear()
    yield lambda: [record.getMessage() for record in caplog.records if record.name == module.__name__]
    module._warn_of_cpus.cache_clear()


@pytest.mark.parametrize(
    ("devices", "places"),
    [(None, "one logical CPU device"), (2, "2 logical CPU devices"), ([0, 1], "2 logical CPU devices")],
)
def test_missing_gpus_are_a_single_warning(told, devices, places):
    resolve_devices(devices)
    resolve_devices(devices)
    (message,) = told()
    assert message.startswith(f"TensorFlow sees no GPU, so it runs on {places}")
    assert "`tpk doctor` says why" in message
    assert "devices=['/cpu:0'" in message


@pytest.mark.parametrize(("count", "devices"), [(0, "/cpu:0"), (0, ["/cpu:0", "/cpu:1"]), (2, None), (2, 2)])
def test_devices_that_are_named_and_gpus_are_no_reason_to_warn(gpus, told, count, devices):
    gpus(count)
    resolve_devices(devices)
    assert told() == []
