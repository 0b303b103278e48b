"""Files of Keras: a callback that writes them, and initial values from them."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import tpk
from tpk.errors import CheckpointError, ConfigError
from tpk.graph.variables import by_name, saveable_variables
from tpk_keras.model import KerasModel, check_weight_file

logger = logging.getLogger(f"tpk.{__name__}")


class KerasSaver(tpk.Callback):
    """Writes a Keras model that the tower function calls to a file at the end of each epoch, for use in plain Keras.

    Each file replaces the previous one. It is not a checkpoint; to be able to resume a run, use a `tpk.ModelSaver`.

    Args:
        model: the model.
        path: a ``.keras`` file for the whole model, or a ``.weights.h5`` file. A relative path starts from the
            directory of the run, if there is one.

    Attributes:
        written: the file, once it is written.

    Raises:
        ConfigError: if the file has another suffix, or `model` is not a `KerasModel`.

    Example:
        ```python
        callbacks = [tpk.ModelSaver(), KerasSaver(digits.net, "digits.keras")]
        ```
    """

    def __init__(self, model: KerasModel, path: str | os.PathLike[str] = "model.keras") -> None:
        if not isinstance(model, KerasModel):
            raise ConfigError(f"KerasSaver was given {model!r}; expected the KerasModel of the tower function.")
        check_weight_file(path)
        self._model = model
        self._path = Path(path)
        self.written: Path | None = None
        self._variables: dict[str, Any] = {}

    @property
    def path(self) -> Path:
        """The path of the file."""
        run_dir = self.trainer.run_dir
        return self._path if run_dir is None else run_dir / self._path

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Find the variables.

        Raises:
            TowerError: if the tower function does not call the model.
        """
        variables = by_name(saveable_variables(trainer.graph))
        self._variables = {name: variables[name] for name in self._model.variable_names(trainer.graph)}

    def trigger(self, trainer: tpk.Trainer) -> None:
        """Write the model."""
        values = trainer.sess.run(self._variables)
        self._model.save(self.path, values, trainer.graph)
        self.written = self.path
        logger.info("wrote the Keras model to %s", self.written)


class KerasRestore(tpk.SessionInit):
    """Restores the weights of a Keras model from a file that Keras has written.

    Args:
        model: the model, which the tower function calls.
        path: a file ``….keras`` or ``….weights.h5``.
        ignore: names of variables to ignore, such as ``model/dense/kernel``.
        must_match: see `tpk.DictRestore`.

    Raises:
        CheckpointError: if the file does not exist.

    Example:
        ```python
        config = tpk.TrainConfig(model=digits, session_init=KerasRestore(digits.net, "digits.keras"), dataflow=data)
        ```
    """

    def __init__(
        self, model: KerasModel, path: str | os.PathLike[str], *, ignore: Collection[str] = (), must_match: bool = True
    ) -> None:
        self._model = model
        self._path = os.fspath(path)
        self._options: dict[str, Any] = {"ignore": ignore, "must_match": must_match}
        if not os.path.isfile(self._path):
            raise CheckpointError(f"there is no file {self._path!r}. Give the path of a file that Keras has written.")

    def run(self, sess: Any) -> None:
        """Assign the weights.

        Raises:
            CheckpointError: if the file does not fit the model.
            TowerError: if the tower function does not call the model.
        """
        values = self._model.read_weights(self._path, sess.graph)
        logger.info("read the weights of %s", self._path)
        tpk.DictRestore(values, **self._options).run(sess)
