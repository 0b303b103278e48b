"""Target and tools of a build: the installed TensorFlow, and the compiler and CMake of this machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from tpk.errors import TpkError

HOROVOD_VERSION = "0.28.1"
"""The latest release."""

RECIPE = 1
"""Must be incremented when the same sources give a different wheel."""

OLDEST_CMAKE = (3, 13)
_CXX_17 = '#include <optional>\nstatic_assert(__cplusplus >= 201703L, "C++17");\nint main() {}\n'
_OF_THE_BUILD = re.compile(r"HOROVOD_(CUDA|NCCL|ROCM|CPU|GPU|BUILD|DEBUG|ALLOW)|CXX|CXXFLAGS$|LDFLAGS$|MPICXX$")
_DESCRIBE = """
import json, tensorflow as tf
print(json.dumps({
    "version": tf.__version__,
    "include": tf.sysconfig.get_include(),
    "flags": [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("-I")],
    "cuda": bool(tf.sysconfig.get_build_info().get("is_cuda_build")),
}))
"""


class BuildError(TpkError, RuntimeError):
    """Raised when Horovod cannot be built on this machine; the message gives a command that helps."""


@attrs.frozen
class InstalledTensorFlow:
    """The TensorFlow that this interpreter imports.

    Attributes:
        version: such as ``"2.21.0"``.
        include: the directory of its headers.
        flags: the required compiler flags: the C++ standard, and the ABI of the standard library.
        cuda: whether it was built with CUDA.
    """

    version: str
    include: str
    flags: tuple[str, ...] = attrs.field(converter=tuple)
    cuda: bool


@attrs.frozen
class Options:
    """The communication libraries of a build, in addition to Gloo.

    Attributes:
        mpi: whether to build with MPI.
        nccl: whether to build with NCCL, for GPUs.
    """

    mpi: bool = False
    nccl: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that configure Horovod's build."""
        return {
            "HOROVOD_WITH_TENSORFLOW": "1",
            "HOROVOD_WITH_GLOO": "1",
            "HOROVOD_WITHOUT_PYTORCH": "1",
            "HOROVOD_WITHOUT_MXNET": "1",
            ("HOROVOD_WITH_MPI" if self.mpi else "HOROVOD_WITHOUT_MPI"): "1",
            **({"HOROVOD_GPU_OPERATIONS": "NCCL"} if self.nccl else {}),
        }


def installed_tensorflow(python: str = sys.executable) -> InstalledTensorFlow:
    """Return the TensorFlow of an interpreter, by importing it in another process.

    Raises:
        BuildError: if TensorFlow is not installed or cannot be imported.
    """
    install = f"Install it, for example: {install_command('tensorflow', python)}"
    if python == sys.executable and importlib.util.find_spec("tensorflow") is None:
        raise BuildError(f"TensorFlow is not installed, and Horovod must be built for it. {install}")
    described = subprocess.run(
        [python, "-c", _DESCRIBE],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if described.returncode:
        last = described.stderr.strip().rpartition("\n")[2]
        raise BuildError(f"TensorFlow cannot be imported, so Horovod cannot be built for it ({last}). {install}")
    return InstalledTensorFlow(**json.loads(described.stdout.strip().rpartition("\n")[2]))


def cache_key(tensorflow: InstalledTensorFlow, options: Options, environ: Mapping[str, str] = os.environ) -> str:
    """Return the cache key of a wheel: builds with the same key can share it.

    Args:
        tensorflow: the target.
        options: the options of the build.
        environ: the environment, which contains settings of the build.
    """
    settings = sorted((name, value) for name, value in environ.items() if _OF_THE_BUILD.match(name))
    rest = json.dumps([RECIPE, tensorflow.flags, tensorflow.cuda, settings])
    ways = ["gloo", *(way for way in ("mpi", "nccl") if getattr(options, way))]
    return "-".join(
        (
            f"horovod{HOROVOD_VERSION}",
            f"tensorflow{tensorflow.version}",
            str(sys.implementation.cache_tag),
            f"{sys.platform}_{platform.machine()}",
            *ways,
            hashlib.sha256(rest.encode()).hexdigest()[:12],
        )
    )


def install_command(package: str, python: str = sys.executable) -> str:
    """Return the command that installs a package in this environment, for messages."""
    # Searching for the module would make setuptools warn about distutils.
    if any(importlib.metadata.distributions(name="pip")):
        return f"{python} -m pip install {package}"
    return f"uv pip install --python {python} {package}"


def kept_wheel(directory: Path) -> Path | None:
    """Return the wheel in a directory of the cache, if any."""
    return next(iter(sorted(directory.glob("horovod-*.whl"))), None)


@attrs.frozen
class Tools:
    """The build tools of this machine.

    Attributes:
        compiler: the path of the C++ compiler.
        cmake: the path of CMake.
        cmake_version: the version of CMake.
    """

    compiler: str
    cmake: str
    cmake_version: tuple[int, ...]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make the build use these tools."""
        environment = {"CXX": self.compiler, "HOROVOD_CMAKE": self.cmake}
        if self.cmake_version >= (4,):
            # The Gloo in Horovod's sdist requires compatibility with CMake 2.8, which CMake 4 no longer supports.
            environment["CMAKE_POLICY_VERSION_MINIMUM"] = "3.5"
        return environment


def find_tools(options: Options, tensorflow: InstalledTensorFlow, environ: Mapping[str, str] = os.environ) -> Tools:
    """Find the tools that the build needs.

    Raises:
        BuildError: if a tool is missing or too old.
    """
    compiler = _compiler(environ)
    cmake, version = _cmake(environ)
    if shutil.which("make", path=environ.get("PATH")) is None:
        raise BuildError(f"make, which CMake needs, is not in PATH. Install it: {_of_the_system('make')}")
    if options.mpi and shutil.which(environ.get("MPICXX", "mpicxx"), path=environ.get("PATH")) is None:
        raise BuildError(
            f"--mpi needs an MPI compiler, mpicxx, which is not in PATH. Install one: "
            f"{_of_the_system('libopenmpi-dev openmpi-bin', 'open-mpi')}"
        )
    if options.nccl:
        _check_cuda(tensorflow, environ)
    return Tools(compiler, cmake, version)


def _compiler(environ: Mapping[str, str]) -> str:
    names = [environ["CXX"]] if environ.get("CXX") else ["c++", "g++", "clang++"]
    found = next(filter(None, (shutil.which(name, path=environ.get("PATH")) for name in names)), None)
    install = _of_the_system("g++", "gcc")
    if found is None:
        raise BuildError(f"no C++ compiler ({', '.join(names)}) was found in PATH. Install one: {install}")
    tried = subprocess.run(
        [found, "-std=c++17", "-fsyntax-only", "-x", "c++", "-"],
        input=_CXX_17,
        capture_output=True,
        text=True,
        env=dict(environ),
    )
    if tried.returncode:
        last = tried.stderr.strip().partition("\n")[0]
        raise BuildError(
            f"the C++ compiler {found} does not compile C++17, which TensorFlow's headers need ({last}). Install a "
            f"newer one, such as GCC 9: {install}; or set the environment variable CXX to another compiler."
        )
    return found


def _cmake(environ: Mapping[str, str]) -> tuple[str, tuple[int, ...]]:
    name = environ.get("HOROVOD_CMAKE") or "cmake"
    found = shutil.which(name, path=environ.get("PATH"))
    install = f"{install_command('cmake')}, or {_of_the_system('cmake')}"
    oldest = ".".join(map(str, OLDEST_CMAKE))
    if found is None:
        raise BuildError(f"{name} was not found in PATH; {oldest} or newer is needed. Install it: {install}")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, env=dict(environ)).stdout
    version = re.search(r"version (\d+(?:\.\d+)+)", told)
    if version is None:
        raise BuildError(f"{found} --version does not print a version: {told[:200]!r}. Install CMake: {install}")
    numbers = tuple(map(int, version[1].split(".")))
    if numbers < OLDEST_CMAKE:
        raise BuildError(f"{found} is version {version[1]}, but {oldest} or newer is needed. Install it: {install}")
    return found, numbers


def _check_cuda(tensorflow: InstalledTensorFlow, environ: Mapping[str, str]) -> None:
    if not tensorflow.cuda:
        raise BuildError(
            f"--nccl needs TensorFlow with CUDA, but {tensorflow.version} was built without it. Install it: "
            + install_command(f"'tensorflow[and-cuda]=={tensorflow.version}'")
        )
    home = environ.get("HOROVOD_CUDA_HOME", "/usr/local/cuda")
    if not os.path.isdir(os.path.join(home, "include")):
        raise BuildError(
            f"--nccl needs the CUDA toolkit, but {home}/include does not exist. Install it, or set the environment "
            "variable HOROVOD_CUDA_HOME to its directory, and HOROVOD_NCCL_HOME to the directory of NCCL."
        )


def _of_the_system(debian: str, brew: str | None = None) -> str:
    """Return the command that installs a system package."""
    if sys.platform == "darwin":
        return f"brew install {brew or debian}"
    if shutil.which("dnf"):
        return f"dnf install {'gcc-c++' if debian == 'g++' else debian}"
    return f"apt-get install {debian}"
