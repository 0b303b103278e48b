"""The compiler and the tools of the machine that Horovod's build needs, looked for before it begins."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping

import attrs

from tpk_horovod.build_target import BuildError, InstalledTensorFlow, Options, install_command

OLDEST_CMAKE = (3, 13)
_CXX_17 = '#include <optional>\nstatic_assert(__cplusplus >= 201703L, "C++17");\nint main() {}\n'


@attrs.frozen
class Tools:
    """What was found.

    Attributes:
        compiler: the C++ compiler.
        cmake: the program.
        cmake_version: its version.
    """

    compiler: str
    cmake: str
    cmake_version: tuple[int, ...]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which the build uses them."""
        environment = {"CXX": self.compiler, "HOROVOD_CMAKE": self.cmake}
        if self.cmake_version >= (4,):
            # The Gloo in Horovod's sdist asks for compatibility with CMake 2.8, which 4 has not any more.
            environment["CMAKE_POLICY_VERSION_MINIMUM"] = "3.5"
        return environment


def find_tools(options: Options, tensorflow: InstalledTensorFlow, environ: Mapping[str, str] = os.environ) -> Tools:
    """Find what the build needs.

    Raises:
        BuildError: if something is missing.
    """
    compiler = _compiler(environ)
    cmake, version = _cmake(environ)
    if shutil.which("make", path=environ.get("PATH")) is None:
        raise BuildError(f"there is no make, which CMake needs. Install it: {_of_the_system('make')}")
    if options.mpi and shutil.which(environ.get("MPICXX", "mpicxx"), path=environ.get("PATH")) is None:
        raise BuildError(
            f"--mpi needs the compiler of an MPI, mpicxx, which is not in PATH. Install one: "
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
        raise BuildError(f"there is no C++ compiler ({', '.join(names)}) in PATH. Install one: {install}")
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
            f"newer one, such as GCC 9: {install}; or name another one by the environment variable CXX."
        )
    return found


def _cmake(environ: Mapping[str, str]) -> tuple[str, tuple[int, ...]]:
    name = environ.get("HOROVOD_CMAKE") or "cmake"
    found = shutil.which(name, path=environ.get("PATH"))
    install = f"{install_command('cmake')}, or {_of_the_system('cmake')}"
    oldest = ".".join(map(str, OLDEST_CMAKE))
    if found is None:
        raise BuildError(f"there is no {name} in PATH; {oldest} or newer is needed. Install it: {install}")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, env=dict(environ)).stdout
    version = re.search(r"version (\d+(?:\.\d+)+)", told)
    if version is None:
        raise BuildError(f"{found} does not tell its version: {told[:200]!r}. Install CMake: {install}")
    numbers = tuple(map(int, version[1].split(".")))
    if numbers < OLDEST_CMAKE:
        raise BuildError(f"{found} is version {version[1]}, but {oldest} or newer is needed. Install it: {install}")
    return found, numbers


def _check_cuda(tensorflow: InstalledTensorFlow, environ: Mapping[str, str]) -> None:
    if not tensorflow.cuda:
        raise BuildError(
            f"--nccl needs a TensorFlow with CUDA, but {tensorflow.version} here has none. Install it: "
            + install_command(f"'tensorflow[and-cuda]=={tensorflow.version}'")
        )
    home = environ.get("HOROVOD_CUDA_HOME", "/usr/local/cuda")
    if not os.path.isdir(os.path.join(home, "include")):
        raise BuildError(
            f"--nccl needs the CUDA toolkit, but there is no {home}/include. Install it, or name its directory by the "
            "environment variable HOROVOD_CUDA_HOME; and that of NCCL by HOROVOD_NCCL_HOME."
        )


def _of_the_system(debian: str, brew: str | None = None) -> str:
    """Return the command that installs a package of the system."""
    if sys.platform == "darwin":
        return f"brew install {brew or debian}"
    if shutil.which("dnf"):
        return f"dnf install {'gcc-c++' if debian == 'g++' else debian}"
    return f"apt-get install {debian}"
