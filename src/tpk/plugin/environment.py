"""Environment variables of the plugin layer, read when they are needed, never at import.

- ``TPK_BLOCK``: plugins that must not be imported, with or without their kind, such as ``monitor:wandb,foo``.
- ``TPK_DISABLE_AUTOLOAD``: do not load the plugins of the group ``tpk.plugins``.
- ``TPK_PLUGINS``: load these plugins, such as ``a,package.module``; a missing one is an error.
- ``TPK_STRICT``: a broken autoloaded plugin is an error instead of a warning.
- ``TPK_TRACE``: log every hook call, with its arguments and result.

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
    names = os.environ[variable].split(",") if is_on(variable) else []
    return [name.strip() for name in names if name.strip()]
