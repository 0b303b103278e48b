"""An objective: a cost that an optimizer minimizes over some of the variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from tpk.argument_checks import check_at_least, compiled
from tpk.errors import ConfigError, TowerError
from tpk.graph.gradients import check_cost
from tpk.graph.variables import variable_name


@attrs.frozen
class Objective:
    """One cost that a training minimizes. Single-cost training has one objective.

    Attributes:
        get_optimizer: returns a `tf.compat.v1.train.Optimizer`.
        name: the name of the cost in the output of the tower function; empty if it returns a single cost.
        variables: a regular expression that matches the beginning of the names, inside the tower, of the variables to
            train, such as ``"discriminator/"``.
        every: minimize it in steps whose number is a multiple of this. The trainer does this, not the strategy.

    Raises:
        ConfigError: if `get_optimizer` is not callable, `variables` is not a valid regular expression, or `every` is
            not a positive integer.
    """

    get_optimizer: Callable[[], Any]
    name: str = ""
    variables: str = ""
    every: int = 1

    def __attrs_post_init__(self) -> None:
        if not callable(self.get_optimizer):
            raise ConfigError(
                f"get_optimizer is {self.get_optimizer!r}; expected a function that returns a new optimizer. Write "
                "lambda: tf.compat.v1.train.AdamOptimizer(1e-3)."
            )
        compiled(self, self.variables)
        check_at_least(self, 1, every=self.every)

    def cost_in(self, output: Any) -> Any:
        """Return the cost in the output of a tower function, a scalar.

        Raises:
            TowerError: if it is missing, or not a scalar.
        """
        if not self.name:
            return check_cost(output)
        if not isinstance(output, Mapping) or self.name not in output:
            raise TowerError(
                f"the tower function must return a dict of costs with {self.name!r} in it; it returned {output!r}."
            )
        return check_cost(output[self.name])

    def select(self, variables: Sequence[Any], vs_name: str = "") -> list[Any]:
        """Return the variables of a tower that the objective trains.

        Args:
            variables: trainable variables.
            vs_name: the variable scope of the tower.

        Raises:
            TowerError: if it trains none of them.
        """
        prefix = f"{vs_name}/" if vs_name else ""
        pattern = re.compile(self.variables)
        names = [variable_name(variable).removeprefix(prefix) for variable in variables]
        chosen = [variable for variable, name in zip(variables, names, strict=True) if pattern.match(name)]
        if variables and not chosen:
            raise TowerError(
                f"the objective {self.name!r} trains the variables that match {self.variables!r}, but none matches: "
                f"{', '.join(names)}."
            )
        return chosen
