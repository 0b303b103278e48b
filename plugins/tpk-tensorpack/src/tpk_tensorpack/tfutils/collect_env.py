"""The installed versions, as a table for problem reports."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator

import tensorflow as tf

__all__ = ["collect_env_info", "parse_TF_build_info"]

_PACKAGES = (
    "tpk",
    "tpk-tensorpack",
    "numpy",
    "opencv-python",
    "opencv-python-headless",
    "msgpack",
    "pyzmq",
)


def collect_env_info() -> str:
    """Return a table of the system, the versions of Python and libraries, and the GPUs."""
    rows = list(_rows())
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def parse_TF_build_info() -> dict[str, str]:
    """Return the build configuration of TensorFlow, such as the versions of CUDA and cuDNN."""
    return {name: str(value) for name, value in tf.sysconfig.get_build_info().items()}


def _rows() -> Iterator[tuple[str, str]]:
    yield "sys.platform", sys.platform
    yield "Python", platform.python_version()
    # The distribution may have another name, such as tensorflow-cpu.
    yield "TensorFlow", tf.__version__
    for package in _PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    build = parse_TF_build_info()
    yield "CUDA of TensorFlow", build.get("cuda_version", "none")
    yield "cuDNN of TensorFlow", build.get("cudnn_version", "none")
    yield "GPUs", ", ".join(gpu.name for gpu in tf.config.list_physical_devices("GPU")) or "none"
    yield "CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
