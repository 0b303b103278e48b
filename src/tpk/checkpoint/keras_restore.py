"""Initial values from files that Keras has written."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tpk.checkpoint.restore import Match
from tpk.checkpoint.session_init import RestoreByName
from tpk.checkpoint.stored_values import DictValues, StoredValues
from tpk.errors import CheckpointError

if TYPE_CHECKING:
    from tpk.tower.keras.model import KerasModel


class KerasRestore(RestoreByName):
    """Takes the weights of a Keras model from a file that Keras has written.

    Args:
        model: the model, which the tower function calls.
        path: a file ``….keras`` or ``….weights.h5``.
        ignore: names of variables that are left out, such as ``model/dense/kernel``.

    Raises:
        CheckpointError: if there is no such file.

    Example:
        ```python
        config = tpk.TrainConfig(model=digits, session_init=tpk.KerasRestore(digits.net, "digits.keras"), dataflow=data)
        ```
    """

    def __init__(self, model: KerasModel, path: str | os.PathLike[str], *, ignore: Collection[str] = ()) -> None:
        super().__init__(ignore=ignore)
        self._model = model
        self._path = os.fspath(path)
        if not os.path.isfile(self._path):
            raise CheckpointError(f"there is no file {self._path!r}. Give the path of a file that Keras has written.")

    def open(self) -> AbstractContextManager[StoredValues]:
        """Return nothing yet: whose weights they are is known in the graph only."""
        return nullcontext(DictValues({}, self._path))

    def match(self, graph: Any, values: StoredValues) -> Match:
        """Read the weights, by the names that they have in `graph`."""
        return super().match(graph, DictValues(self._model.read_weights(self._path, graph), self._path))
