"""Horovod itself: imported when a training needs it, and not before."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import tpk

BUILD_COMMAND = "python -m tpk_horovod.build"


def load_horovod() -> Any:
    """Return the module `horovod.tensorflow`.

    Raises:
        PluginImportError: if Horovod is not installed, was built without TensorFlow or for another one, or can
            communicate neither by Gloo nor by MPI; the message has the command that builds it.
    """
    try:
        import horovod.tensorflow as hvd
    except (ImportError, tf.errors.NotFoundError) as error:
        reason = str(error).strip().split("\n")[0]
        raise tpk.PluginImportError(
            f"this training needs Horovod, built for TensorFlow {tf.__version__}; but it cannot be imported "
            f"({reason}). Build it with `{BUILD_COMMAND}`."
        ) from error
    if not (hvd.gloo_built() or hvd.mpi_built()):
        raise tpk.PluginImportError(
            f"the Horovod that is installed was built with neither Gloo nor MPI, so its processes cannot talk to each "
            f"other. Build it with `{BUILD_COMMAND}`."
        )
    return hvd
