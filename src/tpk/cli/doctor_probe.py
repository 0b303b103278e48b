"""The process in which ``tpk doctor`` imports TensorFlow. It prints each finding as JSON before the next may crash."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator

import attrs

from tpk.cli.doctor import Finding


def main() -> None:
    """Import TensorFlow, list its devices, and run a graph."""
    # The output of libraries goes to stderr, even if they write to the file descriptor.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    more = "with TF_CPP_MIN_LOG_LEVEL=0, TensorFlow logs more."
    installing = "pip install tensorflow; if it is installed, `pip check` lists versions that do not fit together."
    for look, remedy in ((import_tensorflow, installing), (devices, more), (session, f"no graph can run; {more}")):
        try:
            for finding in look():
                print(json.dumps(attrs.asdict(finding)), file=out)
        except Exception as error:
            found = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            finding = Finding("failed", look.__name__.replace("_", " "), found, remedy)
            print(json.dumps(attrs.asdict(finding)), file=out)
            return


def import_tensorflow() -> Iterator[Finding]:
    """Return the version of TensorFlow and where it is."""
    import tensorflow as tf

    is_tested = (2, 15) <= tuple(map(int, tf.__version__.split(".")[:2])) <= (2, 21)
    remedy = "" if is_tested else "tpk is tested with TensorFlow 2.15 to 2.21."
    found = f"{tf.__version__}, from {os.path.dirname(tf.__file__)}"
    yield Finding("ok" if is_tested else "warning", "import tensorflow", found, remedy)


def devices() -> Iterator[Finding]:
    """Return the GPUs that TensorFlow sees, or why it sees none, and the number of CPU cores."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    for number, gpu in enumerate(gpus):
        details = tf.config.experimental.get_device_details(gpu)
        capability = ".".join(map(str, details.get("compute_capability", ()))) or "unknown"
        name = details.get("device_name", gpu.name)
        yield Finding("ok", "GPU", f"/gpu:{number}: {name}, compute capability {capability}")
    if not gpus:
        has_gpu = os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")
        yield Finding("warning" if has_gpu else "ok", "GPU", f"TensorFlow uses none. {why_no_gpu()}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("ok", "CPU", f"{cores} cores; a strategy gets as many logical devices as it is given")


def why_no_gpu() -> str:
    """Return the likely reason why TensorFlow sees no GPU, and what to do about it."""
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
        "'tensorflow[and-cuda]'. With TF_CPP_MIN_LOG_LEVEL=0, TensorFlow logs which library it could not load."
    )


def session() -> Iterator[Finding]:
    """Run a graph."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        v = tf.compat.v1.get_variable("v", [2], initializer=tf.compat.v1.ones_initializer())
        sess.run(v.initializer)
        total = float(sess.run(tf.reduce_sum(v * 2.0)))
    if total != 4.0:
        raise ArithmeticError(f"1 * 2 + 1 * 2 came to {total}")
    yield Finding("ok", "session", "a graph runs")


if __name__ == "__main__":
    main()
