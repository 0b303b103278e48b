"""A predictor that shares the session of a training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tpk.errors import InputError


class OnlinePredictor:
    """A function of arrays, computed by an inference tower with the variables as they are now.

    Args:
        inputs: the tensors that are fed.
        outputs: the tensors that are returned.
        get_session: returns the session; asked at each call, because it does not exist while the graph is built.

    Example:
        ```python
        predict = trainer.get_predictor(["image"], ["probabilities"])  # in setup_graph
        (probabilities,) = predict(images)                              # once the training runs
        ```
    """

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], get_session: Callable[[], Any]) -> None:
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self._get_session = get_session

    def __call__(self, *arrays: Any) -> list[Any]:
        """Return the outputs for these inputs, as arrays.

        Args:
            arrays: one for each input, in order.

        Raises:
            InputError: if there are more or fewer arrays than inputs, or no session yet.
        """
        if len(arrays) != len(self.inputs):
            names = ", ".join(tensor.name for tensor in self.inputs)
            raise InputError(f"the predictor takes {len(self.inputs)} inputs ({names}), got {len(arrays)}.")
        session = self._get_session()
        if session is None:
            raise InputError("the predictor has no session yet. Call it from before_train on.")
        with session.graph.as_default():
            feed_dict = dict(zip(self.inputs, arrays, strict=True))
        results: list[Any] = session.run(self.outputs, feed_dict)
        return results
