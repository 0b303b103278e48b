"""Optional packages, which only some of what tpk has needs: imported when that is used."""

from __future__ import annotations

import importlib
from typing import Any

from tpk.errors import PluginImportError


def import_optional(module: str, owner: str, install: str, instead: str = "") -> Any:
    """Import a module that no dependency of tpk brings.

    Args:
        module: its full name.
        owner: who needs it, for the message.
        install: what `pip install` takes: a package, or an extra of tpk.
        instead: what can be done without it, a sentence; empty if nothing can.

    Raises:
        PluginImportError: it cannot be imported; the message says how to install it, the cause is chained.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        remedy = f"pip install {install}.{f' {instead}' if instead else ''}"
        raise PluginImportError(f"{owner} needs {package}, which cannot be imported: {remedy}") from error
