"""A script that is run as `python script.py` would run it, but for its imports and for TensorFlow's behaviour."""

from __future__ import annotations

import builtins
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import tensorflow as tf

from tpk_tensorpack.runner.imports import RewritingFinder, compiled


def run_script(path: str, arguments: Sequence[str] = (), also: Sequence[str] = ()) -> ModuleType:
    """Run a script that was written for tensorpack and TensorFlow 1, as ``__main__``.

    It has this process for itself: TensorFlow is set to its TF1 behaviour, with resource variables.

    Args:
        path: of the script.
        arguments: what follows it in ``sys.argv``.
        also: directories of further modules that belong to it.

    Returns:
        The module that it has become.

    Raises:
        FileNotFoundError: there is no such script.
        SystemExit: the script has called `sys.exit`; and so on for whatever else it raises.
    """
    script = Path(path)
    source = script.read_bytes()
    directory = script.resolve().parent
    use_tensorflow1()
    sys.argv[:] = [path, *arguments]
    sys.path[0] = str(directory)
    sys.meta_path.insert(0, RewritingFinder([directory, *map(Path, also)]))
    main = ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins, __spec__=None)
    sys.modules["__main__"] = main
    exec(compiled(source, path), main.__dict__)
    return main


def use_tensorflow1() -> None:
    """Have TensorFlow behave as TensorFlow 1 did, with resource variables: as tensorpack's scripts want it."""
    log = logging.getLogger("tensorflow")
    level = log.level
    log.setLevel(logging.ERROR)  # It says that this is deprecated; there is nothing else that does it.
    try:
        tf.compat.v1.disable_v2_behavior()
        tf.compat.v1.enable_resource_variables()
    finally:
        log.setLevel(level)
