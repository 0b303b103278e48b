"""The script runner of tpk-tensorflow1, extended to replace imports of tensorpack."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from tpk_tensorflow1.runner import script

PACKAGES = {"tensorpack": "tpk_tensorpack"}
"""The packages to replace in addition to TensorFlow and NumPy."""


def run_script(path: str, arguments: Sequence[str] = (), also: Sequence[str] = ()) -> ModuleType:
    """Run a tensorpack script; see `tpk_tensorflow1.runner.script.run_script`."""
    return script.run_script(path, arguments, also, PACKAGES, resource_variables=True)
