"""The runner of tensorpack scripts: that of tpk-tensorflow1, which also replaces imports of tensorpack."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from tpk_tensorflow1.runner import script

PACKAGES = {"tensorpack": "tpk_tensorpack"}
"""The packages that are replaced in addition to TensorFlow and NumPy."""


def run_script(path: str, arguments: Sequence[str] = (), also: Sequence[str] = ()) -> ModuleType:
    """Run a script for tensorpack; see `tpk_tensorflow1.runner.script.run_script`."""
    return script.run_script(path, arguments, also, PACKAGES, resource_variables=True)
