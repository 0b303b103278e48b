"""Print the callables of a package and their parameters as JSON: a dictionary by name.

`python signatures.py tensorpack`, or `tpk_tensorpack`.
"""

import importlib
import inspect
import json
import os
import pkgutil
import re
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def main(package):
    """Print the parameters of all objects that the modules of a package export."""
    if package == "tensorpack":
        import numpy

        numpy.bool, numpy.int, numpy.float, numpy.object = bool, int, float, object
    found = {}
    for name, module in modules_of(importlib.import_module(package)):
        for exported in module.__all__:
            value = getattr(module, exported, None)
            if not callable(value) or getattr(value, "__module__", "").partition(".")[0] not in OURS:
                continue
            # The exports of a package are described in their modules.
            found.update(
                {f"{name}.{exported}": None}
                if hasattr(module, "__path__")
                else parameters_of(f"{name}.{exported}", value)
            )
    print("\n" + json.dumps(found), flush=True)
    os._exit(0)  # Some of the imported libraries occasionally crash at exit.


# Some names that tensorpack scripts call are tpk's own.
OURS = ("tensorpack", "tpk_tensorpack", "tpk")


def modules_of(package):
    """Return the modules with an `__all__`, without those of tensorpack that can no longer be imported."""
    for info in pkgutil.iter_modules(package.__path__):
        yield from imported(package.__name__, info.name)


def imported(package, name):
    """Return the module if it has an `__all__`."""
    skipped = ("runner", "port", "user_ops", "__main__")
    if name.partition(".")[0] in skipped:
        return
    try:
        module = importlib.import_module(f"{package}.{name}")
    except (ImportError, AttributeError):
        return
    if hasattr(module, "__path__"):
        for info in pkgutil.iter_modules(module.__path__):
            yield from imported(package, f"{name}.{info.name}")
    if hasattr(module, "__all__"):
        yield name, module


def parameters_of(name, value):
    """Return the parameters of a function, or of a class and the public methods that it defines, by name."""
    found = {name: described(value, 0)}
    if inspect.isclass(value):
        members = vars(value) if value.__module__.startswith("tensorpack") else dir(value)
        for member in members:
            method = getattr(value, member, None)
            if not member.startswith("_") and (inspect.isfunction(method) or inspect.ismethod(method)):
                is_static = isinstance(inspect.getattr_static(value, member), staticmethod | classmethod)
                found[f"{name}.{member}"] = described(method, 0 if is_static else 1)
    return found


def described(value, skipped):
    """Return the name, kind and default of each parameter, or None if they are unknown."""
    try:
        parameters = list(inspect.signature(value).parameters.values())[skipped:]
    except (TypeError, ValueError):
        return None
    return [[each.name, each.kind.name, default_of(each)] for each in parameters]


def default_of(parameter):
    """Return the default as text, without addresses, or None if the parameter is required."""
    if parameter.default is parameter.empty:
        return None
    return re.sub(r" at 0x\w+", "", repr(parameter.default))


if __name__ == "__main__":
    main(sys.argv[1])
