"""Horovod's sdist, and what of it is changed for today's TensorFlow and Python."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tpk_horovod.build_target import BuildError, InstalledTensorFlow

XLA_OPS = "xla_mpi_ops.cc"
"""Horovod's ops for programs that XLA compiles; everything else works without them."""

_HEADER = re.compile(r'^\s*#include "(tensorflow/[^"]+)"', re.MULTILINE)


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


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text() if path.exists() else ""
    if text.count(old) != 1:
        raise BuildError(f"{path} has not the line {old.strip()!r}: these are not the sources of a known Horovod.")
    path.write_text(text.replace(old, new))
