"""The base of input sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tpk

__all__ = ["InputSource", "remap_input_source"]

InputSource = tpk.InputSource


def remap_input_source(input: Any, names: Sequence[str]) -> tpk.InputSource:
    """Return an input source with the components of `input` under other names; see `tpk.remap_input_source`.

    Args:
        input: an input source.
        names: for each component the name of the input of the model that it is.
    """
    return tpk.remap_input_source(input, names)
