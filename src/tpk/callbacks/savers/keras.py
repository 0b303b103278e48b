"""Saver of a Keras model, for plain Keras."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpk.errors import ConfigError
from tpk.graph.variables import by_name, saveable_variables
from tpk.plugin import Callback
from tpk.tower.keras.model import KerasModel, check_weight_file

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class KerasSaver(Callback):
    """Writes a Keras model of the tower function, as it is at the end of each epoch, for plain Keras.

    The file replaces that of the epoch before. It is no checkpoint: a training is resumed from those of `ModelSaver`.

    Args:
        model: the model, which the tower function calls.
        path: a file ``….keras`` for the whole model, or ``….weights.h5``; by default ``model.keras``. A relative path
            is one in the directory of the run, if there is any.

    Attributes:
        written: the file, once it was written.

    Raises:
        ConfigError: if the file has another suffix, or `model` is no `KerasModel`.

    Example:
        ```python
        callbacks = [tpk.ModelSaver(), tpk.KerasSaver(digits.net, "digits.keras")]
        ```
    """

    def __init__(self, model: KerasModel, path: str | os.PathLike[str] = "model.keras") -> None:
        if not isinstance(model, KerasModel):
            raise ConfigError(f"KerasSaver was given {model!r}; expected the tpk.KerasModel of the tower function.")
        check_weight_file(path)
        self._model = model
        self._path = Path(path)
        self.written: Path | None = None
        self._variables: dict[str, Any] = {}

    @property
    def path(self) -> Path:
        """Where it writes."""
        run_dir = self.trainer.run_dir
        return self._path if run_dir is None else run_dir / self._path

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Find the variables.

        Raises:
            TowerError: if the tower function does not call the model.
        """
        variables = by_name(saveable_variables(trainer.graph))
        self._variables = {name: variables[name] for name in self._model.variable_names(trainer.graph)}

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Write the model."""
        values = trainer.sess.run(self._variables)
        self._model.save(self.path, values, trainer.graph)
        self.written = self.path
        logger.info("wrote the Keras model to %s", self.written)
