"""Run a script as `python script.py` would, with its imports replaced and with the behavior of TensorFlow 1."""

from __future__ import annotations

import argparse
import builtins
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from tpk_tensorflow1.runner.failures import explain_missing_module
from tpk_tensorflow1.runner.imports import RewritingFinder, compiled


def run_script(
    path: str,
    arguments: Sequence[str] = (),
    also: Sequence[str] = (),
    packages: Mapping[str, str] | None = None,
    resource_variables: bool = False,
) -> ModuleType:
    """Run a script for TensorFlow 1 as ``__main__``, in this process.

    Args:
        path: the path of the script.
        arguments: its arguments, for ``sys.argv``.
        also: directories of further modules that belong to the script.
        packages: as for `tpk_tensorflow1.runner.imports.replacement`.
        resource_variables: as for `use_tensorflow1`.

    Returns:
        The module of the script.

    Raises:
        FileNotFoundError: the script does not exist.
        SystemExit: the script calls `sys.exit`. All other errors of the script are raised, too.
    """
    script = Path(path)
    source = script.read_bytes()
    directory = script.resolve().parent
    use_tensorflow1(resource_variables)
    sys.argv[:] = [path, *arguments]
    sys.path[0] = str(directory)
    sys.meta_path.insert(0, RewritingFinder([directory, *map(Path, also)], packages))
    main = ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins, __spec__=None)
    sys.modules["__main__"] = main
    code = compiled(source, path, packages)
    try:
        exec(code, main.__dict__)
    except ModuleNotFoundError as error:
        explain_missing_module(error)
        raise
    return main


_IN_PLACE = {f"__i{name}__" for name in ("add", "sub", "mul", "div", "truediv", "floordiv", "realdiv", "pow", "matmul")}


def use_tensorflow1(resource_variables: bool = False) -> None:
    """Switch TensorFlow to the behavior of TensorFlow 1, for the whole process.

    Args:
        resource_variables: whether variables are resource variables, which have a defined value within a step. They
            were optional in TensorFlow 1. In-place operators such as ``+=`` return tensors, as for other variables.
    """
    import tensorflow as tf

    log = logging.getLogger("tensorflow")
    level = log.level
    log.setLevel(logging.ERROR)  # It warns that these functions are deprecated.
    try:
        tf.compat.v1.disable_v2_behavior()
        if resource_variables:
            tf.compat.v1.enable_resource_variables()
            _allow_in_place_operators()
    finally:
        log.setLevel(level)


def _allow_in_place_operators() -> None:
    """Make ``v += x`` mean ``v = v + x`` for resource variables, which define in-place operators only to refuse them.

    The default variables of TensorFlow 1 had none, so Python used the ordinary operators.
    """
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

    for name in [name for name in vars(BaseResourceVariable) if name in _IN_PLACE]:
        delattr(BaseResourceVariable, name)


def run_command(
    module: str,
    description: str,
    packages: Mapping[str, str] | None = None,
    resource_variables: bool = False,
) -> None:
    """Run the script that the command line names: ``python -m MODULE [--also DIRECTORY] script.py ...``.

    Args:
        module: the name of the module that runs scripts.
        description: the help text.
        packages: as for `run_script`.
        resource_variables: as for `run_script`.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        epilog=f"example: python -m {module} train.py --gpu 0",
        allow_abbrev=False,
    )
    help_also = "another directory with modules of the script; can be repeated"
    parser.add_argument("--also", action="append", default=[], metavar="DIRECTORY", help=help_also)
    parser.add_argument("script", help="the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the arguments of the script")
    args = parser.parse_args()
    for path in args.also:
        if not os.path.isdir(path):
            parser.error(f"--also {path}: the directory does not exist")
    if not os.path.isfile(args.script):
        parser.error(f"the script {args.script!r} does not exist")
    run_script(args.script, args.arguments, args.also, packages, resource_variables)
