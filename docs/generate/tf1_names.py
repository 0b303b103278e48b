"""What the page "TF1 programs" lists, from the tables and the modules of `tpk_tensorflow1` itself."""

import importlib
import pkgutil
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "tpk-tensorflow1" / "src"))

from tpk_tensorflow1 import names


def contrib():
    """Return a table of the modules of `tf.contrib` that are available, as Markdown."""
    rows = ["| module | available | and all of these libraries |", "|---|---|---|"]
    package = importlib.import_module("tpk_tensorflow1.contrib")
    for module in pkgutil.iter_modules(package.__path__):
        path = f"contrib.{module.name}"
        found = importlib.import_module(f"tpk_tensorflow1.{path}")
        summary = " ".join(found.__doc__.split("\n\n")[0].split())
        rows.append(f"| {summary} | {_span(getattr(found, '__all__', ()))} | {_span(names.LIBRARIES.get(path, ()))} |")
    for old, new in sorted(names.MODULES.items()):
        if old.startswith("contrib."):
            rows.append(f"| `tf.{old}` | all of `{new}` | |")
    return "\n".join(rows)


def missing():
    """Return a table of the names that are errors, and what to use instead, as Markdown."""
    rows = ["| missing | use |", "|---|---|"]
    by_use = defaultdict(list)
    for name, use in names.INSTEAD.items():
        module, _, last = name.rpartition(".")
        by_use[module, use].append(last)
    for (module, use), lasts in by_use.items():
        prefix = f"tf.{module}." if module else "tf."
        rows.append(f"| {_span(prefix + last for last in lasts)} | {use} |")
    return "\n".join(rows)


def before_1():
    """Return a table of the names of TensorFlow before 1.0, as Markdown."""
    table = importlib.import_module("tpk_tensorflow1.before1").NAMES
    return _span(f"tf.{name}" for name in sorted(table))


def _span(texts):
    """Return names in one code span. A single name is not linked to a name of tpk, because it ends with a space."""
    texts = sorted(set(texts), key=str.lower)
    return f"<code>{', '.join(texts)} </code>" if texts else ""
