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
    why_no_gpu,
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
    with pytest.raises(ConfigError, match=r"exist: /gpu:0, /gpu:1\..*tf\.config\.set_logical_device_configuration\("):
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


def test_the_session_gets_no_more_gpus_than_it_may_see_and_what_the_user_says_of_them(gpus):
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
    """The warnings of a process in which there was none yet."""
    module._warn_of_cpus.cache_clear()
    yield lambda: [record.getMessage() for record in caplog.records if record.name == module.__name__]
    module._warn_of_cpus.cache_clear()


@pytest.mark.parametrize(
    ("devices", "places"),
    [(None, "a logical CPU device"), (2, "2 logical CPU devices"), ([0, 1], "2 logical CPU devices")],
)
def test_no_gpu_where_some_may_be_meant_is_a_warning_once(told, devices, places):
    resolve_devices(devices)
    resolve_devices(devices)
    (message,) = told()
    assert message.startswith(f"TensorFlow sees no GPU, so it runs on {places}")
    assert why_no_gpu() in message
    assert "devices=['/cpu:0'" in message


@pytest.mark.parametrize(("count", "devices"), [(0, "/cpu:0"), (0, ["/cpu:0", "/cpu:1"]), (2, None), (2, 2)])
def test_devices_that_are_named_and_gpus_are_no_reason_to_warn(gpus, told, count, devices):
    gpus(count)
    resolve_devices(devices)
    assert told() == []


class TestWhyThereIsNoGpu:
    @pytest.fixture(autouse=True)
    def host(self, monkeypatch):
        """A host with TensorFlow for GPUs, and a GPU."""
        monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: True)
        build = {"cuda_version": "12.5", "cudnn_version": "9"}
        monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: build)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(module.glob, "glob", lambda pattern: ["/dev/nvidia0"])
        self.build = build

    def test_tensorflow_is_for_cpus(self, monkeypatch):
        monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: False)
        assert "built without CUDA" in why_no_gpu()
        assert "tensorflow[and-cuda]" in why_no_gpu()

    def test_tensorflow_is_for_gpus_of_amd(self, monkeypatch):
        monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: False)
        self.build["is_rocm_build"] = True
        assert "finds no AMD GPU" in why_no_gpu()

    @pytest.mark.parametrize("value", ["", "-1"])
    def test_they_are_hidden(self, monkeypatch, value):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert why_no_gpu() == f"CUDA_VISIBLE_DEVICES={value!r} hides all GPUs. Unset it."

    def test_the_host_has_none(self, monkeypatch):
        monkeypatch.setattr(module.glob, "glob", lambda pattern: [])
        monkeypatch.setattr(module.os.path, "exists", lambda path: False)
        assert "no /dev/nvidia*" in why_no_gpu()

    def test_its_driver_or_libraries_are_missing(self):
        assert "driver or the libraries of CUDA 12.5 and cuDNN 9" in why_no_gpu()
