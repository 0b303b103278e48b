from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import attrs
import pytest
from tpk_horovod import build
from tpk_horovod.build_machine import (
    BuildError,
    InstalledTensorFlow,
    Options,
    cache_key,
    find_tools,
    installed_tensorflow,
)
from tpk_horovod.build_proof import prove
from tpk_horovod.build_wheel import BuildPlace, build_wheel, keep, leave_out_xla, missing_header, spare_distutils

TENSORFLOW = InstalledTensorFlow("2.21.0", "/include", ("-D_GLIBCXX_USE_CXX11_ABI=1", "--std=c++17"), cuda=False)
GLOO = Options()
CMAKE_LISTS = """
list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/mpi_ops.cc")
list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")
add_library(tensorflow SHARED ${TF_SOURCES})
"""
TOP_CMAKE_LISTS = """
string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
"""
XLA_OPS = """
#include <memory>
#include "tensorflow/one.h"
#include "tensorflow/two.h"
#include "./custom_call_config_generated.h"
"""


@pytest.fixture
def programs(tmp_path):
    """A function that creates a program in the only directory in PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()

    def put(name, script="exit 0"):
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)
        return {"PATH": str(directory)}

    return put


@pytest.fixture
def sources(tmp_path):
    """The parts of Horovod's sources that are patched."""
    directory = tmp_path / "horovod-0.28.1"
    for name, text in {
        "setup.py": "",
        "CMakeLists.txt": TOP_CMAKE_LISTS,
        "horovod/tensorflow/CMakeLists.txt": CMAKE_LISTS,
        "horovod/tensorflow/xla_mpi_ops.cc": XLA_OPS,
        "horovod/runner/js_run.py": "import os\nfrom distutils.spawn import find_executable\n",
    }.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


def test_a_wheel_is_reused_only_for_the_same_target():
    key = cache_key(TENSORFLOW, GLOO, {"PATH": "/bin"})
    assert cache_key(TENSORFLOW, GLOO, {"PATH": "/usr/bin", "HOROVOD_RANK": "1"}) == key
    others = [
        cache_key(attrs.evolve(TENSORFLOW, version="2.20.0"), GLOO, {}),
        cache_key(attrs.evolve(TENSORFLOW, flags=["-D_GLIBCXX_USE_CXX11_ABI=0"]), GLOO, {}),
        cache_key(attrs.evolve(TENSORFLOW, cuda=True), GLOO, {}),
        cache_key(TENSORFLOW, Options(mpi=True), {}),
        cache_key(TENSORFLOW, Options(nccl=True), {}),
        cache_key(TENSORFLOW, GLOO, {"HOROVOD_NCCL_HOME": "/nccl"}),
        cache_key(TENSORFLOW, GLOO, {"CXX": "clang++"}),
    ]
    assert len({key, *others}) == 1 + len(others)
    assert "tensorflow2.21.0" in key
    assert sys.implementation.cache_tag in key


def test_only_the_xla_ops_are_excluded(sources):
    leave_out_xla(sources)
    text = (sources / "horovod" / "tensorflow" / "CMakeLists.txt").read_text()
    assert "xla" not in text
    assert text.count("TF_SOURCES") == CMAKE_LISTS.count("TF_SOURCES") - 1


def test_horovodrun_finds_programs_without_distutils(sources):
    spare_distutils(sources)
    names = {}
    exec((sources / "horovod" / "runner" / "js_run.py").read_text(), names)
    assert names["find_executable"]("sh")
    assert "distutils" not in (sources / "horovod" / "runner" / "js_run.py").read_text()


def test_other_sources_are_not_patched(sources):
    leave_out_xla(sources)
    with pytest.raises(BuildError, match=r"lacks the line .*xla_mpi_ops.*this version of Horovod is not supported"):
        leave_out_xla(sources)


def test_a_missing_header_is_found_and_named(sources, tmp_path, programs):
    tensorflow = attrs.evolve(TENSORFLOW, include=str(tmp_path / "include"))
    (tmp_path / "include" / "tensorflow").mkdir(parents=True)
    programs("c++", 'while read line; do case "$line" in *two.h*) exit 0;; esac; done; exit 1')
    compiler = str(tmp_path / "bin" / "c++")
    assert missing_header(sources, tensorflow, compiler) == "tensorflow/one.h"
    for name in ("one.h", "two.h"):
        (tmp_path / "include" / "tensorflow" / name).touch()
    assert missing_header(sources, tensorflow, compiler) is None
    programs(
        "c++", "echo 'In file included from one.h:3:' >&2; echo 'x.h:1:9: fatal error: llvm/a.h: No such' >&2; exit 1"
    )
    assert missing_header(sources, tensorflow, compiler) == "llvm/a.h"
    programs("c++", "echo 'something else' >&2; exit 1")
    with pytest.raises(BuildError, match="cannot read TensorFlow's headers: something else"):
        missing_header(sources, tensorflow, compiler)


def test_errors_about_missing_tools_say_how_to_install_them(programs):
    path = programs("nothing")
    with pytest.raises(
        BuildError, match=r"no C\+\+ compiler \(c\+\+, g\+\+, clang\+\+\) was found in PATH. Install one: \w+"
    ):
        find_tools(GLOO, TENSORFLOW, path)
    with pytest.raises(BuildError, match=r"no C\+\+ compiler \(mine\)"):
        find_tools(GLOO, TENSORFLOW, {**path, "CXX": "mine"})
    programs("c++", "echo 'error: unrecognized option -std=c++17' >&2; exit 1")
    with pytest.raises(BuildError, match=r"does not compile C\+\+17.*unrecognized option.*Install a newer one"):
        find_tools(GLOO, TENSORFLOW, path)
    programs("c++")
    with pytest.raises(
        BuildError, match=r"cmake was not found in PATH; 3.13 or newer is needed. Install it: .*install .*cmake"
    ):
        find_tools(GLOO, TENSORFLOW, path)
    programs("cmake", "echo 'cmake version 3.10.2'")
    with pytest.raises(BuildError, match=r"cmake is version 3.10.2, but 3.13 or newer is needed"):
        find_tools(GLOO, TENSORFLOW, path)
    programs("cmake", "echo")
    with pytest.raises(BuildError, match="--version does not print a version"):
        find_tools(GLOO, TENSORFLOW, path)
    programs("cmake", "echo 'cmake version 3.25.1'")
    with pytest.raises(BuildError, match="make, which CMake needs, is not in PATH"):
        find_tools(GLOO, TENSORFLOW, path)
    programs("make")
    assert "CMAKE_POLICY_VERSION_MINIMUM" not in find_tools(GLOO, TENSORFLOW, path).environment
    with pytest.raises(BuildError, match=r"--mpi needs .*mpicxx"):
        find_tools(Options(mpi=True), TENSORFLOW, path)
    with pytest.raises(BuildError, match=r"--nccl needs TensorFlow with CUDA, but 2\.21\.0 was built without it"):
        find_tools(Options(nccl=True), TENSORFLOW, path)
    with pytest.raises(BuildError, match="/nowhere/include does not exist"):
        find_tools(Options(nccl=True), attrs.evolve(TENSORFLOW, cuda=True), {**path, "HOROVOD_CUDA_HOME": "/nowhere"})


def test_cmake_4_accepts_older_policies(programs):
    for name in ("c++", "make"):
        programs(name)
    tools = find_tools(GLOO, TENSORFLOW, programs("cmake", "echo 'cmake version 4.1.2'"))
    assert tools.environment["CMAKE_POLICY_VERSION_MINIMUM"] == "3.5"
    assert tools.environment["CXX"] == tools.compiler
    assert tools.environment["HOROVOD_CMAKE"] == tools.cmake


def test_the_installed_tensorflow_is_described():
    import tensorflow as tf

    described = installed_tensorflow()
    assert described.version == tf.__version__
    assert Path(described.include, "tensorflow").is_dir()
    assert any("CXX11_ABI" in flag for flag in described.flags)


def test_the_error_about_a_missing_tensorflow_says_how_to_install_it(programs, tmp_path):
    programs("python", "echo \"ModuleNotFoundError: No module named 'tensorflow'\" >&2; exit 1")
    with pytest.raises(BuildError, match=r"cannot be imported.*No module named 'tensorflow'.*install .*tensorflow$"):
        installed_tensorflow(str(tmp_path / "bin" / "python"))


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Failed to establish a new connection: [Errno -2] Name or service not known", "HTTPS_PROXY.*--sdist"),
        ("ERROR: No matching distribution found for horovod==0.28.1", "PIP_INDEX_URL"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "--jobs 1"),
        ("OSError: [Errno 28] No space left on device", "TMPDIR"),
        ("error: something else", "it failed\\."),
    ],
)
def test_errors_of_pip_are_shown_with_advice(programs, tmp_path, said, advice):
    programs("python", f"echo '{said}'; exit 1")
    log = tmp_path / "build.log"
    with pytest.raises(BuildError) as caught:
        BuildPlace(tmp_path, log).pip(["download"], "it failed")
    message = str(caught.value)
    assert said in message
    assert str(log) in message
    assert re.search(advice, message, re.DOTALL)


def test_the_build_environment_has_the_packages_of_this_one_but_separate_tools(tmp_path):
    place = BuildPlace(tmp_path / "place", tmp_path / "log")
    place.make()
    python = tmp_path / "place" / "bin" / "python"
    code = (
        "import attrs, pip, importlib.util as u; print(attrs.__file__, pip.__file__, u.find_spec('tensorflow').origin)"
    )
    shown = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert shown[0] == attrs.__file__
    assert shown[1].startswith(str(tmp_path))
    assert shown[2].startswith(str(Path(attrs.__file__).parents[1]))


def test_a_file_that_is_not_an_sdist_is_an_error(tmp_path):
    archive = tmp_path / "horovod.tar.gz"
    archive.write_text("<html>not found</html>")
    with pytest.raises(BuildError, match=r"(?s)is not an sdist of Horovod \(.*Get it: pip download"):
        build_wheel(TENSORFLOW, GLOO, None, None, tmp_path, sdist=archive, jobs=1, say=print)


def test_pip_builds_a_wheel_from_an_sdist_with_the_tools_that_were_found(sources, programs, tmp_path, monkeypatch):
    archive = tmp_path / "horovod.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        out.add(sources, sources.name)
    for name in ("c++", "make"):
        programs(name)
    path = programs("cmake", "echo 'cmake version 4.0.0'")
    programs("python", f"env > {tmp_path}/environment; touch {tmp_path}/work/horovod-0.28.1-py3-none-any.whl")
    (tmp_path / "work").mkdir()
    place = BuildPlace(tmp_path, tmp_path / "log")
    said = []
    tools = find_tools(GLOO, TENSORFLOW, path)
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    wheel = build_wheel(TENSORFLOW, GLOO, tools, place, tmp_path / "work", sdist=archive, jobs=3, say=said.append)
    assert keep(wheel, tmp_path / "cache" / "key").read_bytes() == b""
    assert [each.name for each in (tmp_path / "cache" / "key").iterdir()] == [wheel.name]
    assert any("has no tensorflow/one.h: building without Horovod's ops for XLA" in each for each in said)
    environment = dict(
        line.split("=", 1) for line in (tmp_path / "environment").read_text().splitlines() if "=" in line
    )
    expected = {"HOROVOD_WITH_GLOO": "1", "HOROVOD_WITHOUT_MPI": "1", "MAKEFLAGS": "-j3", "CXX": tools.compiler}
    assert {name: environment.get(name) for name in expected} == expected
    assert environment["CMAKE_POLICY_VERSION_MINIMUM"] == "3.5"
    assert "PYTHONPATH" not in environment


def test_errors_set_the_exit_status(capsys):
    assert build.main(["--jobs", "0"]) == 1
    assert capsys.readouterr().err == "tpk-horovod: --jobs must be at least 1, but is 0.\n"


def test_the_environment_sets_the_cache_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert sys.platform != "linux" or build.cache_directory() == tmp_path / "tpk-horovod"


def test_the_output_of_a_broken_horovod_is_shown(programs, tmp_path):
    programs("python", "echo 'undefined symbol: _ZN10tensorflow'; exit 1")
    with pytest.raises(BuildError, match=r"(?s)two processes on this host could not sum a tensor.*undefined symbol"):
        prove(str(tmp_path / "bin" / "python"))


@pytest.mark.skipif(
    os.environ.get("TPK_HOROVOD_BUILT") != "1", reason="TPK_HOROVOD_BUILT=1 says that Horovod was built"
)
def test_the_horovod_that_was_built_works():
    import horovod.tensorflow as hvd

    assert hvd.gloo_built()
    prove()
    (library,) = Path(hvd.__file__).parent.glob("mpi_lib*.so")
    assert b".debug_info" not in library.read_bytes()  # It takes 40% of the build time and most of the wheel.
