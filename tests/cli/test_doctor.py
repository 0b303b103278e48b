from __future__ import annotations

import json
import subprocess
import sys

import pytest
import tensorflow as tf

from tpk.cli.doctor import probe, tensorflow as tensorflow_module
from tpk.cli.doctor.command import report
from tpk.cli.doctor.finding import Finding
from tpk.cli.doctor.installation import installed_distributions, look_at_installation
from tpk.cli.doctor.plugins import look_at_plugins
from tpk.cli.doctor.system import look_at_system, open_files
from tpk.cli.doctor.tensorflow import findings_of, look_at_tensorflow
from tpk.cli.main import main


@pytest.fixture
def installed(tmp_path):
    """Return a function that installs distributions into a folder, and returns what is there."""

    def install(requires=(), **versions):
        for name, version in versions.items():
            folder = tmp_path / f"{name}-{version}.dist-info"
            folder.mkdir()
            asked = "".join(f"Requires-Dist: {each}\n" for each in requires if name == "tensorflow")
            plain = name.replace("_", "-")
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {plain}\nVersion: {version}\n{asked}")
        return installed_distributions([str(tmp_path)])

    return install


def problems(installed, **options):
    return {
        each.what: (each.state, each.found, each.remedy)
        for each in look_at_installation(installed, **options)
        if each.state != "ok"
    }


def test_what_goes_together_is_well(installed):
    found = installed(tensorflow="2.21.0", numpy="2.1.0", keras="3.5.0", tf_keras="2.21.0", protobuf="6.0")
    assert problems(found, python="3.12.1") == {}
    told = {each.what: each.found for each in look_at_installation(found, python="3.12.1")}
    assert (told["numpy"], told["keras"], told["protobuf"]) == ("2.1.0", "3.5.0", "6.0")
    assert "tpk.layers has them" in told["Keras 3"]


@pytest.mark.parametrize(
    ("versions", "what", "state", "told"),
    [
        ({}, "TensorFlow", "failed", "pip install tensorflow"),
        ({"tensorflow": "2.14.1"}, "TensorFlow", "warning", "tested with TensorFlow 2.15 to 2.21"),
        (
            {"tensorflow": "2.21.0", "tensorflow_cpu": "2.21.0"},
            "TensorFlow",
            "warning",
            "pip uninstall tensorflow tensorflow-cpu",
        ),
        ({"tensorflow": "2.21.0", "tensorflow_cpu": "2.15.0"}, "TensorFlow", "failed", "one overwrites the other"),
        ({"tensorflow_cpu": "2.15.1", "numpy": "2.0.0"}, "NumPy 2", "failed", "pip install 'numpy<2'"),
        ({"tensorflow": "2.15.1", "keras": "3.0.0"}, "Keras 3", "warning", "pip install 'keras<2.16'"),
        ({"tensorflow": "2.18.0", "tf_keras": "2.17.0"}, "Keras 2", "warning", "pip install 'tf-keras==2.18.*'"),
    ],
)
def test_what_does_not_go_together_is_told_with_a_remedy(installed, versions, what, state, told):
    found = problems(installed(**versions), python="3.11")
    assert list(found) == [what] and found[what][0] == state
    assert told in found[what][2]


def test_keras_2_that_is_asked_for_and_not_there_is_told(installed, monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    found = problems(installed(tensorflow="2.18.0", keras="3.1"), python="3.11")
    assert found["Keras 2"][0] == "failed" and "pip install tf-keras" in found["Keras 2"][2]


def test_what_tensorflow_asks_for_is_compared_with_what_is_there(installed):
    asked = ["protobuf<6", "gast>=0.2", "h5py; extra == 'and-more'", "wheel; python_version < '3'"]
    found = problems(installed(asked, tensorflow="2.18.0", protobuf="6.1"), python="3.11")
    assert found == {
        "protobuf": (
            "warning",
            "6.1, where tensorflow 2.18.0 asks for <6",
            "it may work all the same; else pip install 'protobuf<6'",
        ),
        "gast": ("failed", "not installed", "tensorflow 2.18.0 needs it: pip install 'gast>=0.2'"),
    }


@pytest.mark.parametrize("python", ["3.9.2", "3.14.0"])
def test_another_python_is_told(installed, python):
    assert problems(installed(tensorflow="2.21.0"), python=python)["Python"][0] == "warning"


# What a probe of TensorFlow has seen.

IMPORTED = {"version": "2.21.0", "path": "/there", "error": None}
NO_GPU = {"gpus": [], "why": "There is no driver.", "is_expected": False, "cores": 4, "error": None}


def seen(status=0, last="", **told):
    return {each.what: (each.state, each.found) for each in findings_of(told, status, last)}


def test_a_gpu_that_is_there_and_not_used_is_a_warning_that_says_why():
    found = seen(tensorflow=IMPORTED, devices=NO_GPU)
    assert found["GPU"] == ("warning", "none is used. There is no driver.")
    assert seen(tensorflow=IMPORTED, devices={**NO_GPU, "is_expected": True})["GPU"][0] == "ok"
    gpus = {**NO_GPU, "gpus": ["/gpu:0: H100, compute capability 9.0"]}
    assert seen(tensorflow=IMPORTED, devices=gpus)["GPU"] == ("ok", "/gpu:0: H100, compute capability 9.0")


def test_tensorflow_that_cannot_be_imported_is_a_failure():
    assert seen(tensorflow={"error": "ImportError: no"}) == {"import tensorflow": ("failed", "ImportError: no")}
    crashed = seen(-11, "Illegal instruction")
    assert crashed == {"import tensorflow": ("failed", "ended the process with exit status -11: Illegal instruction")}


def test_what_was_seen_before_a_crash_is_told():
    found = seen(-6, "Check failed", tensorflow=IMPORTED, devices=NO_GPU)
    assert found["import tensorflow"][0] == "ok"
    assert found["TensorFlow"] == ("failed", "ended the process with exit status -6: Check failed")


@pytest.mark.parametrize(
    ("horovod", "state", "told"),
    [
        ({"version": "0.28", "built": {"Gloo": True, "MPI": False, "NCCL": True}, "error": None}, "ok", "Gloo, NCCL"),
        (
            {"version": "0.28", "built": {"Gloo": False, "MPI": False}, "error": None},
            "failed",
            "nothing to communicate",
        ),
        ({"error": "ImportError: undefined symbol"}, "failed", "undefined symbol"),
    ],
)
def test_horovod_says_what_it_was_built_with(horovod, state, told):
    found = seen(tensorflow=IMPORTED, horovod=horovod)["Horovod"]
    assert found[0] == state and told in found[1]


def test_a_session_or_keras_that_does_not_work_is_told():
    broken = {"error": "ValueError: odd"}
    found = seen(tensorflow=IMPORTED, session=broken, **{"tf.keras": broken})
    assert (found["session"][0], found["tf.keras"][0]) == ("failed", "warning")


def test_a_probe_that_hangs_is_a_failure(monkeypatch):
    def hang(command, timeout, **options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(tensorflow_module.subprocess, "run", hang)
    (found,) = look_at_tensorflow(timeout=3.0)
    assert (found.state, found.found) == ("failed", "takes more than 3 s")


# Plugins.


def test_plugins_that_fail_are_told(isolated_catalog, fake_distribution):
    fake_distribution(
        "tpk-mine",
        entry_points={"tpk.callbacks": {"good": "mine:Good", "gone": "mine:Gone", "tied": "mine:Good"}},
        modules={"mine": "import tpk\nclass Good(tpk.Callback): pass"},
    )
    fake_distribution("tpk-yours", entry_points={"tpk.callbacks": {"tied": "mine:Good"}})
    found = list(look_at_plugins(isolated_catalog))
    assert sorted((each.what, each.state) for each in found) == [
        ("callback gone", "failed"),
        ("callback good", "ok"),
        ("callback tied", "warning"),
        ("callback tied", "warning"),
    ]
    assert "TPK_BLOCK=callback:gone blocks it" in next(each.remedy for each in found if each.state == "failed")


def test_plugins_that_cannot_be_listed_are_told(isolated_catalog, monkeypatch):
    monkeypatch.setenv("TPK_BLOCK", "no-such-plugin")
    (found,) = look_at_plugins(isolated_catalog)
    assert found.state == "failed" and "TPK_BLOCK has the unknown name 'no-such-plugin'" in found.remedy


# The system.


def test_limits_of_the_system_are_told(tmp_path):
    environment = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TPK_API_TOKEN": "hidden",
        "TF_CLI_CONFIG_FILE": "of another program",
        "HOME": "/",
    }
    found = {each.what: each for each in look_at_system(environment, tmp_path)}
    assert found["environment"].found == "TF_CPP_MIN_LOG_LEVEL=3, TPK_API_TOKEN=(not told)"
    assert found["settings"].found == f"{tmp_path / 'tpk'} can be written to"
    assert found["memory files"].state == "ok" and "free" in found[str(tmp_path)].found
    (tmp_path / "tpk").write_text("a file in the place of the directory")
    found = {each.what: each for each in look_at_system(environment, tmp_path / "none")}
    assert found["settings"].state == "warning" and "XDG_CONFIG_HOME" in found["settings"].remedy
    assert str(tmp_path / "none") not in found


def test_few_open_files_are_a_warning():
    assert open_files(256, 4096).remedy.endswith("ulimit -n 4096")
    assert open_files(1024, 4096).state == open_files(-1, -1).state == "ok"


# The report.


def test_the_status_is_1_if_something_failed(capsys):
    fine, bad = Finding("ok", "tpk", "0"), Finding("failed", "session", "broken", "mend it")
    odd = Finding("warning", "files", "few", "raise it")
    assert report([fine, odd], as_json=False) == 0
    shown = capsys.readouterr().out
    assert "warning: files: raise it" in shown and shown.endswith("0 failed, 1 warning\n")
    assert report([fine, bad], as_json=False) == 1
    assert capsys.readouterr().out.endswith("failed: session: mend it\n\n1 failed, 0 warnings\n")
    assert report([bad], as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == [
        {"state": "failed", "what": "session", "found": "broken", "remedy": "mend it"}
    ]


def test_here_it_finds_what_is_here(isolated_catalog, capsys, monkeypatch):
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
        build = {"cuda_version": "12.5", "cudnn_version": "9"}
        monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: build)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(probe.glob, "glob", lambda pattern: ["/dev/nvidia0"])
        self.build = build

    def test_tensorflow_is_for_cpus(self, monkeypatch):
        monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: False)
        assert "built without CUDA" in probe.why_no_gpu()
        assert "tensorflow[and-cuda]" in probe.why_no_gpu()

    def test_tensorflow_is_for_gpus_of_amd(self, monkeypatch):
        monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: False)
        self.build["is_rocm_build"] = True
        assert "finds no AMD GPU" in probe.why_no_gpu()

    @pytest.mark.parametrize("value", ["", "-1"])
    def test_they_are_hidden(self, monkeypatch, value):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert probe.why_no_gpu() == f"CUDA_VISIBLE_DEVICES={value!r} hides all GPUs. Unset it."

    def test_the_host_has_none(self, monkeypatch):
        monkeypatch.setattr(probe.glob, "glob", lambda pattern: [])
        monkeypatch.setattr(probe.os.path, "exists", lambda path: False)
        assert "no /dev/nvidia*" in probe.why_no_gpu()

    def test_its_driver_or_libraries_are_missing(self):
        assert "driver or the libraries of CUDA 12.5 and cuDNN 9" in probe.why_no_gpu()
