"""The base class of input sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tpk

__all__ = ["InputSource", "remap_input_source"]

InputSource = tpk.InputSource


def remap_input_source(input: Any, names: Sequence[str]) -> tpk.InputSource:
    """Rename the components of an input source; see `tpk.remap_input_source`.

    Args:
        input: an input source.
        names: for each component, the name of the model input that it feeds.
    """
    return tpk.remap_input_source(input, names)
