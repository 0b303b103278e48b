"""Feed-free predictor: it takes its data from an input source, within the graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.input_source.base import InputSource
from tpk.plugin import Callback, HookManager
from tpk.predict.config import PredictConfig, PredictGraph
from tpk.session.hooked import HookedSession


class FeedfreePredictor:
    """Runs the datapoints of an input source through a model: each call takes the next one.

    Reading, copying to the device and computing go on at the same time, as in a training. The callbacks of the source
    see this predictor where they would see the trainer. It is a context manager, at whose end it is closed.

    Args:
        config: the model, its weights and outputs; its `input_names` have no meaning here.
        input_source: where the data comes from. Most repeat their data for ever unless made with ``infinite=False``.

    Attributes:
        graph: the `tf.Graph`.
        sess: the raw session.
        hooked_sess: the session that runs the callbacks of the source along.

    Raises:
        ConfigError: if `input_source` is none.
        CheckpointError, TowerError, InputError: see `OfflinePredictor`.

    Example:
        ```python
        source = tpk.QueueInput(BatchData(images, 64, remainder=True), infinite=False)
        with tpk.FeedfreePredictor(config, source) as predictor:
            for (probabilities,) in predictor:
                ...
        ```
    """

    def __init__(self, config: PredictConfig, input_source: InputSource) -> None:
        if not isinstance(input_source, InputSource):
            raise ConfigError(
                f"FeedfreePredictor takes a tpk.InputSource, not {input_source!r}. Wrap an iterable of datapoints in "
                "tpk.QueueInput(..., infinite=False), or use a SimpleDatasetPredictor."
            )
        self._source = input_source
        self._hooks = HookManager()
        self._delivered = 0
        self._resources = ExitStack()
        with self._resources:
            self._start(config)
            self._resources = self._resources.pop_all()

    def __call__(self) -> Any:
        """Return the outputs for the next datapoint: a list of arrays, or a dict, as `output_names` was given.

        Raises:
            tf.errors.OutOfRangeError: if the data is at its end.
            SessionError: if the predictor has been closed.
            Exception: what the user's data code raised.
        """
        try:
            results = self.hooked_sess.run(self._fetches)
        except tf.errors.OutOfRangeError as error:
            raise tf.errors.OutOfRangeError(
                None,
                None,
                f"the data of FeedfreePredictor ({type(self._source).__name__}) is at its end, after "
                f"{self._delivered} datapoints. Iterate the predictor, which ends then; reset_state() begins anew.",
            ) from error
        self._delivered += 1
        return results

    def __iter__(self) -> Iterator[Any]:
        """Return the outputs for each datapoint that is left, until the end of the data."""
        while True:
            try:
                results = self()
            except tf.errors.OutOfRangeError:
                return
            yield results

    def reset_state(self) -> None:
        """Start the data from the beginning."""
        self._source.reset_state()
        self._delivered = 0

    def close(self) -> None:
        """End the data, and close the session. It may be closed twice."""
        self._resources.close()

    def __enter__(self) -> FeedfreePredictor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start(self, config: PredictConfig) -> None:
        built = PredictGraph(config)
        self.graph = built.graph
        with self.graph.as_default():
            callbacks = self._source.setup(built.tower_func.input_signature)
            tower = built.add_tower(config.device, self._source.get_input_tensors)
            self._hooks.register_all(callbacks)
            for callback in callbacks:
                if isinstance(callback, Callback):
                    callback.trainer = self  # type: ignore[assignment]
            self._hooks.hook.setup_graph(trainer=self)
        self._fetches = tower.fetches
        self.sess = built.create_session()
        self._resources.callback(self.sess.close)
        self.graph.finalize()
        self._resources.callback(self._stop)
        self._hooks.hook.before_train(trainer=self)
        self.hooked_sess = HookedSession(self.sess, self._hooks.compile_step())

    def _stop(self) -> None:
        for failure in self._hooks.after_train(self):  # type: ignore[arg-type]
            raise failure
