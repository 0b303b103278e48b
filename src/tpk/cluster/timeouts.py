"""How long the processes of a training wait for each other."""

from __future__ import annotations

from typing import Any

import attrs

from tpk.errors import ConfigError


def _is_seconds(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigError(f"{attribute.metadata['option']}={value!r}: expected a positive number of seconds.")


def _seconds(option: str) -> Any:
    return attrs.field(validator=_is_seconds, metadata={"option": option})


@attrs.frozen
class Patience:
    """How many seconds a process waits for others.

    Attributes:
        start: for all to start.
        answer: for one that gives no sign of life: its process or host is dead, or the network between them.
        late: until one that lives, but does not come where others wait for it, is reported.
        wait: for one that lives, but does not come.

    Raises:
        ConfigError: if one of them is no positive number; it names the option of the strategy.
    """

    start: float = _seconds("start_timeout")
    answer: float = _seconds("timeout")
    late: float = _seconds("late_after")
    wait: float = _seconds("patience")
