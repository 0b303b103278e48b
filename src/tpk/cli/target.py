"""Things that are named on the command line as ``module:attribute``."""

from __future__ import annotations

import difflib
import functools
import importlib
import os
import sys
from typing import Any

from tpk.errors import ConfigError


def find_object(target: str) -> Any:
    """Return what ``module:attribute`` names; the module may be a file in the current directory, too.

    What goes wrong inside of the module, other than that an import fails, is raised as it is.

    Args:
        target: such as ``"my_model:Model"``.

    Raises:
        ConfigError: if there is no such thing.
    """
    module_name, _, attribute = target.partition(":")
    if module_name.endswith(".py"):
        plain = module_name.removesuffix(".py").replace(os.sep, ".").lstrip(".")
        raise ConfigError(f"{target!r} names a file; expected a module. Write {plain}:{attribute or 'Name'}.")
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(f"{target!r}: expected module:attribute, such as my_model:Model.")
    # As `python -m` does.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"{target!r} cannot be imported: {error}.") from error
    try:
        return functools.reduce(getattr, attribute.split("."), module)
    except AttributeError as error:
        near = difflib.get_close_matches(attribute, dir(module), n=3, cutoff=0.5)
        hint = f" Nearest: {', '.join(near)}." if near else ""
        raise ConfigError(f"{target!r} is not there: {error}.{hint}") from error
