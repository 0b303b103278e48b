"""What Horovod is built for: a TensorFlow, a Python, and ways to communicate."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from tpk.errors import TpkError

HOROVOD_VERSION = "0.28.1"
"""The last release there has been."""

RECIPE = 1
"""Changes whenever what is built from the same sources does."""

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
    """Horovod cannot be built here; the message has the command that helps."""


@attrs.frozen
class InstalledTensorFlow:
    """The TensorFlow that this interpreter imports.

    Attributes:
        version: such as ``"2.21.0"``.
        include: the directory of its headers.
        flags: how C++ has to be compiled for it: the standard, and the ABI of the standard library.
        cuda: whether it was built with CUDA.
    """

    version: str
    include: str
    flags: tuple[str, ...] = attrs.field(converter=tuple)
    cuda: bool


@attrs.frozen
class Options:
    """What Horovod communicates by; Gloo always.

    Attributes:
        mpi: whether by MPI, too.
        nccl: whether by NCCL between GPUs.
    """

    mpi: bool = False
    nccl: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which Horovod's build is told."""
        return {
            "HOROVOD_WITH_TENSORFLOW": "1",
            "HOROVOD_WITH_GLOO": "1",
            "HOROVOD_WITHOUT_PYTORCH": "1",
            "HOROVOD_WITHOUT_MXNET": "1",
            ("HOROVOD_WITH_MPI" if self.mpi else "HOROVOD_WITHOUT_MPI"): "1",
            **({"HOROVOD_GPU_OPERATIONS": "NCCL"} if self.nccl else {}),
        }


def installed_tensorflow(python: str = sys.executable) -> InstalledTensorFlow:
    """Return the TensorFlow of an interpreter, which is imported in another process.

    Raises:
        BuildError: if there is none, or it cannot be imported.
    """
    install = f"Install it, for example: {install_command('tensorflow', python)}"
    if python == sys.executable and importlib.util.find_spec("tensorflow") is None:
        raise BuildError(f"TensorFlow is not installed, and Horovod has to be built for one. {install}")
    described = subprocess.run(
        [python, "-c", _DESCRIBE],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if described.returncode:
        last = described.stderr.strip().rpartition("\n")[2]
        raise BuildError(f"TensorFlow cannot be imported, so that Horovod cannot be built for it ({last}). {install}")
    return InstalledTensorFlow(**json.loads(described.stdout.strip().rpartition("\n")[2]))


def cache_key(tensorflow: InstalledTensorFlow, options: Options, environ: Mapping[str, str] = os.environ) -> str:
    """Return the name under which a wheel is kept: the same for whom the same wheel will do.

    Args:
        tensorflow: for which it is.
        options: what it communicates by.
        environ: the environment, of which the settings of a build are a part.
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
    """Return how a package is installed in this environment, for messages."""
    # To look for the module would have setuptools warn about distutils.
    if any(importlib.metadata.distributions(name="pip")):
        return f"{python} -m pip install {package}"
    return f"uv pip install --python {python} {package}"


def kept_wheel(directory: Path) -> Path | None:
    """Return the wheel that is in a directory of the cache."""
    return next(iter(sorted(directory.glob("horovod-*.whl"))), None)
