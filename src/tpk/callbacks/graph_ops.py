"""Callbacks that run ops of the graph."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import tpk
from tpk.errors import ConfigError
from tpk.plugin import Callback

logger = logging.getLogger(__name__)


class RunOp(Callback):
    """Runs an op before the training, at each trigger, or along with each step.

    Args:
        op: an op; or a function without arguments that builds and returns it, called in `setup_graph`. A tensor stands
            for its op, a list for all of its ops.
        run_before: whether to run it once before the first epoch.
        run_as_trigger: whether to run it at each `trigger`: at the end of each epoch, or at the times of
            `PeriodicTrigger`.
        run_step: whether to run it along with each step, in the same run.
        verbose: whether to log each of its runs.

    Example:
        ```python
        PeriodicTrigger(RunOp(build_update_of_target_network), every_k_steps=1000)
        ```
    """

    chief_only = False

    def __init__(
        self,
        op: Any | Callable[[], Any],
        run_before: bool = True,
        run_as_trigger: bool = True,
        run_step: bool = False,
        verbose: bool = False,
    ) -> None:
        self._build = op if callable(op) else lambda: op
        times = {"before_train": run_before, "trigger_epoch": run_as_trigger, "before_run": run_step}
        self.unused_hooks = {hook for hook, is_used in times.items() if not is_used}
        self._verbose = verbose
        self.op: Any = None

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Build the op."""
        self.op = as_operation(self._build())

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Run the op."""
        self._run()

    def trigger(self, trainer: tpk.Trainer) -> None:
        """Run the op."""
        self._run()

    def before_run(self, run_context: Any) -> Any:
        """Return the op."""
        self._log()
        return self.op

    def _run(self) -> None:
        self._log()
        self.trainer.sess.run(self.op)

    def _log(self) -> None:
        if self._verbose:
            logger.info("running op %s", self.op.name)


class RunUpdateOps(Callback):
    """Runs the ops of a collection along with each step, such as the updates of batch normalization's averages.

    An op that was created in a tower function reads trained variables before their update, on every strategy (see
    `tpk.strategies.update_order.after_reads` for exceptions). For your own train op, order them by
    `tf.control_dependencies`; otherwise the order is undefined. A collection without ops costs nothing.

    Args:
        collection: the name of the collection; `tf.compat.v1.GraphKeys.UPDATE_OPS` by default.
    """

    chief_only = False

    def __init__(self, collection: str = tf.compat.v1.GraphKeys.UPDATE_OPS) -> None:
        self.collection = collection
        self.op: Any = None

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Group the ops of the collection."""
        ops = tf.compat.v1.get_collection(self.collection)
        if ops:
            logger.debug("%d ops of the collection %r run along with each step", len(ops), self.collection)
            self.op = as_operation(ops, name=f"run_{self.collection}")

    def before_run(self, run_context: Any) -> Any:
        """Return the group of the ops."""
        return self.op


def as_operation(value: Any, name: str | None = None) -> Any:
    """Return `value` as a `tf.Operation`.

    Args:
        value: an op, a tensor, the result of assigning a variable, or a list or tuple of these.
        name: the name of the op that groups several ops.

    Raises:
        ConfigError: if `value` is anything else.
    """
    if isinstance(value, list | tuple) and value:
        return tf.group(*(as_operation(part) for part in value), name=name)
    operation = getattr(value, "op", value)
    if not isinstance(operation, tf.Operation):
        raise ConfigError(f"expected an op, or a function that returns one, but got {value!r}.")
    return operation
