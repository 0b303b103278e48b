"""Links from names in the text: `ModelSaver` in backticks leads to its entry in the reference.

So docstrings and pages need no markup of links; and a name of tpk that does not exist stops the build.
"""

import functools
import re

from public_names import all_names, exists, names_of_packages

SPLIT = re.compile(r"(<pre.*?</pre>|<a\b.*?</a>|<h\d.*?</h\d>|<autoref.*?</autoref>)", re.DOTALL)
NOT_OF_PYTHON = {
    *("tpk.callbacks", "tpk.commands", "tpk.monitors", "tpk.plugins", "tpk.strategies", "tpk.trainers"),
    "tpk.trace",
}
"""Groups of entry points, and a logger."""

CODE = re.compile(r"<code>([\w.]+)(\(\))?</code>")


def linked(html):
    """Return a page with links, and the set of names of tpk in it that lead nowhere."""
    unknown = set()
    parts = SPLIT.split(html)
    # Links, headings and blocks of code stay unchanged.
    parts[::2] = [CODE.sub(functools.partial(_link, unknown=unknown), part) for part in parts[::2]]
    return "".join(parts), unknown


def _link(code, unknown):
    target = targets().get(code[1])
    if target is not None:
        return f'<autoref identifier="{target}">{code[0]}</autoref>'
    if code[1] in NOT_OF_PYTHON:
        return code[0]
    if code[1].startswith("tpk.") and not code[1].endswith((".py", ".toml")) and not exists(code[1]):
        unknown.add(code[1])
    return code[0]


@functools.cache
def targets():
    """Return the identifier of each public name by what it is called: alone, of `tpk`, or of its room."""
    found = {}
    for name in all_names():
        if name.room not in ("layers", "layers.rnn_cell", "testing"):
            found[f"tpk.{name.name}"] = name.path
        if name.name != name.name.lower() or "_" in name.name:
            found[name.name] = name.path
        found[name.path] = name.path
        found[name.path.removeprefix("tpk.")] = name.path
    for name in names_of_packages():
        found[name.name] = found[name.path] = name.path
    return found
