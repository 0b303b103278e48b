"""Hyperparameters that a human sets, by a file, while the training runs."""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tpk.callbacks.hyper_params.setters import GraphVarParam, HyperParam, HyperParamSetter
from tpk.callbacks.triggers import innermost
from tpk.errors import ConfigError
from tpk.plugin import Callback

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class HumanHyperParamSetter(HyperParamSetter):
    """Sets a hyperparameter to what a file says, which may be edited while the training runs.

    The file has lines such as ``learning_rate: 0.001``, with the name of the variable or attribute, for any number of
    hyperparameters, each of which has a setter of its own. Empty lines, and what follows a ``#``, are left out. It is
    read before the training, and at the end of each epoch, by the chief; all processes of a training take what it says,
    on all strategies. While there is a line, it holds: what others have made of the value is set back. Where there is
    no file, or no line for it, the value is left alone. A line that cannot be understood, or is for what no setter
    sets, is reported in the log, once, and ignored.

    A resumed training begins with the value that it had, and reads the file at the end of the epoch, as it would have
    done.

    Args:
        param: a `HyperParam`, or the name of a variable; a number.
        path: the file, in the `run_dir` unless it is absolute.

    Raises:
        ConfigError: (in `setup_graph`) if the path is not absolute and there is no `run_dir`; (before the training) if
            the hyperparameter is no number.

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
        self._given = Path(path)
        self._path = self._given
        self._reported = ""
        self._others: frozenset[str] | None = None

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Find the hyperparameter, and the place of the file.

        Raises:
            ConfigError: if there is no place for it.
        """
        super().setup_graph(trainer)
        if not self._given.is_absolute():
            if trainer.run_dir is None and trainer.is_chief:
                raise ConfigError(
                    f"HumanHyperParamSetter: {str(self._given)!r} is a file in the run_dir, and this training has "
                    "none. Give train() a run_dir, or this an absolute path."
                )
            self._path = (trainer.run_dir or Path()) / self._given

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Take what the file says.

        Raises:
            ConfigError: if the hyperparameter is no number.
        """
        value = self.param.get_value()
        if not isinstance(value, int | float):
            raise ConfigError(
                f"HumanHyperParamSetter sets numbers; {self.param.readable_name} is {value!r}. Write a HyperParam of "
                "your own, whose value is a number."
            )
        self._others = self._names_of_others(trainer)
        super().before_train(trainer)

    def get_value_to_set(self) -> float | None:
        """Return what the file says, as the chief reads it, or None if it says nothing, or nothing new."""
        trainer = self.trainer
        value: float | None = trainer.strategy.process_group.broadcast_object(
            f"{self.param.readable_name} in {self._given}", self._read() if trainer.is_chief else None
        )
        # A variable of single precision has but about seven digits of what was written.
        is_set = value is not None and math.isclose(value, self.param.get_value(), rel_tol=1e-6)
        return None if is_set else value

    def _read(self) -> float | None:
        """Return the number of the last line for it."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError) as error:
            self._report(f"{self._path} cannot be read, and is ignored: {error}")
            return None
        found: float | None = None
        problems: list[str] = []
        for number, line in enumerate(text.splitlines(), start=1):
            written = line.split("#", 1)[0].strip()
            if not written:
                continue
            name, _, value = (part.strip() for part in written.rpartition(":"))
            try:
                if not name:
                    raise ValueError("there is no name with a colon")
                parsed = _parse(value)
                if name == self.param.readable_name:
                    found = self._check(parsed)
                elif self._others is not None and name not in self._others:
                    raise ValueError(f"no HumanHyperParamSetter of this training sets {name}")
            except ValueError as error:
                problems.append(f"line {number}, {line!r}: {error}")
        if problems:
            self._report(
                f"{self._path}: what is not understood is ignored; expected lines such as "
                f"'{self.param.readable_name}: 0.001'. {'; '.join(problems)}",
            )
        return found

    def _names_of_others(self, trainer: TrainerProtocol) -> frozenset[str] | None:
        """Return what else may stand in the file; None if another setter of it, the first one, tells what may not."""
        setters = [innermost(each) for each in trainer.hooks.plugins.values() if isinstance(each, Callback)]
        same = [each for each in setters if isinstance(each, HumanHyperParamSetter) and each._path == self._path]
        return frozenset(each.param.readable_name for each in same) if same[0] is self else None

    def _check(self, value: float) -> float:
        # An attribute that is a whole number may become another number; a variable may not.
        is_whole = isinstance(self.param, GraphVarParam) and isinstance(self.param.get_value(), int)
        if is_whole and not isinstance(value, int):
            raise ValueError(f"{self.param.readable_name} is a whole number")
        return value

    def _report(self, message: str) -> None:
        if message != self._reported:
            self._reported = message
            logger.warning("%s", message)


def _parse(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is no finite number")
    return value
