"""Callbacks under an older module name."""

from __future__ import annotations

from tpk_tensorpack.callbacks.graph import DumpParamAsImage as DumpParamAsImage
from tpk_tensorpack.callbacks.misc import InjectShell as InjectShell, SendStat as SendStat

__all__: list[str] = []
