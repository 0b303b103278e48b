"""What goes over the socket between two processes: short messages; the data itself is in shared memory.

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

HEADER = struct.Struct("<BxxxIQ")

BLOCK, DROP, LAYOUT, FORGET, ARRAYS, OBJECT, END, STATE, LOG, ERROR, USED, FREE = range(1, 13)
WITH_PAYLOAD = frozenset({LAYOUT, OBJECT, STATE, LOG, ERROR})

NO_BLOCK = 0xFFFFFFFF

END_OF_PASS: Any = object()
"""What a receiver returns when the pass over the flow is over."""


class LinkClosed(Exception):
    """The other end of a link is gone."""
