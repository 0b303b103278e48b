"""Where an error of a session's run came from."""

from __future__ import annotations

from collections.abc import Collection

import tensorflow as tf


def comes_from(error: BaseException, op_names: Collection[str]) -> bool:
    """Tell whether one of these ops raised the error.

    Args:
        error: what a run of the session raised, by way of `Session.run` or of a callable.
        op_names: names of ops.
    """
    if not isinstance(error, tf.errors.OpError):
        return False
    # Only the message tells in every case: the `op` of what a callable raises is None.
    return any(mention in error.message for name in op_names for mention in (f"{{{{node {name}}}}}", f"[[{name}]]"))
