"""What the tests do with `TPK_TEST_GPU`, as far as that can be told without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

TESTS = Path(__file__).parent

ONE_GPU = """
import tensorflow as tf

gpu, split = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU"), {}
tf.config.list_physical_devices = lambda kind=None: [gpu] if kind == "GPU" else []
tf.config.set_logical_device_configuration = split.__setitem__
tf.config.get_logical_device_configuration = split.get
"""

SEVERAL_DEVICES = """
import os

import pytest

import tpk

WHOLE = {
    None: ["/gpu:0"],
    1: ["/gpu:0"],
    2: ["/cpu:0", "/cpu:1"],
    (0, "/cpu:0"): ["/gpu:0", "/cpu:0"],
    (1, "/cpu:0"): ["/cpu:1", "/cpu:0"],
}
SPLIT = {None: ["/gpu:0", "/gpu:1"], 1: ["/gpu:0"], 2: ["/gpu:0", "/gpu:1"], 3: ["/cpu:0", "/cpu:1", "/cpu:2"]}
EXPECTED = SPLIT if os.environ["TPK_TEST_GPU"] == "2" else WHOLE


@pytest.mark.parametrize("devices", EXPECTED)
def test_what_the_gpus_do_not_suffice_for_takes_cpus(devices):
    assert tpk.ReplicatedStrategy(devices).devices == EXPECTED[devices]


def test_more_gpus_than_there_are_remain_an_error_by_name():
    with pytest.raises(tpk.ConfigError, match="no device '/gpu:2'"):
        tpk.ReplicatedStrategy(["/gpu:2"])


def test_pretended_gpus_are_not_meddled_with(pretend_gpus):
    pretend_gpus(1)
    with pytest.raises(tpk.ConfigError, match="no device '/gpu:1'"):
        tpk.ReplicatedStrategy(2)
"""


def run_pytest(tmp_path, count, *options):
    (tmp_path / "one_gpu.py").write_text(ONE_GPU)
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_several_devices.py").write_text(SEVERAL_DEVICES)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "TPK_TEST_GPU": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(tmp_path)]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)


def test_no_gpu_is_an_error_that_says_why(tmp_path):
    ended = run_pytest(tmp_path, "1")
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "TPK_TEST_GPU=1: TensorFlow sees no GPU" in ended.stderr


@pytest.mark.parametrize("count", ["1", "2"])
def test_one_gpu_is_enough_for_trainings_on_several_devices(tmp_path, count):
    ended = run_pytest(tmp_path, count, "-p", "one_gpu")
    assert ended.returncode == pytest.ExitCode.OK, ended.stdout
