"""Build a wheel of Horovod from its patched sdist, in a separate virtual environment with the build tools."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tpk_horovod.build_machine import HOROVOD_VERSION, BuildError, InstalledTensorFlow, Options, Tools, kept_wheel

PYTHON_TOOLS = ("setuptools<81", "wheel", "packaging", "cloudpickle", "psutil", "pyyaml")
REQUIREMENT = f"horovod=={HOROVOD_VERSION}"
SDIST_ONLY = "download --no-binary :all: --no-deps"

XLA_OPS = "xla_mpi_ops.cc"
"""Horovod's ops for functions that XLA compiles; everything else works without them."""

_HEADER = re.compile(r'^\s*#include "(tensorflow/[^"]+)"', re.MULTILINE)


class BuildPlace:
    """A virtual environment for building, with pip, the build tools, and access to the packages of this environment.

    Args:
        directory: the directory of the environment.
        log: the file to which the output of the tools is appended.
    """

    def __init__(self, directory: Path, log: Path) -> None:
        self._directory = directory
        self._log = log
        self._python = str(directory / "bin" / "python")

    def make(self) -> None:
        """Create the environment, without the build tools.

        Raises:
            BuildError: if this Python cannot create an environment with pip.
        """
        if importlib.util.find_spec("ensurepip") is not None:
            command = [sys.executable, "-m", "venv", str(self._directory)]
        elif uv := shutil.which("uv"):
            command = [uv, "venv", "--seed", "--python", sys.executable, str(self._directory)]
        else:
            raise BuildError(
                "Python's ensurepip is missing, so a virtual environment for the build cannot be created. Install it: "
                "apt-get install python3-venv; or install uv: pip install uv"
            )
        self._run(command, "a virtual environment for the build could not be created")
        # After its own packages, so that its own setuptools is used instead of the user's.
        site = subprocess.run(
            [self._python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        seen = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        Path(site, "seen_packages.pth").write_text("".join(f"{path}\n" for path in seen))

    def add_tools(self) -> None:
        """Install the build tools.

        Raises:
            BuildError: if pip cannot install them.
        """
        self.pip(["install", "--ignore-installed", *PYTHON_TOOLS], "the build tools could not be installed")

    def pip(self, arguments: Sequence[str], failure: str, environment: Mapping[str, str] | None = None) -> None:
        """Run pip.

        Args:
            arguments: the arguments of pip.
            failure: the error message if pip fails.
            environment: additional environment variables.

        Raises:
            BuildError: if pip fails.
        """
        quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
        self._run([self._python, "-m", "pip", *arguments], failure, {**quiet, **(environment or {})})

    def _run(self, command: Sequence[str], failure: str, environment: Mapping[str, str] | None = None) -> None:
        with self._log.open("a") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            begun = log.tell()
            # PYTHONPATH would take precedence over the build tools.
            variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            status = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**variables, **(environment or {})}
            ).returncode
        if status:
            said = self._log.read_text(errors="replace")[begun:]
            raise BuildError(f"{failure}{_advice(said)}\nThe last lines of {self._log}:\n{_last_lines(said)}")


def build_wheel(
    tensorflow: InstalledTensorFlow,
    options: Options,
    tools: Tools,
    place: BuildPlace,
    directory: Path,
    *,
    sdist: Path | None,
    jobs: int,
    say: Callable[[str], None],
) -> Path:
    """Build the wheel.

    Args:
        tensorflow: the target.
        options: the options of the build.
        tools: the build tools of the machine.
        place: the virtual environment, with the Python build tools.
        directory: an empty directory for the sources and the wheel.
        sdist: Horovod's sdist; None to download it with pip.
        jobs: the number of parallel compilers.
        say: prints progress messages.

    Returns:
        The wheel, in `directory`.

    Raises:
        BuildError: if the build fails.
    """
    if sdist is None:
        say(f"downloading {REQUIREMENT} with pip")
        place.pip(
            [*SDIST_ONLY.split(), "--no-build-isolation", "-d", str(directory), REQUIREMENT],
            f"pip could not download {REQUIREMENT}",
            options.environment,
        )
        sdist = next(directory.glob("horovod-*"))
    sources = _unpacked(sdist, directory / "sources")
    spare_distutils(sources)
    leave_out_debug_info(sources)
    header = missing_header(sources, tensorflow, tools.compiler)
    if header is not None:
        say(f"TensorFlow {tensorflow.version} has no {header}: building without Horovod's ops for XLA")
        leave_out_xla(sources)
    say(f"building with {tools.compiler} and CMake {'.'.join(map(str, tools.cmake_version))}; this takes minutes")
    place.pip(
        ["wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir", "-w", str(directory), str(sources)],
        "Horovod could not be built",
        {
            **options.environment,
            **tools.environment,
            "MAKEFLAGS": f"-j{jobs}",
            # Gloo's headers rely on standard headers to include <cstdint>, which GCC 13 no longer does.
            "CXXFLAGS": f"{os.environ.get('CXXFLAGS', '')} -include cstdint".strip(),
        },
    )
    wheel = kept_wheel(directory)
    assert wheel is not None
    return wheel


def keep(wheel: Path, directory: Path) -> Path:
    """Copy a wheel atomically into a directory of the cache."""
    directory.mkdir(parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(dir=directory)
    os.close(descriptor)
    shutil.copyfile(wheel, part)
    os.replace(part, directory / wheel.name)
    return directory / wheel.name


def missing_header(sources: Path, tensorflow: InstalledTensorFlow, compiler: str) -> str | None:
    """Return the first TensorFlow header that Horovod's XLA ops include, also indirectly, and that is missing; or None.

    Args:
        sources: the directory of the unpacked sdist.
        tensorflow: the TensorFlow that should have the headers.
        compiler: the compiler that resolves the includes.
    """
    headers = _HEADER.findall((sources / "horovod" / "tensorflow" / XLA_OPS).read_text())
    for header in headers:
        if not Path(tensorflow.include, header).exists():
            return header
    flags = ("-x", "c++", f"-I{tensorflow.include}", "-std=c++17", *tensorflow.flags)
    preprocessed = subprocess.run(
        [compiler, "-E", *flags, "-o", os.devnull, "-"],
        input="".join(f'#include "{header}"\n' for header in headers),
        capture_output=True,
        text=True,
    )
    missing = re.search(r"fatal error: '?([^':\s]+)'?(?::| file) ", preprocessed.stderr)
    if missing is None and preprocessed.returncode:
        raise BuildError(f"{compiler} cannot read TensorFlow's headers: {preprocessed.stderr[-500:]}")
    return None if missing is None else missing[1]


def leave_out_xla(sources: Path) -> None:
    """Patch the build to exclude the XLA ops.

    Raises:
        BuildError: if the sources are from an unsupported version of Horovod.
    """
    _replace(
        sources / "horovod" / "tensorflow" / "CMakeLists.txt",
        f'list(APPEND TF_SOURCES "${{PROJECT_SOURCE_DIR}}/horovod/tensorflow/{XLA_OPS}")\n',
        "",
    )


def leave_out_debug_info(sources: Path) -> None:
    """Patch the build to omit debugging information, which takes 40% of the time and most of the wheel.

    Raises:
        BuildError: if the sources are from an unsupported version of Horovod.
    """
    optimized = 'string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")\n'
    _replace(sources / "CMakeLists.txt", optimized, 'set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -DNDEBUG")\n')


def spare_distutils(sources: Path) -> None:
    """Patch `horovodrun` to find programs without distutils, which Python 3.12 removed.

    Raises:
        BuildError: if the sources are from an unsupported version of Horovod.
    """
    _replace(
        sources / "horovod" / "runner" / "js_run.py",
        "from distutils.spawn import find_executable\n",
        "from shutil import which as find_executable\n",
    )


def _unpacked(sdist: Path, directory: Path) -> Path:
    """Unpack an sdist, and return the directory of the sources.

    Raises:
        BuildError: if the file is not an sdist.
    """
    try:
        with tarfile.open(sdist) as archive:
            # Older patch releases of Python 3.10 and 3.11 do not have extraction filters.
            archive.extractall(directory, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    except (OSError, tarfile.TarError) as error:
        raise BuildError(
            f"{sdist} is not an sdist of Horovod ({error}). Get it: pip {SDIST_ONLY} {REQUIREMENT}"
        ) from error
    return next(path.parent for path in directory.glob("*/setup.py"))


def _advice(said: str) -> str:
    """Return advice about a failure, if the output of the tools explains it."""
    if "connection" in said.lower() or "No matching distribution" in said or "name resolution" in said:
        return (
            ": is the network available? Set HTTPS_PROXY for a proxy, PIP_INDEX_URL for a mirror. Without a network, "
            f"pass --sdist the file that `pip {SDIST_ONLY} {REQUIREMENT}` downloads on another machine, and set "
            f"PIP_NO_INDEX=1 and PIP_FIND_LINKS to a directory with {', '.join(PYTHON_TOOLS)}."
        )
    if "No space left" in said:
        return ": the disk is full; set the environment variable TMPDIR to a directory with a gigabyte of free space."
    if "Killed signal" in said or ("cc1plus" in said and "fatal error: Killed" in said):
        return ": out of memory; use fewer parallel compilers: --jobs 1"
    return "."


def _last_lines(text: str, count: int = 25) -> str:
    return "\n".join(text.rstrip().splitlines()[-count:])


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text() if path.exists() else ""
    if text.count(old) != 1:
        raise BuildError(f"{path} lacks the line {old.strip()!r}: this version of Horovod is not supported.")
    path.write_text(text.replace(old, new))
