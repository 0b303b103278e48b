"""`inspect`, including ``getargspec``, which Python 3.11 removed."""

import inspect
from collections import namedtuple
from collections.abc import Callable
from inspect import *
from typing import Any

from tpk_tensorflow1.older import names_of

ArgSpec = namedtuple("ArgSpec", "args varargs keywords defaults")


def getargspec(func: Callable[..., Any]) -> ArgSpec:
    """Return the names and defaults of the arguments of a function without keyword-only arguments."""
    return ArgSpec(*inspect.getfullargspec(func)[:4])


__getattr__ = names_of(inspect)
