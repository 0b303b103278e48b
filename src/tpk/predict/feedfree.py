"""A predictor that takes its data from an input source, within the graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.input_source.base import InputSource
from tpk.input_source.hooks import SourceHooks
from tpk.predict.online import ClosesOnExit
from tpk.predict.predict_config import PredictConfig, PredictGraph
from tpk.session.hooked import HookedSession


class FeedfreePredictor(ClosesOnExit):
    """Runs the datapoints of an input source through a model: each call takes the next one.

    Reading, copying to the device and computing overlap, as in a training. The callbacks of the source see this
    predictor instead of a trainer. It is a context manager that closes itself on exit.

    Args:
        config: the model, its weights and outputs; its `input_names` are ignored.
        input_source: the source of the data. Most sources repeat their data forever unless they are created with
            ``infinite=False``.

    Attributes:
        graph: the `tf.Graph`.
        sess: the raw session.
        hooked_sess: the session that also runs the hooks of the source's callbacks.

    Raises:
        ConfigError: if `input_source` is not an `InputSource`.
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
        self._delivered = 0
        self._resources = ExitStack()
        with self._resources:
            self._start(config)
            self._resources = self._resources.pop_all()

    def __call__(self) -> Any:
        """Return the outputs for the next datapoint: a list of arrays, or a dict, as `output_names` was given.

        Raises:
            tf.errors.OutOfRangeError: if the data is exhausted.
            SessionError: if the predictor has been closed.
            Exception: an error of the user's data code.
        """
        try:
            results = self.hooked_sess.run(self._fetches)
        except tf.errors.OutOfRangeError as error:
            raise tf.errors.OutOfRangeError(
                None,
                None,
                f"the data of FeedfreePredictor ({type(self._source).__name__}) is exhausted after "
                f"{self._delivered} datapoints. Iterate over the predictor to stop at the end of the data, or call "
                "reset_state() to start again.",
            ) from error
        self._delivered += 1
        return results

    def __iter__(self) -> Iterator[Any]:
        """Yield the outputs for each remaining datapoint."""
        with suppress(tf.errors.OutOfRangeError):
            while True:
                yield self()

    def reset_state(self) -> None:
        """Start the data from the beginning."""
        self._source.reset_state()
        self._delivered = 0

    def close(self) -> None:
        """Stop the data and close the session. Calling it again does nothing."""
        self._resources.close()

    def _start(self, config: PredictConfig) -> None:
        built = PredictGraph(config)
        self.graph = built.graph
        with self.graph.as_default():
            callbacks = self._source.setup(built.tower_func.input_signature)
            tower = built.add_tower(config.device, self._source.get_input_tensors)
            hooks = SourceHooks(callbacks, self)
            hooks.call("setup_graph")
        self._fetches = tower.fetches
        self.sess = built.create_session()
        self._resources.callback(self.sess.close)
        self.graph.finalize()
        self._resources.callback(hooks.after_train)
        hooks.call("before_train")
        self.hooked_sess = HookedSession(self.sess, hooks.compile_step())
