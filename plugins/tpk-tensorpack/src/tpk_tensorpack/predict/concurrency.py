"""An asynchronous predictor that batches requests from many threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import tpk.predict
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.missing import not_here
from tpk_tensorpack.predict.base import AsyncPredictorBase, OnlinePredictor

__all__ = ["MultiThreadAsyncPredictor"]

__getattr__ = not_here(
    __name__,
    {
        "MultiProcessPredictWorker": "MultiProcessDatasetPredictor",
        "MultiProcessQueuePredictWorker": "MultiProcessDatasetPredictor",
        "PredictorWorkerThread": "MultiThreadAsyncPredictor",
    },
)


class MultiThreadAsyncPredictor(AsyncPredictorBase):
    """Compute requests in batches; each is a datapoint without a batch dimension.

    Args:
        predictors: predictors, each run in its own thread.
        batch_size: the maximum number of requests in a batch.

    Raises:
        ValueError: the list of predictors is empty, or one of them returns its inputs.
        ConfigError: an input or output has no batch dimension, or a number is out of range.

    Example:
        ```python
        predictor = MultiThreadAsyncPredictor([OfflinePredictor(config)], batch_size=16)
        predictor.start()
        future = predictor.put_task([image])
        (prob,) = future.result()
        ```
    """

    def __init__(self, predictors: Sequence[OnlinePredictor], batch_size: int = 5) -> None:
        if not predictors or any(predictor.return_input for predictor in predictors):
            raise CheckError(
                "MultiThreadAsyncPredictor takes one or more predictors that do not return their inputs: "
                "return_input=False"
            )
        self._batched = tpk.predict.MultiThreadAsyncPredictor(
            [predictor.online_predictor for predictor in predictors], max_batch=batch_size
        )

    def start(self) -> None:
        """Do nothing: the threads are already running."""

    def put_task(self, dp: Sequence[Any], callback: Callable[[Future[Any]], Any] | None = None) -> Future[Any]:
        """Return the future of the outputs for a datapoint.

        Args:
            dp: the components of the datapoint, without the batch dimension.
            callback: called with the future when it is done.
        """
        future: Future[Any] = self._batched.put_task(dp)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def close(self) -> None:
        """Stop the threads."""
        self._batched.close()
