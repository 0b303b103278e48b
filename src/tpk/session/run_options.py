"""Run options of several requests, merged into those of the one run that serves them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def merge_run_options(options: Iterable[Any]) -> Any | None:
    """Return `tf.compat.v1.RunOptions` that give each request what it asked for; None if nobody asked.

    The rules are those of TensorFlow's `MonitoredSession`: the most detailed trace, the longest timeout, the
    partition graphs if anyone wants them, and all tensor watches.
    """
    asked = [option for option in options if option is not None]
    if len(asked) <= 1:
        return asked[0] if asked else None
    merged = tf.compat.v1.RunOptions()
    merged.CopyFrom(asked[0])
    for option in asked[1:]:
        merged.trace_level = max(merged.trace_level, option.trace_level)
        merged.timeout_in_ms = max(merged.timeout_in_ms, option.timeout_in_ms)
        merged.inter_op_thread_pool = max(merged.inter_op_thread_pool, option.inter_op_thread_pool)
        merged.output_partition_graphs = merged.output_partition_graphs or option.output_partition_graphs
        merged.debug_options.debug_tensor_watch_opts.extend(option.debug_options.debug_tensor_watch_opts)
    return merged
