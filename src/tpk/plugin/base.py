"""The base of everything that is registered with a training."""

from __future__ import annotations

from typing import ClassVar

from tpk.plugin.description import RecordsOptions


class Plugin(RecordsOptions):
    """Something that is registered with a training under a unique name: its trainer, its strategy, monitors, callbacks.

    Attributes:
        kind: ``"trainer"``, ``"strategy"``, ``"monitor"`` or ``"callback"``.
        plugin_name: the unique name under which it was registered, such as ``"ModelSaver"`` or ``"ModelSaver#2"``. A
            `name` is the subclass's own affair.
    """

    kind: ClassVar[str]
    plugin_name: str = ""
