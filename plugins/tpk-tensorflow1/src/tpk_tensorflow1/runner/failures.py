"""Explanations of errors caused by the script itself: code for Python 2, and missing modules."""

from __future__ import annotations

import re
import traceback

# Lines of Python 2 that are syntax errors in Python 3.
_PYTHON2 = re.compile(
    r"""
    ^\s*(?:print\b(?!\s*\() | exec\s+[^=(] | raise\s+[\w.]+\s*, | except\b[^:]*,\s*\w+\s*:)
    | <> | ` | \b0[0-7]+\b | \b\d+[lL]\b | \bur["']
    """,
    re.VERBOSE,
)
_MODULES_OF_PYTHON2 = {
    "ConfigParser": "configparser",
    "Queue": "queue",
    "StringIO": "io",
    "Tkinter": "tkinter",
    "__builtin__": "builtins",
    "cPickle": "pickle",
    "cStringIO": "io",
    "commands": "subprocess",
    "urllib2": "urllib.request",
    "urlparse": "urllib.parse",
}
_NAMES_OF_PYTHON2 = {"basestring", "execfile", "file", "long", "raw_input", "reduce", "unichr", "unicode", "xrange"}
_METHODS_OF_PYTHON2 = {
    dict: {"has_key", "iteritems", "iterkeys", "itervalues"},
    str: {"decode"},
}
# The distributions of modules with another name.
_DISTRIBUTIONS = {
    "PIL": "Pillow",
    "cv2": "opencv-python-headless",
    "msgpack_numpy": "msgpack-numpy",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}


def explain_syntax_error(error: SyntaxError) -> None:
    """Say so in the message if the line with the error is written for Python 2."""
    if isinstance(error, TabError) or _PYTHON2.search(error.text or ""):
        error.msg = _for_python2(error.filename, error.lineno)


def explain_missing_name(error: NameError | AttributeError) -> None:
    """Say so in the message if the missing name or method is one of Python 2."""
    if isinstance(error, AttributeError):
        is_of_python2 = error.name in _METHODS_OF_PYTHON2.get(type(error.obj), ())
    else:
        is_of_python2 = error.name in _NAMES_OF_PYTHON2
    if is_of_python2:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        error.args = (f"{error}: {_for_python2(frame.filename, frame.lineno)}",)


def _for_python2(file: str | None, line: int | None) -> str:
    return (
        f"{file}, line {line}, is written for Python 2. Convert the file to Python 3, e.g. by 2to3 -w {file} "
        "(Python has 2to3 up to version 3.12)"
    )


def explain_missing_module(error: ModuleNotFoundError) -> None:
    """Add to the message which file imports the missing module, and what to do."""
    if error.msg != f"No module named {error.name!r}":
        return  # The message says more than Python's own.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    package = str(error.name).partition(".")[0]
    if package in _MODULES_OF_PYTHON2:
        what = f"It is a module of Python 2; import {_MODULES_OF_PYTHON2[package]!r} instead."
    else:
        install = f"pip install {_DISTRIBUTIONS.get(package, package)}"
        what = f"If it belongs to the script, pass its directory with --also; otherwise install it: {install}"
    error.msg += f", which {frames[-1].filename} imports in line {frames[-1].lineno}. {what}"
