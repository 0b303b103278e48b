"""Monitors take what training reports (scalars, images, histograms, summaries), and show or keep it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tpk.monitors.base import Monitor
from tpk.monitors.csv_writer import CSVWriter
from tpk.monitors.history import UnknownScalarError
from tpk.monitors.json_writer import JSONWriter
from tpk.monitors.scalar_printer import ScalarPrinter
from tpk.monitors.values import ReportedValueError

if TYPE_CHECKING:
    from tpk.monitors.monitors import Monitors
    from tpk.monitors.tf_event_writer import TFEventWriter

__all__ = [
    "CSVWriter",
    "JSONWriter",
    "Monitor",
    "Monitors",
    "ReportedValueError",
    "ScalarPrinter",
    "TFEventWriter",
    "UnknownScalarError",
]

# These import TensorFlow; a monitor that needs none can be imported without.
_LAZY = {"Monitors": "tpk.monitors.monitors", "TFEventWriter": "tpk.monitors.tf_event_writer"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
