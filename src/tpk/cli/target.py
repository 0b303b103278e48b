"""Objects that the command line names as ``module:attribute``."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import Any

from tpk.errors import ConfigError
from tpk.text import nearest


def find_object(target: str) -> Any:
    """Return the object that ``module:attribute`` names. The module may be a file in the current directory.

    Errors inside the module are raised as they are, except import errors.

    Args:
        target: the name, such as ``"my_model:Model"``.

    Raises:
        ConfigError: if there is no such object.
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
        raise ConfigError(f"{target!r} does not exist: {error}.{nearest(attribute, dir(module))}") from error
