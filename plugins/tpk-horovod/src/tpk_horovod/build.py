"""``python -m tpk_horovod.build``: build Horovod for the installed TensorFlow, install it, and test it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from tpk_horovod.build_machine import (
    HOROVOD_VERSION,
    BuildError,
    InstalledTensorFlow,
    Options,
    cache_key,
    find_tools,
    installed_tensorflow,
    kept_wheel,
)
from tpk_horovod.build_proof import prove
from tpk_horovod.build_wheel import BuildPlace, build_wheel, keep


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: the arguments; by default `sys.argv[1:]`.

    Returns:
        The exit status: 0 if Horovod is installed and works, 1 after an error, which is printed to stderr.
    """
    arguments = _parser().parse_args(argv)
    try:
        _build_install_prove(arguments)
    except BuildError as error:
        print("tpk-horovod:", error, file=sys.stderr)
        return 1
    return 0


def cache_directory() -> Path:
    """Return the directory for cached wheels: below ``XDG_CACHE_HOME`` or, on Linux, ``~/.cache``."""
    return platformdirs.user_cache_path("tpk-horovod", appauthor=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tpk_horovod.build",
        description=f"Build Horovod {HOROVOD_VERSION} for the TensorFlow installed for {sys.executable}, install it "
        "there, and test it with two processes that sum a tensor. The wheel is cached, so it is built only once for a "
        "combination of versions and options. Needs a C++17 compiler, CMake and make; everything else is installed in "
        "a temporary directory. The environment variables of Horovod's own build, such as HOROVOD_NCCL_HOME and "
        "HOROVOD_BUILD_ARCH_FLAGS, have the same effect here.",
    )
    parser.add_argument("--mpi", action="store_true", help="build with MPI in addition to Gloo")
    parser.add_argument("--nccl", action="store_true", help="build with NCCL; needs CUDA and NCCL")
    parser.add_argument(
        "--jobs", metavar="N", type=int, default=os.cpu_count() or 1, help="number of parallel compilers"
    )
    parser.add_argument("--sdist", metavar="FILE", type=Path, help="Horovod's sdist; by default, pip downloads it")
    parser.add_argument("--rebuild", action="store_true", help="build even if the wheel is in the cache")
    return parser


def _build_install_prove(arguments: argparse.Namespace) -> None:
    if arguments.jobs < 1:
        raise BuildError(f"--jobs must be at least 1, but is {arguments.jobs}.")
    options = Options(mpi=arguments.mpi, nccl=arguments.nccl)
    tensorflow = installed_tensorflow()
    cache = cache_directory() / cache_key(tensorflow, options)
    cache.mkdir(parents=True, exist_ok=True)
    log = cache / "build.log"
    wheel = None if arguments.rebuild else kept_wheel(cache)
    with tempfile.TemporaryDirectory(prefix="tpk-horovod-") as temporary:
        place = BuildPlace(Path(temporary, "place"), log)
        if wheel is None:
            wheel = _built(arguments, tensorflow, options, place, cache, Path(temporary))
        else:
            _say(f"using the cached wheel for TensorFlow {tensorflow.version}: {wheel}")
            place.make()
        # This pip installs into the environment of the running interpreter, which may not have pip.
        place.pip(
            ["--python", sys.executable, "install", "--force-reinstall", "--no-deps", str(wheel)],
            f"{wheel} could not be installed",
        )
        place.pip(
            ["--python", sys.executable, "install", str(wheel)], "the dependencies of Horovod could not be installed"
        )
    prove()
    _say(f"Horovod {HOROVOD_VERSION} is installed, and two processes have summed a tensor with it")


def _built(
    arguments: argparse.Namespace,
    tensorflow: InstalledTensorFlow,
    options: Options,
    place: BuildPlace,
    cache: Path,
    temporary: Path,
) -> Path:
    """Build the wheel, and add it to the cache."""
    tools = find_tools(options, tensorflow)
    started = time.monotonic()
    (cache / "build.log").unlink(missing_ok=True)
    _say(f"building for TensorFlow {tensorflow.version}; the log is {cache / 'build.log'}")
    place.make()
    place.add_tools()
    work = temporary / "work"
    work.mkdir()
    wheel = build_wheel(tensorflow, options, tools, place, work, sdist=arguments.sdist, jobs=arguments.jobs, say=_say)
    kept = keep(wheel, cache)
    shutil.rmtree(work)
    _say(f"built in {time.monotonic() - started:.0f} s: {kept}")
    return kept


def _say(message: str) -> None:
    print("tpk-horovod:", message, flush=True)


if __name__ == "__main__":
    sys.exit(main())
