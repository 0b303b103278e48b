"""Callbacks that run ops of the graph."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.plugin import Callback

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class RunOp(Callback):
    """Runs an op before the training, at each trigger, or along with each step.

    Args:
        op: an op; or a function without arguments that builds and returns it, called in `setup_graph`. A
            tensor stands for the op that makes it, a list for all of its ops.
        run_before: run it once before the first epoch.
        run_as_trigger: run it at each `trigger`: at the end of each epoch, or when `PeriodicTrigger` says.
        run_step: run it along with each step, in the very same run.
        verbose: log each time that it is run.

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
        self._run_before = run_before
        self._run_as_trigger = run_as_trigger
        self._run_step = run_step
        self._verbose = verbose
        self.op: Any = None

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Build the op.

        Raises:
            ConfigError: if there is no op.
        """
        self.op = as_operation(self._build())

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Run the op."""
        self._run()

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Run the op."""
        self._run()

    def before_run(self, run_context: Any) -> Any:
        """Return the op, to be run along with the step."""
        if self._verbose:
            self._log()
        return self.op

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of those times at which the op is run."""
        wanted = {
            "before_train": self._run_before,
            "before_run": self._run_step,
            "trigger_epoch": self._run_as_trigger,
        }
        hooks = super().hook_implementations()
        return {name: hook for name, hook in hooks.items() if wanted.get(name, True)}

    def _run(self) -> None:
        if self._verbose:
            self._log()
        self.trainer.sess.run(self.op)

    def _log(self) -> None:
        logger.info("running op %s", self.op.name)


class RunUpdateOps(Callback):
    """Runs the ops of a collection along with each step, such as the updates of batch normalization's
    averages.

    An op that a tower function made reads trained variables as they were before the step, on every strategy (for what
    may be an exception, see `tpk.strategies.update_order.after_reads`). With a train op of your own, order them by
    `tf.control_dependencies`; otherwise either may be first.

    A run without such ops costs nothing.

    Args:
        collection: the name of the collection; `tf.compat.v1.GraphKeys.UPDATE_OPS` by default.
    """

    chief_only = False

    def __init__(self, collection: str = tf.compat.v1.GraphKeys.UPDATE_OPS) -> None:
        self.collection = collection
        self.op: Any = None

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Group the ops that the collection holds by now."""
        ops = tf.compat.v1.get_collection(self.collection)
        if ops:
            logger.debug("%d ops of the collection %r run along with each step", len(ops), self.collection)
            self.op = as_operation(ops, name=f"run_{self.collection}")

    def before_run(self, run_context: Any) -> Any:
        """Return the ops, as one, to be run along with the step."""
        return self.op


def as_operation(value: Any, name: str | None = None) -> Any:
    """Return the `tf.Operation` that stands for `value`.

    Args:
        value: an op, a tensor, what assigning a variable returned, or a list or tuple of these.
        name: of the op that groups several.

    Raises:
        ConfigError: if `value` is none of these.
    """
    if isinstance(value, list | tuple) and value:
        return tf.group(*(as_operation(part) for part in value), name=name)
    operation = getattr(value, "op", value)
    if not isinstance(operation, tf.Operation):
        raise ConfigError(f"expected an op, or a function that returns one, but got {value!r}.")
    return operation
