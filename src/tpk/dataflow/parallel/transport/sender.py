"""Sending end of a link: copies datapoints into shared memory, once, or has them put together there."""

from __future__ import annotations

import pickle
import socket
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from itertools import zip_longest
from math import prod
from typing import Any, TypeAlias

import attrs
import cloudpickle
import numpy as np

from tpk.dataflow.memory import ALIGNMENT, ArraySpec, allocate_aligned
from tpk.dataflow.parallel.transport.block import BlockFile, block_size, give_back
from tpk.dataflow.parallel.transport.wire import (
    AHEAD_BYTES,
    AHEAD_MAX,
    AHEAD_MIN,
    ARRAYS,
    BLOCK,
    DROP,
    END,
    ERROR,
    FORGET,
    FREE,
    HEADER,
    LAYOUT,
    LOG,
    NO_BLOCK,
    OBJECT,
    STATE,
    USED,
    Layout,
    LinkClosed,
)

_LEAST_ALLOCATED = 1 << 16
"""Bytes of a datapoint from which it pays to put it together in a block; to copy fewer takes less time."""
_MAX_LAYOUTS = 256
_MAX_INLINE = 512
"""Bytes of a pickle that go over the socket. Two that send to each other would wait forever if its buffer got full."""


Places: TypeAlias = tuple[int | None, ...]
"""Of each array of a datapoint, where in a block it lies already; empty if none does."""


class _Block:
    """A block as its sender sees it, with the arrays that lie in it in each layout.

    Attributes:
        is_sent: whether the receiver may look at it.
        lease: to what `Sender.allocate` has made in it, as long as somebody here looks at that.
        allocated: how many bytes that takes, from the beginning on.
    """

    def __init__(self, number: int, size: int, memory: memoryview) -> None:
        self.number = number
        self.size = size
        self.memory = memory
        self.address = _address(np.frombuffer(memory, np.uint8))
        self.views: dict[int, list[np.ndarray[Any, Any] | None]] = {}
        self.is_sent = False
        self.lease: Any = None
        self.allocated = 0

    def place_of(self, array: Any) -> int | None:
        """Return where an array lies in what was allocated here, or None if it lies elsewhere."""
        if type(array) is not np.ndarray or not array.flags.c_contiguous or not array.size:
            return None
        place = _address(array) - self.address
        return place if 0 <= place < self.allocated else None

    def arrays(self, layout: Layout, places: Places) -> list[np.ndarray[Any, Any] | None]:
        """Return the arrays of the block, each to be written to; None for those of which `places` says it is done."""
        views = self.views.get(layout.number)
        if views is None:
            views = [np.ndarray(shape, dtype, self.memory, offset) for shape, dtype, offset in layout.arrays]
            views = [None if place is not None else view for view, place in zip_longest(views, places)]
            self.views[layout.number] = views
        return views


class Sender:
    """Sends datapoints to the `Receiver` at the other end of a socket.

    It waits while the receiver is too far behind; a block is written again only after the receiver has let go of the
    last view into it. What the receiver keeps does not count as being behind: there are more blocks then.

    Args:
        main: a Unix stream socket for the messages.
        file: for the blocks; of this sender alone, and its receiver.
        num_prefetch: how many datapoints to be ahead at most; None for what `AHEAD_BYTES` says.

    Raises:
        LinkClosed: (from every method) the other end is gone.
    """

    def __init__(self, main: socket.socket, file: BlockFile, num_prefetch: int | None = None) -> None:
        self._main = main
        self._file = file
        self._num_prefetch = num_prefetch
        self._window = num_prefetch or AHEAD_MIN
        self._ahead = 0
        self._unread = b""
        self._layouts: dict[Any, Layout | None] = {}
        self._blocks: dict[int, _Block] = {}
        self._free: list[_Block] = []
        self._allocated: list[_Block] = []
        # What was allocated may be let go of in any thread, even in the middle of what stands here.
        self._let_go: deque[_Block] = deque()
        self._room_beside = ALIGNMENT * 64
        self._blocks_made = 0
        self._dumps: Callable[..., bytes] = pickle.dumps

    @property
    def has_room(self) -> bool:
        """Whether a datapoint can be sent without waiting."""
        if self._ahead >= self._window:
            self._read_back(socket.MSG_DONTWAIT)
        return self._ahead < self._window

    def allocate(self, arrays: Sequence[ArraySpec]) -> list[np.ndarray[Any, Any]]:
        """Make the arrays of a datapoint, an `Allocate`: large ones in a block, so that `send` need not copy them.

        What is sent so belongs to the receiver; it must not be looked at here any more. What is not sent is let go of
        like any array.
        """
        sizes = [prod(shape) * dtype.itemsize for shape, dtype in arrays]
        if sum(sizes) < _LEAST_ALLOCATED or any(dtype.hasobject for _, dtype in arrays):
            return allocate_aligned(arrays)
        offsets, size = _lay_out(sizes)
        block = self._acquire(size + self._room_beside)
        whole = np.frombuffer(block.memory, np.uint8)
        let_go = self._let_go
        block.lease = weakref.ref(whole, lambda reference: let_go.append(block))
        block.allocated = size
        self._allocated.append(block)
        return [np.ndarray(shape, dtype, whole, offset) for (shape, dtype), offset in zip(arrays, offsets, strict=True)]

    def send(self, datapoint: Any) -> None:
        """Send a datapoint: arrays in a list, tuple or dict through shared memory, anything else pickled.

        A pickle's large buffers, such as arrays within it, go through shared memory, too.
        """
        self._wait_for_room()
        block, places = self._find_allocated(datapoint) if self._allocated else (None, ())
        layout = self._layout_of(datapoint, places, block)
        if layout is None:
            self._send_object(datapoint)
            return
        if block is not None and layout.size > block.size:
            self._room_beside = layout.size - block.allocated  # for the next ones, which are like this one
            block, places = None, ()
            layout = self._layout_of(datapoint)
            assert layout is not None
        if block is None:
            block = self._acquire(layout.size)
        values = datapoint.values() if layout.container is dict else datapoint
        for view, value in zip(block.arrays(layout, places), values):  # noqa: B905 - equal; hot
            if view is not None:
                np.copyto(view, value)
        block.is_sent = True
        self._write(HEADER.pack(ARRAYS, block.number, layout.number))

    def send_end(self) -> None:
        """Tell that the pass is over."""
        self._wait_for_room()
        self._write(HEADER.pack(END, 0, 0))

    def send_state(self, state: Any) -> None:
        """Tell where the flow stands now."""
        self._send_payload(STATE, 0, pickle.dumps(state, protocol=5))

    def send_log(self, record: Any) -> None:
        """Send a record for the log."""
        self._send_payload(LOG, 0, pickle.dumps(record, protocol=5))

    def send_error(self, payload: bytes) -> None:
        """Tell why nothing more comes."""
        self._send_payload(ERROR, 0, payload)

    def _send_payload(self, kind: int, number: int, payload: bytes) -> None:
        self._write(HEADER.pack(kind, number, len(payload)) + payload)

    def _find_allocated(self, datapoint: Any) -> tuple[_Block | None, Places]:
        """Return the block that was allocated for a datapoint, and where in it each of its arrays lies."""
        values = list(datapoint.values()) if type(datapoint) is dict else datapoint
        if type(values) is list or type(values) is tuple:
            for block in self._allocated:
                places = tuple(block.place_of(value) for value in values)
                if not block.is_sent and any(place is not None for place in places):
                    return block, places
        return None, ()

    def _layout_of(self, datapoint: Any, places: Places = (), block: _Block | None = None) -> Layout | None:
        """Return the layout of a datapoint, or None if it is not made of arrays.

        Args:
            datapoint: anything.
            places: where in `block` each of its arrays lies, None for those that lie elsewhere.
            block: what was allocated for it, if anything was.
        """
        container = type(datapoint)
        if container is list or container is tuple:
            names, values = (), datapoint
        elif container is dict:
            names, values = tuple(datapoint), datapoint.values()
        else:
            return None
        key: list[Any] = [container, names, places]
        for value in values:
            if type(value) is not np.ndarray:
                return None
            key.append(value.shape)
            key.append(value.dtype)
        found = tuple(key)
        try:
            return self._layouts[found]
        except KeyError:
            return self._new_layout(found, list(values), 0 if block is None else block.allocated)

    def _new_layout(self, key: Any, values: list[np.ndarray[Any, Any]], begin: int) -> Layout | None:
        if len(self._layouts) >= _MAX_LAYOUTS:
            self._layouts.clear()
            for block in self._blocks.values():
                block.views.clear()
            self._write(HEADER.pack(FORGET, 0, 0))
        if any(value.dtype.hasobject for value in values):
            self._layouts[key] = None
            return None
        container, names, places, *_ = key
        elsewhere = [value.nbytes for value, place in zip_longest(values, places) if place is None]
        free, size = _lay_out(elsewhere, begin)
        rest = iter(free)
        offsets = [next(rest) if place is None else place for _, place in zip_longest(values, places)]
        arrays = tuple((value.shape, value.dtype, offset) for value, offset in zip(values, offsets, strict=True))
        layout = Layout(len(self._layouts), container, names, arrays, size)
        self._layouts[key] = layout
        self._send_payload(LAYOUT, layout.number, self._pickle(attrs.astuple(layout, recurse=False))[0])
        return layout

    def _send_object(self, datapoint: Any) -> None:
        head, buffers = self._pickle(datapoint)
        parts = [buffer.raw() for buffer in buffers]
        is_inline = len(head) <= _MAX_INLINE
        if not is_inline:
            parts.insert(0, memoryview(head))
        number, spans = NO_BLOCK, []
        if parts:
            offsets, size = _lay_out([part.nbytes for part in parts])
            block = self._acquire(size)
            number, spans = block.number, [(offset, part.nbytes) for offset, part in zip(offsets, parts, strict=True)]
            for (offset, length), part in zip(spans, parts, strict=True):
                block.memory[offset : offset + length] = part
            block.is_sent = True
        self._send_payload(OBJECT, number, pickle.dumps((head if is_inline else None, spans), protocol=5))

    def _pickle(self, datapoint: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
        buffers: list[pickle.PickleBuffer] = []
        try:
            return self._dumps(datapoint, protocol=5, buffer_callback=buffers.append), buffers
        except Exception:
            if self._dumps is cloudpickle.dumps:
                raise
        # Something of the main script; cloudpickle takes it, and is slower.
        self._dumps = cloudpickle.dumps
        return self._pickle(datapoint)

    def _acquire(self, size: int) -> _Block:
        """Return a block of at least that size that nobody looks at."""
        if self._num_prefetch is None:
            self._window = min(max(AHEAD_BYTES // max(size, 1), AHEAD_MIN), AHEAD_MAX)
        while self._let_go:
            block = self._let_go.popleft()
            self._allocated.remove(block)
            block.lease, block.allocated = None, 0
            self._take_back(block)
        if not self._free:
            self._read_back(socket.MSG_DONTWAIT)
        # The last to come back first: it is still in the processor's cache.
        for place in reversed(range(len(self._free))):
            if self._free[place].size >= size:
                block = self._free.pop(place)
                if len(self._free) > self._window:  # The receiver has kept many for a while.
                    self._drop(self._free[0])
                return block
        if self._free:
            self._drop(self._free[0])
        return self._new_block(block_size(size))

    def _new_block(self, size: int) -> _Block:
        self._file.reserve(size)
        block = _Block(self._blocks_made, size, self._file.map_next(size))
        self._blocks_made += 1
        self._blocks[block.number] = block
        self._write(HEADER.pack(BLOCK, block.number, size))
        return block

    def _drop(self, block: _Block) -> None:
        self._free.remove(block)
        del self._blocks[block.number]
        give_back(block.memory)
        self._write(HEADER.pack(DROP, block.number, 0))

    def _write(self, message: bytes) -> None:
        try:
            self._main.sendall(message)
        except OSError as error:
            raise LinkClosed("the receiver of the datapoints is gone") from error

    def _wait_for_room(self) -> None:
        while self._ahead >= self._window:
            self._read_back(0)
        self._ahead += 1

    def _read_back(self, flags: int) -> None:
        """Take in what the receiver has sent back."""
        try:
            data = self._main.recv(1 << 16, flags)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            raise LinkClosed("the receiver of the datapoints is gone")
        data = self._unread + data
        complete = len(data) - len(data) % HEADER.size
        self._unread = data[complete:]
        for kind, number, value in HEADER.iter_unpack(data[:complete]):
            if kind == USED:
                self._ahead -= value
            elif kind == FREE:
                block = self._blocks[number]
                block.is_sent = False
                self._take_back(block)

    def _take_back(self, block: _Block) -> None:
        """Use a block again if nobody looks at it any more, neither there nor here."""
        if not block.is_sent and block.lease is None:
            self._free.append(block)


def _address(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _lay_out(sizes: list[int], begin: int = 0) -> tuple[list[int], int]:
    """Return where parts of these sizes start, aligned as TensorFlow wants arrays, and where the last one ends."""
    offsets, end = [], -(-begin // ALIGNMENT) * ALIGNMENT
    for size in sizes:
        offsets.append(end)
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return offsets, max(end, 1)
