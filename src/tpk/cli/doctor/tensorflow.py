"""TensorFlow and Horovod, as they are when they are imported; by another process, which may crash or hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from tpk.cli.doctor.finding import Finding

_BUILD_HOROVOD = "build it with `python -m tpk_horovod.build`, of the package tpk-horovod."


def look_at_tensorflow(timeout: float = 120.0) -> Iterator[Finding]:
    """Import TensorFlow and Horovod, and run a session.

    Args:
        timeout: the seconds that it may take.
    """
    environment = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), *sys.path])),
    }
    command = [sys.executable, "-m", "tpk.cli.doctor.probe"]
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        try:
            probe = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            remedy = "what is it waiting for? `python -X faulthandler -c 'import tensorflow'` tells on SIGABRT."
            yield Finding("failed", "import tensorflow", f"takes more than {timeout:g} s", remedy)
            return
        errors.seek(0)
        lines = [line for line in errors.read().splitlines() if line.strip()]
    seen = [json.loads(line) for line in probe.stdout.decode().splitlines()]
    yield from findings_of(dict(seen), probe.returncode, lines[-1] if lines else "")


def findings_of(seen: Mapping[str, Any], status: int, last_line: str) -> Iterator[Finding]:
    """Return what is to be said of what a probe has seen.

    Args:
        seen: what it has told, as far as it came; see `tpk.cli.doctor.probe`.
        status: its exit status.
        last_line: what it wrote to stderr last.
    """
    if "tensorflow" not in seen:
        found = f"ended the process with exit status {status}: {last_line}" if status else last_line
        yield Finding(
            "failed", "import tensorflow", found, "install it anew, in a new environment: pip install tensorflow"
        )
        return
    if seen["tensorflow"]["error"]:
        remedy = "the versions above may not go together; or install it anew, in a new environment."
        yield Finding("failed", "import tensorflow", seen["tensorflow"]["error"], remedy)
        return
    yield Finding("ok", "import tensorflow", f"{seen['tensorflow']['version']}, from {seen['tensorflow']['path']}")
    if "devices" in seen:
        yield from _devices(seen["devices"])
    for name in ("session", "tf.keras"):
        if name in seen:
            error = seen[name]["error"]
            state = "ok" if error is None else "failed" if name == "session" else "warning"
            yield Finding(state, name, error or seen[name]["found"], _REMEDIES[name] if error else "")
    if seen.get("horovod"):
        yield _horovod(seen["horovod"])
    if status:
        remedy = "TensorFlow, or what it loads, has a fault; its own words: run with TF_CPP_MIN_LOG_LEVEL=0."
        yield Finding("failed", "TensorFlow", f"ended the process with exit status {status}: {last_line}", remedy)


_REMEDIES = {
    "session": "no training can run; with TF_CPP_MIN_LOG_LEVEL=0, TensorFlow tells more.",
    "tf.keras": "tpk needs it for KerasModel only; see the versions of keras and tf-keras.",
}


def _devices(devices: Mapping[str, Any]) -> Iterator[Finding]:
    for gpu in devices["gpus"]:
        yield Finding("ok", "GPU", gpu)
    if not devices["gpus"]:
        # That there is none is no fault where nobody wants one.
        yield Finding("ok" if devices["is_expected"] else "warning", "GPU", f"none is used. {devices['why']}")
    yield Finding("ok", "CPU", f"{devices['cores']} cores; as many logical devices as a strategy is given")


def _horovod(horovod: Mapping[str, Any]) -> Finding:
    if horovod["error"]:
        return Finding("failed", "Horovod", horovod["error"], _BUILD_HOROVOD)
    built = [name for name, is_built in horovod["built"].items() if is_built]
    found = f"{horovod['version']}, built with {', '.join(built) or 'nothing to communicate by'}"
    if not {"Gloo", "MPI"} & set(built):
        return Finding("failed", "Horovod", found, f"its processes cannot talk to each other: {_BUILD_HOROVOD}")
    return Finding("ok", "Horovod", found)
