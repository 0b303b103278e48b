"""Evaluating a model: means of its metrics over the data, in a dict and in an event file."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk_estimator.spec import EstimatorSpec

logger = logging.getLogger(__name__)
v1 = tf.compat.v1

_RESERVED = ("loss", "global_step")


def evaluate_spec(
    spec: EstimatorSpec, hooks: Sequence[Any], checkpoint_path: str | None, master: str, session_config: Any
) -> dict[str, Any]:
    """Evaluate a model that is built in the default graph, until a hook or the end of the input stops it.

    Args:
        spec: the model.
        hooks: session hooks.
        checkpoint_path: the values of the variables; None for their initial values.
        master: the server to use; empty for this process.
        session_config: a `tf.compat.v1.ConfigProto`.

    Returns:
        The metrics by name, with ``loss`` and ``global_step``.
    """
    values, update_op = _metrics(spec)
    final = v1.train.FinalOpsHook({**values, "global_step": v1.train.get_global_step()})
    scaffold = spec.scaffold
    if scaffold.local_init_op is not None:
        # It does not initialize the metrics. The default one does, and comes first: both may set the same variables.
        hooks = [_RunOnce(scaffold.local_init_op), *hooks]
        default = v1.train.Scaffold.default_local_init_op()
        scaffold = v1.train.Scaffold(local_init_op=default, copy_from_scaffold=scaffold)
    creator = v1.train.ChiefSessionCreator(
        scaffold, master, session_config, checkpoint_filename_with_path=checkpoint_path
    )
    with v1.train.MonitoredSession(creator, [*hooks, final]) as session:
        while not session.should_stop():
            session.run(update_op)
    return dict(final.final_ops_values)


class _RunOnce(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Runs an op in a new session."""

    def __init__(self, op: Any) -> None:
        self._op = op

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._op)


class StopAfterSteps(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Stops an evaluation after a number of steps, and logs its progress."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._done = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Count a step."""
        self._done += 1
        if self._done % max(self._steps // 10, 1) == 0 or self._done == self._steps:
            logger.info("Evaluation [%d/%d]", self._done, self._steps)
        if self._done >= self._steps:
            run_context.request_stop()


def write_results(directory: str, results: Mapping[str, Any], checkpoint_path: str | None) -> None:
    """Write the results of an evaluation, and the default graph, to an event file in the directory."""
    summary = v1.Summary()
    for name, value in results.items():
        if name != "global_step" and value is not None:
            _add_value(summary, name, value)
    step = results["global_step"]
    texts = ", ".join(f"{name} = {value}" for name, value in sorted(results.items()) if not isinstance(value, bytes))
    logger.info("Saving dict for global step %d: %s", step, texts)
    writer = v1.summary.FileWriterCache.get(directory)
    writer.add_summary(summary, step)
    if checkpoint_path:
        path = v1.Summary()
        path.value.add(tag="checkpoint_path", tensor=tf.make_tensor_proto(checkpoint_path, tf.string))
        writer.add_summary(path, step)
    writer.flush()


def _metrics(spec: EstimatorSpec) -> tuple[dict[str, Any], Any]:
    """Return the values of the metrics by name, in alphabetical order, and the op that updates all of them."""
    for name in _RESERVED:
        if name in spec.eval_metric_ops:
            raise ValueError(
                f"eval_metric_ops must not contain {name!r}, which evaluate adds itself: rename the metric."
            )
    metrics = dict(sorted({**spec.eval_metric_ops, "loss": v1.metrics.mean(spec.loss)}.items()))
    updates = [update for _, update in metrics.values()]
    return {name: value for name, (value, _) in metrics.items()}, tf.group(*updates)


def _add_value(summary: Any, name: str, value: Any) -> None:
    if isinstance(value, float | np.float32 | int | np.int32 | np.int64):
        summary.value.add(tag=name, simple_value=float(value))
    elif isinstance(value, np.ndarray):
        summary.value.add(tag=name, node_name=name, tensor=tf.make_tensor_proto(value))
    elif isinstance(value, bytes):
        for position, part in enumerate(v1.Summary.FromString(value).value):
            part.tag = f"{name}/{position}"
            summary.value.append(part)
    else:
        logger.warning("the metric %r is not written to the event file: it is a %s", name, type(value).__name__)
