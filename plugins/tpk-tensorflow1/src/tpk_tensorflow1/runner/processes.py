"""A script, and the processes that it starts: these import as the script does.

A worker process of a data flow calls `prepare` before it unpickles anything, because ``TPK_WORKER_INIT`` names it. A
fresh process of `multiprocessing` (``spawn`` or ``forkserver``) imports `tpk_tensorflow1.runner.spawned` instead of the
script. An environment variable tells both of them what the script is.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from multiprocessing import spawn
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from tpk_tensorflow1.runner.behavior import use_tensorflow1
from tpk_tensorflow1.runner.imports import RewritingFinder, compiled, is_installed

_VARIABLE = "TPK_TENSORFLOW1_SCRIPT"


@attrs.frozen
class Script:
    """A script, and what is replaced in it.

    Attributes:
        name: the path of the script, or the name of a module.
        is_module: whether it is the name of a module.
        directories: the directories of its modules.
        packages: as for `tpk_tensorflow1.runner.imports.replacement`.
        resource_variables: as for `tpk_tensorflow1.runner.behavior.use_tensorflow1`.
    """

    name: str
    is_module: bool
    directories: Sequence[str]
    packages: Mapping[str, str]
    resource_variables: bool

    def replace_imports(self) -> None:
        """Replace the imports of all modules of the script from now on; those on ``PYTHONPATH`` belong to it."""
        own = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and not is_installed(each)]
        sys.meta_path.insert(0, RewritingFinder([Path(each) for each in (*self.directories, *own)], self.packages))

    def run_in(self, names: dict[str, Any]) -> None:
        """Run the script with `names` as its global names."""
        if self.is_module:
            spec = _spec_of_main(self.name)
            names.update(__file__=spec.origin, __package__=spec.parent, __spec__=spec)
            code = spec.loader.get_code(spec.name)
        else:
            names.update(__file__=self.name, __package__=None, __spec__=None)
            code = compiled(Path(self.name).read_bytes(), self.name, self.packages)
        sys.argv[0] = names["__file__"]
        exec(code, names)

    def share(self) -> None:
        """Have the processes that this one starts import as the script does."""
        os.environ[_VARIABLE] = json.dumps(attrs.asdict(self))
        os.environ["TPK_WORKER_INIT"] = f"{__name__}:prepare"
        spawn.get_preparation_data = _preparation_data


def script_of_parent() -> Script:
    """Return the script of the process that has started this one."""
    return Script(**json.loads(os.environ[_VARIABLE]))


def prepare() -> None:
    """Import as the script does, in a worker process."""
    script = script_of_parent()
    script.replace_imports()
    script.share()
    sys.meta_path.insert(0, _Switching(script.resource_variables))


class _Switching(MetaPathFinder):
    """Switches TensorFlow to the behavior of TensorFlow 1 when it is imported, which few workers do."""

    def __init__(self, resource_variables: bool) -> None:
        self._resource_variables = resource_variables

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(fullname)
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            use_tensorflow1(self._resource_variables)

        spec.loader.exec_module = exec_module
        return spec


def _spec_of_main(module: str) -> Any:
    """Return the spec of the module that ``python -m`` would run."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError as error:
        if not module.startswith(f"{error.name}."):
            raise
        spec = None
    if spec is not None and spec.submodule_search_locations is not None:
        return _spec_of_main(f"{module}.__main__")
    if spec is None:
        raise ModuleNotFoundError(f"No module named {module!r} in {os.getcwd()} or on sys.path", name=module)
    return spec


_data_of_multiprocessing = spawn.get_preparation_data


def _preparation_data(name: str) -> dict[str, Any]:
    """Return what a fresh process of `multiprocessing` needs, with another module instead of the script."""
    data = _data_of_multiprocessing(name)
    data.pop("init_main_from_path", None)
    return {**data, "init_main_from_name": "tpk_tensorflow1.runner.spawned"}
