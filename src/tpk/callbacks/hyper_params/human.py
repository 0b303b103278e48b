"""A callback that sets a hyperparameter from a file that a person edits while the training runs."""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path

import tpk
from tpk.callbacks.hyper_params.setters import GraphVarParam, HyperParam, HyperParamSetter
from tpk.errors import ConfigError
from tpk.plugin.callback import in_run_dir

logger = logging.getLogger(__name__)


class HumanHyperParamSetter(HyperParamSetter):
    """Sets a hyperparameter from a file that may be edited while the training runs.

    The file has lines such as ``learning_rate: 0.001`` with the name of a variable or attribute, for any number of
    hyperparameters, each with its own setter. Empty lines, and text after ``#``, are ignored. The chief reads the file
    before the training and at the end of each epoch, and all processes of the training use it, on all strategies. As
    long as there is a line, its value is set again if another callback has changed it. Without a file or a line, the
    value is left alone. An invalid line is reported in the log once, and ignored.

    A resumed training starts with its last value, and reads the file at the end of the epoch, like an uninterrupted
    one.

    Args:
        param: a `HyperParam`, or the name of a variable; a number.
        path: the file, in the `run_dir` unless it is absolute.

    Raises:
        ConfigError: (in `setup_graph`) if the path is not absolute and there is no `run_dir`; (before the training) if
            the hyperparameter is not a number.

    Example:
        ```python
        callbacks=[tpk.HumanHyperParamSetter("learning_rate")]
        ```

        ```bash
        echo "learning_rate: 1e-4" > runs/train/2026-01-31-120000/hyper.txt
        ```
    """

    def __init__(self, param: HyperParam | str, path: str | os.PathLike[str] = "hyper.txt") -> None:
        super().__init__(param)
        self._path = Path(path)
        self._reported = ""

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Find the hyperparameter and the file."""
        super().setup_graph(trainer)
        if trainer.is_chief:
            self._path = in_run_dir(self, self._path)

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Set the value from the file."""
        value = self.param.get_value()
        if not isinstance(value, int | float):
            raise ConfigError(
                f"HumanHyperParamSetter sets numbers, but {self.param.readable_name} is {value!r}. Define a HyperParam "
                "whose value is a number."
            )
        super().before_train(trainer)

    def get_value_to_set(self) -> float | None:
        """Return the value in the file as read by the chief, or None if it is missing or set already."""
        trainer = self.trainer
        value: float | None = trainer.strategy.process_group.broadcast_object(
            f"{self.param.readable_name} in {self._path.name}", self._read() if trainer.is_chief else None
        )
        # A variable of single precision keeps only about seven digits.
        is_set = value is not None and math.isclose(value, self.param.get_value(), rel_tol=1e-6)
        return None if is_set else value

    def _read(self) -> float | None:
        """Return the number in the last line of the file for this hyperparameter."""
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError) as error:
            self._report(f"{self._path} cannot be read, and is ignored: {error}")
            return None
        found: float | None = None
        problems: list[str] = []
        for number, line in enumerate(lines, start=1):
            name, _, value = (part.strip() for part in line.partition("#")[0].rpartition(":"))
            try:
                if name == self.param.readable_name:
                    found = self._parse(value)
                elif value and not name:
                    raise ValueError("expected a name before a colon")
            except ValueError as error:
                problems.append(f"line {number}, {line!r}: {error}")
        if problems:
            expected = f"'{self.param.readable_name}: 0.001'"
            self._report(f"{self._path}: ignored invalid lines, expected {expected}: {'; '.join(problems)}")
        return found

    def _parse(self, text: str) -> float:
        try:
            return int(text)
        except ValueError:
            # An attribute may change from an integer to another number, but a variable may not.
            if isinstance(self.param, GraphVarParam) and isinstance(self.param.get_value(), int):
                raise
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text!r} is not a finite number")
        return value

    def _report(self, message: str) -> None:
        if message != self._reported:
            self._reported = message
            logger.warning("%s", message)
