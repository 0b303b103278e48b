"""Optional packages, which only some dataflows need."""

from __future__ import annotations

import importlib
from typing import Any

from tpk.errors import ConfigError


def import_optional(package: str, extra: str, owner: str) -> Any:
    """Import a package that is no dependency of tpk, when it is needed.

    Args:
        package: its name as it is imported.
        extra: the extra of tpk that brings it.
        owner: who needs it, for the message.

    Raises:
        ConfigError: it cannot be imported; the message says how to install it, the cause is chained.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f'{owner} needs the package {package!r}, which cannot be imported; pip install "tpk[{extra}]"'
        ) from error
