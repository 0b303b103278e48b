"""Add what the API page of tensorpack's `train` lists to a file, one name per line.

The columns are the class or function, its member, the parameter, and the default or value.
`python train_page.py ../train_page.tsv`, with a release of tensorpack on the path.
"""

import inspect
import os
import re
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def main(path):
    """Add the lines of all names that `tensorpack.train` exports."""
    import numpy

    numpy.bool, numpy.int, numpy.float, numpy.object = bool, int, float, object
    import tensorpack.train as page

    with open(path) as file:
        lines = {tuple(line.rstrip("\n").split("\t")) for line in file}
    exported = {name: getattr(page, name) for name in page.__all__}
    for name, value in exported.items():
        lines.add((name, "", "", ""))
        lines.update((name, "", *each) for each in parameters_of(value))
        for kind in value.__mro__ if inspect.isclass(value) else ():
            # Members are listed where they are defined, those of a class that is not exported with its subclasses.
            is_hidden = kind.__module__.startswith("tensorpack.train") and kind not in exported.values()
            if kind is value or is_hidden:
                lines.update((name, *each) for each in members_of(kind, value))
    with open(path, "w") as file:
        file.writelines("\t".join(line) + "\n" for line in sorted(lines))
    os._exit(0)  # Do not wait for tensorpack's processes.


def members_of(kind, value):
    """Yield the public members that a class defines, and the attributes that its docstring names."""
    for name in re.findall(r"^ +(\w+)(?: \(.*\))?:", (kind.__doc__ or "").partition("Attributes:")[2], re.M):
        yield name, "", ""
    for name, member in vars(kind).items():
        if name.startswith("_") or getattr(member, "__HIDE_SPHINX_DOC__", False):
            continue
        takes_self = not isinstance(member, (staticmethod, classmethod))
        member = getattr(value, name)
        # A None is not a default: it means that there is no value yet.
        has_value = not callable(member) and not isinstance(member, property) and member is not None
        yield name, "", repr(member) if has_value else ""
        if callable(member):
            for parameter in parameters_of(member)[takes_self:]:
                yield (name, *parameter)


def parameters_of(value):
    """Return the name and the default of each parameter, without `*args` and `**kwargs`."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except Exception:  # a class whose optional package is not installed
        return []
    named = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    return [(each.name, "" if each.default is each.empty else repr(each.default)) for each in named]


if __name__ == "__main__":
    main(sys.argv[1])
