"""Evaluation during training: an inference tower beside the training towers, run over a data set of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tpk.callbacks.inferencers import Inferencer
from tpk.errors import ConfigError, InputError
from tpk.input_source import FeedInput, InputSource
from tpk.plugin import Callback, HookManager
from tpk.session import HookedSession, Progress

DEFAULT_TOWER_NAME = "InferenceTower"


class InferenceRunner(Callback):
    """Runs the model over a data set at the end of each epoch, and reports what the inferencers make of it.

    The model is built once more as an inference tower, which shares the variables of the training.

    Args:
        input: the data: any iterable of datapoints with a length, or an `InputSource` with a size. One pass over it
            is made each time.
        infs: one or more `Inferencer`s.
        tower_name: the name scope of the tower; give another one to a second runner.
        device: the device of the tower; by default TensorFlow places the ops.

    Raises:
        ConfigError: if there is no inferencer, the data has no length, or the trainer has no towers.

    Example:
        ```python
        tpk.InferenceRunner(test_batches, [tpk.ScalarStats(["cost", "accuracy"]), tpk.ClassificationError()])
        ```
    """

    def __init__(
        self,
        input: InputSource | Iterable[Any],
        infs: Inferencer | Sequence[Inferencer],
        tower_name: str = DEFAULT_TOWER_NAME,
        device: str | None = None,
    ) -> None:
        self._inferencers = [infs] if isinstance(infs, Inferencer) else list(infs)
        for inferencer in self._inferencers:
            if not isinstance(inferencer, Inferencer):
                raise ConfigError(f"InferenceRunner takes Inferencers, such as tpk.ScalarStats, got {inferencer!r}.")
        if not self._inferencers:
            raise ConfigError("InferenceRunner was given no Inferencer, so it would report nothing.")
        self._source = input if isinstance(input, InputSource) else FeedInput(input, infinite=False)
        if not self._source.size:
            raise ConfigError(
                f"InferenceRunner needs data of a known length, but {type(input).__name__} has "
                f"{'length 0' if self._source.size == 0 else 'none'}. Give a list, or a DataFlow with __len__."
            )
        self._tower_name = tower_name
        self._device = device
        self._fetches: list[Any] = []
        # The callbacks of the data have hooks of their own: they run with the steps of the evaluation.
        self._input_hooks = HookManager()
        self._session: HookedSession | None = None

    def setup_graph(self, trainer: Any) -> None:
        """Build the inference tower."""
        if not hasattr(trainer, "build_inference_tower"):
            raise ConfigError(
                f"InferenceRunner needs a trainer with towers, but {type(trainer).__name__} is no TowerTrainer. "
                "Evaluate in a callback of your own."
            )
        callbacks = self._source.setup(trainer.tower_func.input_signature)
        self._input_hooks.register_all(callbacks)
        for callback in callbacks:
            callback.trainer = trainer
        tower = trainer.build_inference_tower(self._tower_name, self._source.get_input_tensors(), device=self._device)
        self._fetches = [inferencer.get_fetches(tower) for inferencer in self._inferencers]
        self._input_hooks.hook.setup_graph(trainer=trainer)

    def before_train(self, trainer: Any) -> None:
        """Start the data."""
        self._input_hooks.hook.before_train(trainer=trainer)
        translators = [getattr(plugin, "translate_error", None) for plugin in self._input_hooks.plugins.values()]
        self._session = HookedSession(
            trainer.sess,
            self._input_hooks.compile_step(),
            Progress(),
            translators=[translate for translate in translators if translate is not None],
        )

    def trigger(self) -> None:
        """Make one pass over the data.

        Raises:
            InputError: if it ends before its length.
        """
        assert self._session is not None and self._source.size is not None
        for inferencer in self._inferencers:
            inferencer.before_inference()
        self._source.reset_state()
        for batch in range(self._source.size):
            for inferencer, results in zip(self._inferencers, self._run_batch(batch), strict=True):
                inferencer.on_fetches(results)
        for inferencer in self._inferencers:
            for name, value in inferencer.after_inference().items():
                self.trainer.monitors.put_scalar(name, value)

    def _run_batch(self, batch: int) -> Any:
        assert self._session is not None
        try:
            return self._session.run(self._fetches)
        except tf.errors.OutOfRangeError as error:
            # Were it to leave here as it is, the loop would take it for the end of the training's own data.
            raise InputError(
                f"the data of {self.name} says that it has {self._source.size} datapoints, but ended after {batch}. "
                "Give it the length that it really has."
            ) from error

    def after_train(self, trainer: Any) -> None:
        """Stop the data.

        Raises:
            BaseException: the first failure of a callback of the data.
        """
        for failure in self._input_hooks.after_train(trainer):
            raise failure
