"""Wheel of Horovod: built of its sdist, with what has to be changed there, in a place of its own that has the tools."""

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
"""Horovod's ops for programs that XLA compiles; everything else works without them."""

_HEADER = re.compile(r'^\s*#include "(tensorflow/[^"]+)"', re.MULTILINE)


class BuildPlace:
    """A virtual environment for building: it has pip and the tools, and sees the packages of this one.

    Args:
        directory: where it is made.
        log: the file to which what the tools say is appended.
    """

    def __init__(self, directory: Path, log: Path) -> None:
        self._directory = directory
        self._log = log
        self._python = str(directory / "bin" / "python")

    def make(self) -> None:
        """Make it, without the tools.

        Raises:
            BuildError: if this Python can make none with pip.
        """
        if importlib.util.find_spec("ensurepip") is not None:
            command = [sys.executable, "-m", "venv", str(self._directory)]
        elif uv := shutil.which("uv"):
            command = [uv, "venv", "--seed", "--python", sys.executable, str(self._directory)]
        else:
            raise BuildError(
                "Python's ensurepip is missing, so that no place to build in can be made. Install it: apt-get install "
                "python3-venv; or install uv: pip install uv"
            )
        self._run(command, "a virtual environment to build in could not be made")
        # Behind its own packages, so that its setuptools is not that of the user.
        site = subprocess.run(
            [self._python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        seen = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        Path(site, "seen_packages.pth").write_text("".join(f"{path}\n" for path in seen))

    def add_tools(self) -> None:
        """Install the tools.

        Raises:
            BuildError: if pip cannot get them.
        """
        self.pip(["install", "--ignore-installed", *PYTHON_TOOLS], "the tools of the build could not be installed")

    def pip(self, arguments: Sequence[str], failure: str, environment: Mapping[str, str] | None = None) -> None:
        """Run pip.

        Args:
            arguments: after ``pip``.
            failure: what it means if it fails.
            environment: variables besides those of this process.

        Raises:
            BuildError: if it fails.
        """
        quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
        self._run([self._python, "-m", "pip", *arguments], failure, {**quiet, **(environment or {})})

    def _run(self, command: Sequence[str], failure: str, environment: Mapping[str, str] | None = None) -> None:
        with self._log.open("a") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            begun = log.tell()
            # A PYTHONPATH would come before the tools.
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
        tensorflow: for which it is.
        options: what it communicates by.
        tools: those of the machine.
        place: where it is built; it has the tools of Python.
        directory: an empty directory for the sources and the wheel.
        sdist: Horovod's sdist; None takes it through pip.
        jobs: how many compilers run at once.
        say: is told what happens.

    Returns:
        The wheel, in `directory`.

    Raises:
        BuildError: if it cannot be built.
    """
    if sdist is None:
        say(f"pip downloads {REQUIREMENT}")
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
        say(f"TensorFlow {tensorflow.version} has no {header}: Horovod's ops for XLA are left out")
        leave_out_xla(sources)
    say(f"Horovod is built with {tools.compiler} and CMake {'.'.join(map(str, tools.cmake_version))}; some minutes")
    place.pip(
        ["wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir", "-w", str(directory), str(sources)],
        "Horovod could not be built",
        {
            **options.environment,
            **tools.environment,
            "MAKEFLAGS": f"-j{jobs}",
            # Headers of its Gloo count on another one to include this, which those of GCC 13 do no more.
            "CXXFLAGS": f"{os.environ.get('CXXFLAGS', '')} -include cstdint".strip(),
        },
    )
    wheel = kept_wheel(directory)
    assert wheel is not None
    return wheel


def keep(wheel: Path, directory: Path) -> Path:
    """Copy a wheel into a directory of the cache, where nobody ever sees a part of it."""
    directory.mkdir(parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(dir=directory)
    os.close(descriptor)
    shutil.copyfile(wheel, part)
    os.replace(part, directory / wheel.name)
    return directory / wheel.name


def missing_header(sources: Path, tensorflow: InstalledTensorFlow, compiler: str) -> str | None:
    """Return the first header that Horovod's XLA ops need, directly or by others, and TensorFlow has not; or None.

    Args:
        sources: the directory of the unpacked sdist.
        tensorflow: whose headers are looked for.
        compiler: looks for them.
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
    """Change the build so that it leaves out the XLA ops.

    Raises:
        BuildError: if these are not the sources that this was written for.
    """
    _replace(
        sources / "horovod" / "tensorflow" / "CMakeLists.txt",
        f'list(APPEND TF_SOURCES "${{PROJECT_SOURCE_DIR}}/horovod/tensorflow/{XLA_OPS}")\n',
        "",
    )


def leave_out_debug_info(sources: Path) -> None:
    """Change the build so that it makes no debugging information: two fifths of the time, and most of the wheel.

    Raises:
        BuildError: if these are not the sources that this was written for.
    """
    optimized = 'string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")\n'
    _replace(sources / "CMakeLists.txt", optimized, 'set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -DNDEBUG")\n')


def spare_distutils(sources: Path) -> None:
    """Have `horovodrun` find programs without distutils, which Python has no more from 3.12 on.

    Raises:
        BuildError: if these are not the sources that this was written for.
    """
    _replace(
        sources / "horovod" / "runner" / "js_run.py",
        "from distutils.spawn import find_executable\n",
        "from shutil import which as find_executable\n",
    )


def _unpacked(sdist: Path, directory: Path) -> Path:
    """Unpack an sdist, and return the directory of the sources.

    Raises:
        BuildError: if it is none.
    """
    try:
        with tarfile.open(sdist) as archive:
            # Older patch releases of Python 3.10 and 3.11 have no filters.
            archive.extractall(directory, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    except (OSError, tarfile.TarError) as error:
        raise BuildError(
            f"{sdist} is not an sdist of Horovod ({error}). Get it: pip {SDIST_ONLY} {REQUIREMENT}"
        ) from error
    return next(path.parent for path in directory.glob("*/setup.py"))


def _advice(said: str) -> str:
    """Return what to do about a failure, if what was said tells."""
    if "connection" in said.lower() or "No matching distribution" in said or "name resolution" in said:
        return (
            ": is there a network? Behind a proxy set HTTPS_PROXY, for a mirror PIP_INDEX_URL. Without a network, give "
            f"--sdist the file that `pip {SDIST_ONLY} {REQUIREMENT}` gets elsewhere, and have pip "
            f"find {', '.join(PYTHON_TOOLS)} in a directory by PIP_NO_INDEX=1 and PIP_FIND_LINKS."
        )
    if "No space left" in said:
        return ": the disk is full; the environment variable TMPDIR names another one for the gigabyte of a build."
    if "Killed signal" in said or ("cc1plus" in said and "fatal error: Killed" in said):
        return ": the memory did not suffice; fewer compilers at once need less: --jobs 1"
    return "."


def _last_lines(text: str, count: int = 25) -> str:
    return "\n".join(text.rstrip().splitlines()[-count:])


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text() if path.exists() else ""
    if text.count(old) != 1:
        raise BuildError(f"{path} has not the line {old.strip()!r}: these are not the sources of a known Horovod.")
    path.write_text(text.replace(old, new))
