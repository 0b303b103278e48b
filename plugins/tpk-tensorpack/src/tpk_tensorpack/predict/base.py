"""Predictors: functions of arrays."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tpk.predict
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.predict.config import PredictConfig

__all__ = ["OfflinePredictor", "OnlinePredictor", "PredictorBase"]


class PredictorBase(abc.ABC):
    """Base class of functions that take the components of a datapoint.

    Attributes:
        return_input: whether a call returns a pair of the inputs and the outputs.
    """

    return_input = False

    def __call__(self, *dp: Any) -> Any:
        """Return the list of outputs for a datapoint, or the pair of the datapoint and the outputs."""
        output = self._do_call(dp)
        return (dp, output) if self.return_input else output

    @abc.abstractmethod
    def _do_call(self, dp: Sequence[Any]) -> Any:
        """Return the outputs for a datapoint."""


class AsyncPredictorBase(PredictorBase):
    """Base class of predictors that return futures."""

    @abc.abstractmethod
    def put_task(self, dp: Sequence[Any], callback: Any = None) -> Any:
        """Return the future of the outputs for a datapoint."""

    @abc.abstractmethod
    def start(self) -> None:
        """Start the predictor."""

    def _do_call(self, dp: Sequence[Any]) -> Any:
        return self.put_task(dp).result()


class OnlinePredictor(PredictorBase):
    """A function of arrays, computed in an existing session.

    Args:
        input_tensors: the tensors to feed.
        output_tensors: the tensors to return.
        return_input: whether a call returns a pair of the inputs and the outputs.
        sess: the session; None for the default session at the time of the call.

    Attributes:
        online_predictor: the same predictor as a predictor of `tpk`.

    Raises:
        InputError: the outputs depend on placeholders that are not fed.
    """

    ACCEPT_OPTIONS = False

    def __init__(
        self, input_tensors: Sequence[Any], output_tensors: Sequence[Any], return_input: bool = False, sess: Any = None
    ) -> None:
        self.return_input = return_input
        self.input_tensors = list(input_tensors)
        self.output_tensors = list(output_tensors)
        self.sess = sess
        self.online_predictor = tpk.predict.OnlinePredictor(self.input_tensors, self.output_tensors, self._session)

    def _do_call(self, dp: Sequence[Any]) -> Any:
        if len(dp) != len(self.input_tensors):
            raise CheckError(
                f"the predictor takes {len(self.input_tensors)} inputs "
                f"({', '.join(tensor.op.name for tensor in self.input_tensors) or 'none'}), got {len(dp)}"
            )
        return self.online_predictor(*map(_as_fed, dp, self.input_tensors))

    def _session(self) -> Any:
        return tf.compat.v1.get_default_session() if self.sess is None else self.sess


class OfflinePredictor(OnlinePredictor):
    """A predictor with its own graph and session.

    Args:
        config: the model, its variables' values, inputs and outputs.

    Raises:
        CheckpointError: a value does not fit the model.
        TowerError: a tensor is missing in the model.
        InputError: the outputs depend on an input that is not fed.

    Example:
        ```python
        predict = OfflinePredictor(PredictConfig(model=Model(), session_init=SmartInit(path), output_names=["prob"]))
        (prob,) = predict(images, labels)
        ```
    """

    def __init__(self, config: PredictConfig) -> None:
        built = config.build_graph()
        self.graph = built.graph
        (tower,) = built.towers
        sess = built.create_session()
        super().__init__(list(tower.inputs.values()), list(tower.outputs.values()), config.return_input, sess)

    def close(self) -> None:
        """Close the session."""
        self.sess.close()


def _as_fed(value: Any, tensor: Any) -> Any:
    """Return `value` as `Session.run` feeds it: cast to the dtype of the tensor, even if this loses precision."""
    if tensor.dtype == tf.string:
        return value
    return np.asarray(value, tensor.dtype.as_numpy_dtype)
