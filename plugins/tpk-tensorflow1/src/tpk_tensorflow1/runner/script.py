"""Run a script as `python script.py` would, with its imports replaced and with the behavior of TensorFlow 1."""

from __future__ import annotations

import argparse
import builtins
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from tpk_tensorflow1.runner.behavior import use_tensorflow1
from tpk_tensorflow1.runner.failures import explain_missing_module, explain_missing_name
from tpk_tensorflow1.runner.processes import Script


def run_script(
    path: str,
    arguments: Sequence[str] = (),
    also: Sequence[str] = (),
    packages: Mapping[str, str] | None = None,
    resource_variables: bool = False,
    is_module: bool = False,
) -> ModuleType:
    """Run a script for TensorFlow 1 as ``__main__``, in this process.

    Args:
        path: the path of the script, or the name of a module.
        arguments: its arguments, for ``sys.argv``.
        also: directories of further modules that belong to the script.
        packages: as for `tpk_tensorflow1.runner.imports.replacement`.
        resource_variables: as for `use_tensorflow1`.
        is_module: whether to run a module, as ``python -m`` does: it is found in the current directory.

    Returns:
        The module of the script.

    Raises:
        FileNotFoundError: the script does not exist.
        SystemExit: the script calls `sys.exit`. All other errors of the script are raised, too.
    """
    place = Path.cwd() if is_module else Path(path).resolve(strict=True).parent
    directories = [str(place), *(os.path.abspath(each) for each in also)]
    script = Script(path, is_module, directories, packages or {}, resource_variables)
    use_tensorflow1(resource_variables)
    sys.argv[:] = [path, *arguments]
    sys.path[0:1] = directories
    script.replace_imports()
    script.share()
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    try:
        script.run_in(main.__dict__)
    except ModuleNotFoundError as error:
        explain_missing_module(error)
        raise
    except (NameError, AttributeError) as error:
        explain_missing_name(error)
        raise
    return main


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
        usage="%(prog)s [--also DIRECTORY] (script.py | -m MODULE) ...",
        description=description,
        epilog=f"example: python -m {module} train.py --gpu 0",
        allow_abbrev=False,
    )
    help_also = "another directory with modules of the script; can be repeated"
    parser.add_argument("--also", action="append", default=[], metavar="DIRECTORY", help=help_also)
    parser.add_argument("-m", nargs=argparse.REMAINDER, metavar="MODULE", help="a module to run, instead of a script")
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="script.py ...", help="the script, with its arguments"
    )
    args = parser.parse_args()
    for path in args.also:
        if not os.path.isdir(path):
            parser.error(f"--also {path}: the directory does not exist")
    command = args.m or args.script
    if not command:
        parser.error("expected a script, or -m and a module")
    if args.m is None and not os.path.isfile(command[0]):
        parser.error(f"the script {command[0]!r} does not exist")
    run_script(command[0], command[1:], args.also, packages, resource_variables, args.m is not None)
