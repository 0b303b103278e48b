"""Environment variables of the plugin layer, read each time that they matter, never at import.

- ``TPK_BLOCK``: names that must not be imported, each with or without its kind, such as ``monitor:wandb,foo``.
- ``TPK_DISABLE_AUTOLOAD``: load nothing of ``tpk.plugins`` by itself.
- ``TPK_PLUGINS``: load these plugins in any case, such as ``a,package.module``; a missing one is an error.
- ``TPK_STRICT``: a broken autoloaded plugin is an error rather than a warning.
- ``TPK_TRACE``: call the hooks of the step through pluggy, and log every hook call.

``0`` and the empty string mean off.
"""

from __future__ import annotations

import os

VARIABLES = ("TPK_BLOCK", "TPK_DISABLE_AUTOLOAD", "TPK_PLUGINS", "TPK_STRICT", "TPK_TRACE")


def is_on(variable: str) -> bool:
    """Whether `variable` is set to anything but ``0`` and the empty string."""
    return os.environ.get(variable, "").strip() not in ("", "0")


def names_in(variable: str) -> list[str]:
    """Return the comma-separated names in `variable`, in order; none if it is off."""
    if not is_on(variable):
        return []
    return [name.strip() for name in os.environ[variable].split(",") if name.strip()]
