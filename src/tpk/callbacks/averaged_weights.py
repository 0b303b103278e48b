"""Callbacks that see the averages of the weights instead of the weights."""

from __future__ import annotations

import tpk
from tpk.callbacks.savers import ModelSaver
from tpk.callbacks.triggers import Every, ProxyCallback, TimedCallback
from tpk.errors import ConfigError, HookError
from tpk.graph.optimizers.weight_averages import averaged_weights, averages_in
from tpk.plugin.callback import Callback


class WithAveragedWeights(ProxyCallback):
    """Triggers a callback while the variables have the values of their moving averages.

    A `MovingAverageOptimizer` maintains the averages. The callback's `trigger` sees them: an `InferenceRunner`
    evaluates them, a `ModelSaver` saves them under the names of the variables. Afterwards the variables have their own
    values again, bit by bit. All other hooks of the callback see the variables as they are.

    A checkpoint saved this way is for inference and holds variables only. Save it in a separate directory, and
    resume from an ordinary checkpoint, which has both weights and averages. To choose other times, wrap it:
    ``PeriodicTrigger(WithAveragedWeights(...), every_k_epochs=5)``.

    Args:
        callback: one that implements `trigger`: an instance, a class, a name, ``"module:attr"``, or `tpk.use`.

    Raises:
        HookError: if the callback does not implement `trigger`, or does something else at the end of an epoch.
        ConfigError: if the callback is a proxy; and, when the training is set up, if the graph has no averages.

    Example:
        ```python
        callbacks = [
            tpk.ModelSaver(),
            WithAveragedWeights(tpk.ModelSaver(checkpoint_dir="averaged")),
            WithAveragedWeights(tpk.InferenceRunner(test_batches, tpk.ScalarStats("cost"))),
        ]
        ```
    """

    extra_hooks = ("setup_graph",)

    def check_callback(self, callback: Callback) -> None:
        """Raise an error if `callback` does anything but `trigger` at the end of an epoch."""
        if isinstance(callback, ProxyCallback):
            raise ConfigError(
                f"WithAveragedWeights({callback!r}) would not be asked when {callback.cb!r} is triggered. Put it "
                f"inside: {type(callback).__name__}(WithAveragedWeights({callback.cb!r}), ...)."
            )
        if isinstance(callback, TimedCallback):
            triggers_each_epoch = callback.when == Every(epochs=1)
        else:
            # Bound methods are equal if they are the same method of the same object.
            triggers_each_epoch = callback.hook_implementations().get("trigger_epoch") == callback.trigger
        if not triggers_each_epoch:
            raise HookError(
                f"WithAveragedWeights changes what `trigger` sees, but {callback!r} does not implement it, or does "
                "something else in `trigger_epoch`. Move the code that needs the averages to `trigger`."
            )
        if isinstance(callback, ModelSaver):
            callback.leave_out_state()

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Check that there are averages, before an hour-long first epoch, and let the callback set up the graph."""
        averages_in(trainer.graph)
        self.call("setup_graph", trainer)

    def trigger_epoch(self, trainer: tpk.Trainer) -> None:
        """Trigger the callback with the averages."""
        self.trigger(trainer)

    def trigger(self, trainer: tpk.Trainer) -> None:
        """Trigger the callback with the averages."""
        with averaged_weights(trainer.sess):
            super().trigger(trainer)
