"""Lazy import of Horovod."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import tpk

BUILD_COMMAND = "python -m tpk_horovod.build"


def load_horovod() -> Any:
    """Return the module `horovod.tensorflow`.

    Raises:
        PluginImportError: if Horovod is not installed, was built without TensorFlow or for another one, or can
            communicate neither with Gloo nor with MPI; the message gives the command that builds it.
    """
    try:
        import horovod.tensorflow as hvd
    except (ImportError, tf.errors.NotFoundError) as error:
        reason = str(error).strip().split("\n")[0]
        raise tpk.PluginImportError(
            f"this training run needs Horovod, built for TensorFlow {tf.__version__}, but it cannot be imported "
            f"({reason}). Build it with `{BUILD_COMMAND}`."
        ) from error
    if not (hvd.gloo_built() or hvd.mpi_built()):
        raise tpk.PluginImportError(
            f"the installed Horovod was built with neither Gloo nor MPI, so its processes cannot communicate. Build it "
            f"with `{BUILD_COMMAND}`."
        )
    return hvd
