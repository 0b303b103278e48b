"""How long the processes of a training wait for each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tpk.errors import ConfigError


def _is_seconds(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigError(f"Timeouts({attribute.name}={value!r}): expected a positive number of seconds.")


def _seconds(default: float) -> Any:
    return attrs.field(default=default, validator=_is_seconds)


@attrs.frozen(kw_only=True)
class Timeouts:
    """How many seconds a process waits for the others of its training.

    Attributes:
        start: for all processes to start.
        heartbeat: for a sign of life. A process without one is considered dead: it is frozen, its host is down, or the
            network is interrupted. The others report that within 3 more seconds, and end within 30. A process that
            has ended is noticed within a few seconds. gRPC gives up on an interrupted connection after about 20
            seconds, whatever this is.
        late_warning: until the log names a live process that others wait for. They continue to wait. From then on, two
            processes that wait for each other at different points of the program are detected.
        barrier: for a live process that others wait for. Must be longer than the chief needs to evaluate and save.

    Raises:
        ConfigError: if a timeout is not a positive number.

    Example:
        ```python
        strategy = tpk.use("collective", timeouts={"start": 60, "heartbeat": 10})
        ```
    """

    start: float = _seconds(300.0)
    heartbeat: float = _seconds(60.0)
    late_warning: float = _seconds(30.0)
    barrier: float = _seconds(1800.0)


def as_timeouts(value: Any) -> Timeouts:
    """Return the timeouts for a strategy's option.

    Args:
        value: a `Timeouts`; a mapping with some of its fields; or None, for the defaults.

    Raises:
        ConfigError: if the value is invalid, or has unknown fields.
    """
    if value is None:
        return Timeouts()
    if isinstance(value, Timeouts):
        return value
    fields = [field.name for field in attrs.fields(Timeouts)]
    if isinstance(value, Mapping) and set(value) <= set(fields):
        return Timeouts(**value)
    raise ConfigError(f"timeouts={value!r}: expected a Timeouts, or a mapping with any of {', '.join(fields)}.")
