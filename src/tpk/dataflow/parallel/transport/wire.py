"""Messages over the socket between two processes: short ones; the data itself is in shared memory.

Each message is a header (kind, number, value), followed by `value` bytes if its kind is one of `WITH_PAYLOAD`. From the
sender of datapoints to the receiver:

- `BLOCK`: block `number` exists; it is the next one in the file of the blocks, and has `value` bytes. `DROP`: it is no
  longer used.
- `LAYOUT`: what the datapoints of layout `number` look like. `FORGET`: all layouts are void.
- `ARRAYS`: a datapoint of layout `value` is in block `number`.
- `OBJECT`: a datapoint of any kind; its pickle, or where in block `number` that is.
- `END`: the pass over the flow is over.
- `STATE`: where the flow stands after the last datapoint or end.
- `LOG`: a record for the log. `ERROR`: what ended the sender.

And back: `USED`: `value` more datapoints or ends were taken, `FREE`: no view into block `number` is left.
"""

from __future__ import annotations

import struct
from typing import Any

import attrs
import numpy as np

HEADER = struct.Struct("<BxxxIQ")

BLOCK, DROP, LAYOUT, FORGET, ARRAYS, OBJECT, END, STATE, LOG, ERROR, USED, FREE = range(1, 13)
WITH_PAYLOAD = frozenset({LAYOUT, OBJECT, STATE, LOG, ERROR})

NO_BLOCK = 0xFFFFFFFF

AHEAD_BYTES = 1 << 26
"""How far a sender goes ahead unless told otherwise: so many bytes, but 2 to 64 datapoints."""
AHEAD_MIN, AHEAD_MAX = 2, 64

END_OF_PASS: Any = object()
"""What a receiver returns when the pass over the flow is over."""


@attrs.frozen(eq=False)
class Layout:
    """How datapoints of one kind lie in a block.

    Attributes:
        number: what the wire calls it.
        container: list, tuple or dict.
        names: the keys of a dict, in order.
        arrays: shape, dtype and offset in bytes of each component.
        size: how many bytes all of them take.
    """

    number: int
    container: type
    names: tuple[Any, ...]
    arrays: tuple[tuple[tuple[int, ...], np.dtype[Any], int], ...]
    size: int


class LinkClosed(Exception):
    """The other end of a link is gone."""
