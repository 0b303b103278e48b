"""Callbacks that see the averages of the weights in place of the weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from tpk.callbacks.savers import ModelSaver
from tpk.callbacks.triggers import ProxyCallback
from tpk.errors import ConfigError, HookError
from tpk.graph.optimizers.weight_averages import WEIGHT_AVERAGES_KEY, averaged_weights
from tpk.plugin.callback import Callback

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


class WithAveragedWeights(ProxyCallback):
    """Triggers a callback while the variables have the values of their moving averages.

    The averages are those that a `MovingAverageOptimizer` maintains. Whatever the callback does in `trigger` sees them:
    an `InferenceRunner` evaluates them, a `ModelSaver` saves them under the names of the variables. Afterwards the
    variables have their own values again, bit by bit. All other hooks of the callback see the variables as they are.

    A checkpoint that is saved in this way is for inference, and holds variables only. Save in a directory of its own,
    and resume a training from an ordinary checkpoint, which holds both weights and averages. To choose other times, put
    it inside: ``PeriodicTrigger(WithAveragedWeights(...), every_k_epochs=5)``.

    Args:
        callback: one that implements `trigger`: an instance, a class, a name, ``"module:attr"``, or `tpk.use`.

    Raises:
        HookError: if the callback does not implement `trigger`, or does something else at the end of an epoch.
        ConfigError: if it stands in for another callback itself; and, when the training is set up, if the graph has no
            averages.

    Example:
        ```python
        callbacks = [
            tpk.ModelSaver(),
            WithAveragedWeights(tpk.ModelSaver(checkpoint_dir="averaged")),
            WithAveragedWeights(tpk.InferenceRunner(test_batches, tpk.ScalarStats("cost"))),
        ]
        ```
    """

    def check_callback(self, callback: Callback) -> None:
        """See to it that `trigger` of the callback is what saves or evaluates.

        Raises:
            HookError, ConfigError: if it is not.
        """
        if isinstance(callback, ProxyCallback):
            raise ConfigError(
                f"WithAveragedWeights({callback!r}) would not be asked when {callback.cb!r} is triggered. Put it "
                f"inside: {type(callback).__name__}(WithAveragedWeights({callback.cb!r}), ...)."
            )
        # Bound methods are equal if they are the same method of the same object.
        if callback.hook_implementations().get("trigger_epoch") != callback.trigger:
            raise HookError(
                f"WithAveragedWeights changes what `trigger` sees, but {callback!r} does not implement it, or does "
                "something else in `trigger_epoch`. Move what is to see the averages to `trigger`."
            )
        if isinstance(callback, ModelSaver):
            callback.weights_only = True

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Trigger the callback with the averages in place."""
        with averaged_weights(self.trainer.sess):
            super().trigger(trainer)

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks of the callback, with the averages in place when it is triggered."""
        hooks = self.cb.hook_implementations()

        # What `functools.wraps` copies includes the callback's place in the order of calls.
        @wraps(self.cb.trigger)
        def trigger(*_: Any) -> None:
            self.trigger(self.trainer)

        return {**hooks, "trigger_epoch": trigger, "setup_graph": self._checked(hooks.get("setup_graph"))}

    def _checked(self, setup_graph: Callable[..., Any] | None) -> Callable[..., Any]:
        """Return `setup_graph` with a check before it: an hour-long first epoch is no time to find out."""
        if setup_graph is None:
            return self._check_averages

        @wraps(setup_graph)
        def checked(*arguments: Any) -> Any:
            self._check_averages(self.trainer)
            return setup_graph(*arguments)

        return checked

    def _check_averages(self, trainer: TrainerProtocol) -> None:
        if not trainer.graph.get_collection(WEIGHT_AVERAGES_KEY):
            raise ConfigError(
                f"{self!r}: the graph has no averages of weights. Let the model's optimizer maintain them: "
                "return MovingAverageOptimizer(optimizer)."
            )
