"""Probe of TensorFlow, a process of its own: each thing that it sees leaves as a line of JSON, before it may crash."""

from __future__ import annotations

import glob
import importlib.util
import json
import os
from collections.abc import Callable
from typing import Any, TextIO


def main() -> None:
    """Import TensorFlow, and look at it."""
    # What libraries print goes to stderr, even if they do it by file descriptor.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if not _tell(out, "tensorflow", _tensorflow):
        return
    _tell(out, "devices", _devices)
    _tell(out, "session", _session)
    _tell(out, "tf.keras", _keras)
    if importlib.util.find_spec("horovod"):
        _tell(out, "horovod", _horovod)


def _tell(out: TextIO, name: str, look: Callable[[], dict[str, Any]]) -> bool:
    try:
        seen = {**look(), "error": None}
    except Exception as error:
        message = str(error).strip().split("\n")[0]
        seen = {"error": f"{type(error).__name__}: {message}"}
    print(json.dumps([name, seen]), file=out)
    return seen["error"] is None


def _tensorflow() -> dict[str, Any]:
    import tensorflow as tf

    return {"version": tf.__version__, "path": os.path.dirname(tf.__file__)}


def _devices() -> dict[str, Any]:
    import tensorflow as tf

    gpus = []
    for number, gpu in enumerate(tf.config.list_physical_devices("GPU")):
        details = tf.config.experimental.get_device_details(gpu)
        capability = ".".join(map(str, details.get("compute_capability", ())))
        gpus.append(
            f"/gpu:{number}: {details.get('device_name', gpu.name)}, compute capability {capability or 'unknown'}"
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    has_hardware = os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")
    return {"gpus": gpus, "why": "" if gpus else why_no_gpu(), "is_expected": not has_hardware, "cores": cores}


def why_no_gpu() -> str:
    """Return why TensorFlow sees no GPU, as far as that can be told, and what to do about it."""
    import tensorflow as tf

    build = tf.sysconfig.get_build_info()
    if not tf.test.is_built_with_cuda():
        if build.get("is_rocm_build"):
            return "This TensorFlow is built for ROCm, and finds no AMD GPU."
        return (
            f"TensorFlow {tf.__version__} as installed here is built without CUDA (such as tensorflow-cpu). On Linux, "
            "pip install 'tensorflow[and-cuda]'."
        )
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in ("", "-1", "none", "NoDevFiles"):
        return f"CUDA_VISIBLE_DEVICES={hidden!r} hides all GPUs. Unset it."
    if not glob.glob("/dev/nvidia[0-9]*") and not os.path.exists("/dev/dxg"):
        return "This host has no NVIDIA GPU (no /dev/nvidia*), or its container has no access to it (--gpus all)."
    return (
        f"This host has a GPU, but its driver or the libraries of CUDA {build.get('cuda_version', '')} and cuDNN "
        f"{build.get('cudnn_version', '')} are missing or do not match: install NVIDIA's driver, and pip install "
        "'tensorflow[and-cuda]'. With TF_CPP_MIN_LOG_LEVEL=0, TensorFlow says which library it could not load."
    )


def _session() -> dict[str, Any]:
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        v = tf.compat.v1.get_variable("v", [2], initializer=tf.compat.v1.ones_initializer())
        sess.run(v.initializer)
        total = float(sess.run(tf.reduce_sum(v * 2.0)))
    if total != 4.0:
        raise ArithmeticError(f"1 * 2 + 1 * 2 came to {total}")
    return {"found": "a graph runs"}


def _keras() -> dict[str, Any]:
    import tensorflow as tf

    layer = tf.keras.layers.Dense  # imports Keras
    return {"found": f"{getattr(tf.keras, '__version__', '')} from {layer.__module__.partition('.')[0]}".strip()}


def _horovod() -> dict[str, Any]:
    import horovod
    import horovod.tensorflow as hvd

    ways = {"Gloo": "gloo", "MPI": "mpi", "NCCL": "nccl", "CUDA": "cuda", "ROCm": "rocm", "oneCCL": "ccl"}
    built = {name: bool(getattr(hvd, f"{way}_built")()) for name, way in ways.items() if hasattr(hvd, f"{way}_built")}
    return {"version": horovod.__version__, "built": built}


if __name__ == "__main__":
    main()
