from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata

import pytest
import tensorflow as tf

from tpk.cli import doctor, doctor_probe
from tpk.cli.doctor import Finding, check_plugins, check_tensorflow, versions
from tpk.cli.main import main


def test_versions_are_shown_for_what_is_installed(monkeypatch):
    installed = {"tensorflow": "2.21.0", "numpy": "2.1.0"}

    def version(name):
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    found = {each.what: each.found for each in versions()}
    assert list(found) == ["Python", "tpk", "tensorflow", "numpy"]
    assert found["Python"].startswith(sys.version.split()[0]) and found["numpy"] == "2.1.0"


def test_another_python_is_a_warning(monkeypatch):
    monkeypatch.setattr(doctor.sys, "version_info", (3, 14, 0))
    python, *_ = versions()
    assert (python.state, python.remedy) == ("warning", "tpk is tested with Python 3.10 to 3.13.")


# TensorFlow in another process.


def ended(stdout="", status=0, stderr=""):
    return subprocess.CompletedProcess([], status, stdout.encode(), stderr.encode())


def test_findings_before_a_crash_are_kept(monkeypatch):
    line = json.dumps({"state": "ok", "what": "import tensorflow", "found": "2.21.0"})
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: ended(line + "\n", -6, "Check failed\n\n"))
    imported, crashed = check_tensorflow()
    assert imported == Finding("ok", "import tensorflow", "2.21.0")
    assert (crashed.state, crashed.found) == ("failed", "ended the process with exit status -6: Check failed")


def test_a_process_that_hangs_is_a_failure(monkeypatch):
    def hang(command, timeout, **options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(doctor.subprocess, "run", hang)
    (found,) = check_tensorflow(timeout=3.0)
    assert (found.state, found.found) == ("failed", "did not respond within 3 s")


def test_tensorflow_that_cannot_be_imported_is_a_failure(tmp_path, monkeypatch):
    (tmp_path / "tensorflow.py").write_text("print('noise')\nraise ImportError('no libcudart')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    (found,) = check_tensorflow()
    assert (found.state, found.what, found.found) == ("failed", "import tensorflow", "ImportError: no libcudart")
    assert "pip check" in found.remedy


def test_a_gpu_that_tensorflow_does_not_use_is_a_warning_that_says_why(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    monkeypatch.setattr(doctor_probe, "why_no_gpu", lambda: "The driver is missing.")
    monkeypatch.setattr(doctor_probe.os.path, "exists", lambda path: True)
    gpu, cpu = doctor_probe.devices()
    assert (gpu.state, gpu.found) == ("warning", "TensorFlow uses none. The driver is missing.")
    assert "cores" in cpu.found
    monkeypatch.setattr(doctor_probe.os.path, "exists", lambda path: False)
    assert next(doctor_probe.devices()).state == "ok"


def test_gpus_are_listed(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [tf.config.PhysicalDevice("/gpu:0", "GPU")])
    details = {"device_name": "H100", "compute_capability": (9, 0)}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    assert next(doctor_probe.devices()) == Finding("ok", "GPU", "/gpu:0: H100, compute capability 9.0")


# Plugins.


def test_plugins_that_fail_are_reported(isolated_catalog, fake_distribution):
    fake_distribution(
        "tpk-mine",
        entry_points={"tpk.callbacks": {"good": "mine:Good", "gone": "mine:Gone", "tied": "mine:Good"}},
        modules={"mine": "import tpk\nclass Good(tpk.Callback): pass"},
    )
    fake_distribution("tpk-yours", entry_points={"tpk.callbacks": {"tied": "mine:Good"}})
    found = check_plugins()
    assert sorted((each.what, each.state) for each in found) == [
        ("callback gone", "failed"),
        ("callback good", "ok"),
        ("callback tied", "warning"),
        ("callback tied", "warning"),
    ]
    assert "TPK_BLOCK=callback:gone blocks it" in next(each.remedy for each in found if each.state == "failed")


def test_plugins_that_cannot_be_listed_are_reported(isolated_catalog, monkeypatch):
    monkeypatch.setenv("TPK_BLOCK", "no-such-plugin")
    (found,) = check_plugins()
    assert found.state == "failed" and "TPK_BLOCK has the unknown name 'no-such-plugin'" in found.remedy


# The report.


def test_the_status_is_1_if_something_failed(capsys, monkeypatch):
    fine, bad = Finding("ok", "tpk", "0"), Finding("failed", "session", "broken", "fix it")
    odd = Finding("warning", "files", "few", "raise it")
    monkeypatch.setattr(doctor, "versions", lambda: [fine])
    monkeypatch.setattr(doctor, "check_plugins", lambda: [odd])
    monkeypatch.setattr(doctor, "check_tensorflow", lambda: [])
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "warning: files: raise it" in shown and shown.endswith("0 failed, 1 warning\n")
    monkeypatch.setattr(doctor, "check_tensorflow", lambda: [bad])
    monkeypatch.setattr(doctor, "check_plugins", lambda: [])
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.endswith("failed: session: fix it\n\n1 failed, 0 warnings\n")
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[-1] == {
        "state": "failed",
        "what": "session",
        "found": "broken",
        "remedy": "fix it",
    }


def test_this_installation_works(isolated_catalog, capsys):
    status = main(["doctor", "--json"])
    found = {each["what"]: each for each in json.loads(capsys.readouterr().out)}
    assert status == int(any(each["state"] == "failed" for each in found.values()))
    assert found["session"]["state"] == "ok" and found["Python"]["found"].startswith(sys.version.split()[0])
    assert found["import tensorflow"]["found"].startswith("2.") and "CPU" in found
    assert found["plugins"]["state"] == "ok"


class TestWhyThereIsNoGpu:
    @pytest.fixture(autouse=True)
    def host(self, monkeypatch):
        """A host with TensorFlow for GPUs, and a GPU."""
        monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: True)
        self.build = {"cuda_version": "12.5", "cudnn_version": "9"}
        monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: self.build)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(doctor_probe.glob, "glob", lambda pattern: ["/dev/nvidia0"])

    def test_tensorflow_is_for_cpus(self, monkeypatch):
        monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: False)
        assert "built without CUDA" in doctor_probe.why_no_gpu()
        assert "tensorflow[and-cuda]" in doctor_probe.why_no_gpu()

    def test_tensorflow_is_for_amd_gpus(self, monkeypatch):
        monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: False)
        self.build["is_rocm_build"] = True
        assert "finds no AMD GPU" in doctor_probe.why_no_gpu()

    @pytest.mark.parametrize("value", ["", "-1"])
    def test_they_are_hidden(self, monkeypatch, value):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert doctor_probe.why_no_gpu() == f"CUDA_VISIBLE_DEVICES={value!r} hides all GPUs. Unset it."

    def test_the_host_has_none(self, monkeypatch):
        monkeypatch.setattr(doctor_probe.glob, "glob", lambda pattern: [])
        monkeypatch.setattr(doctor_probe.os.path, "exists", lambda path: False)
        assert "no /dev/nvidia*" in doctor_probe.why_no_gpu()

    def test_its_driver_or_libraries_are_missing(self):
        assert "driver or the libraries of CUDA 12.5 and cuDNN 9" in doctor_probe.why_no_gpu()
