"""Messages over the socket between two processes: short ones; the data itself is in shared memory.

Each message is a header (kind, number, value), followed by `value` bytes if its kind is one of `WITH_PAYLOAD`. From the
sender of datapoints to the receiver:

- `BLOCK`: block `number` exists; it is the next one in the file of the blocks, and has `value` bytes. `DROP`: it is not
  used any more.
- `LAYOUT`: shapes and dtypes of the datapoints of layout `number`, which may replace an earlier layout.
- `ARRAYS`: a datapoint of layout `value` is in block `number`.
- `OBJECT`: a datapoint of any kind; its pickle, or the place of the pickle in block `number`.
- `END`: the pass over the flow is over.
- `STATE`: the position of the flow after the last datapoint or end.
- `LOG`: a log record. `ERROR`: the error that ended the sender.

And back: `USED`: `value` more datapoints or ends were taken. `FREE`: the last view into block `number` is gone.
"""

from __future__ import annotations

import pickle
import socket
import struct
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import attrs
import cloudpickle
import numpy as np

from tpk.dataflow.memory import ALIGNMENT, ArraySpec, aligned_copy, allocate_arrays
from tpk.dataflow.parallel.blocks import BlockFile, block_size, give_back

HEADER = struct.Struct("<BxxxIQ")

BLOCK, DROP, LAYOUT, ARRAYS, OBJECT, END, STATE, LOG, ERROR, USED, FREE = range(1, 12)
WITH_PAYLOAD = frozenset({LAYOUT, OBJECT, STATE, LOG, ERROR})

NO_BLOCK = 0xFFFFFFFF

AHEAD_BYTES = 1 << 26
"""How far a sender may be ahead by default: this many bytes, but 2 to 64 datapoints."""
AHEAD_MIN, AHEAD_MAX = 2, 64

END_OF_PASS: Any = object()
"""Returned by a receiver at the end of a pass over the flow."""


@attrs.frozen(eq=False)
class Layout:
    """The layout of datapoints of one kind in a block.

    Attributes:
        number: its number in messages.
        container: list, tuple or dict.
        names: the keys of a dict, in order.
        arrays: shape, dtype and offset in bytes of each component.
        size: the size of all arrays in bytes.
    """

    number: int
    container: type
    names: tuple[Any, ...]
    arrays: tuple[tuple[tuple[int, ...], np.dtype[Any], int], ...]
    size: int


class LinkClosed(Exception):
    """Raised when the other end of a link is gone."""


_LEAST_ALLOCATED = 1 << 18
"""The least size in bytes of a datapoint that is built in a block; copying a smaller one takes less time."""
_ROOM_BESIDE = 1 << 16
"""Bytes in such a block for the components that are not arrays before they are batched, such as labels."""
_MAX_LAYOUTS = 256
_MAX_INLINE = 512
"""The largest pickle in bytes that goes over the socket. Two ends that fill its buffer would wait for each other."""


class _OutBlock:
    """The sender's side of a block, with views of its arrays for each layout.

    Attributes:
        is_sent: whether the receiver may use it.
        lease: a weak reference to the arrays that `Sender.allocate` made in it.
        allocated: the size of these arrays in bytes, from the beginning of the block.
    """

    def __init__(self, number: int, size: int, memory: memoryview) -> None:
        self.number = number
        self.size = size
        self.memory = memory
        self.views: dict[int, list[np.ndarray[Any, Any]]] = {}
        self.is_sent = False
        self.lease: Any = None
        self.allocated = 0

    def arrays(self, layout: Layout) -> list[np.ndarray[Any, Any]]:
        """Return the arrays of a layout in the block."""
        views = self.views.get(layout.number)
        if views is None:
            views = [np.ndarray(shape, dtype, self.memory, offset) for shape, dtype, offset in layout.arrays]
            self.views[layout.number] = views
        return views

    def holds(self, values: Iterable[np.ndarray[Any, Any]], layout: Layout) -> bool:
        """Whether arrays that were allocated in this block are among `values`, all where the layout has them."""
        begin, found = _address(np.frombuffer(self.memory, np.uint8)), False
        for value, (_, _, offset) in zip(values, layout.arrays):  # noqa: B905 - equal; hot
            place = _address(value) - begin
            if 0 <= place < self.allocated and value.size:
                if place != offset or not value.flags.c_contiguous:
                    return False
                found = True
        return found


class Sender:
    """Sends datapoints to the `Receiver` at the other end of a socket.

    It blocks while the receiver is too far behind. A block is reused after the receiver has dropped the last view into
    it; if the receiver keeps datapoints, the sender makes more blocks.

    Args:
        main: a Unix stream socket for the messages.
        file: the file for the blocks, which only this sender and its receiver use.
        num_prefetch: number of datapoints that it may be ahead; None for `AHEAD_BYTES`.

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
        self._blocks: dict[int, _OutBlock] = {}
        self._free: list[_OutBlock] = []
        self._allocated: list[_OutBlock] = []
        # Arrays may be dropped in any thread, at any point of this code.
        self._let_go: deque[_OutBlock] = deque()
        self._blocks_made = 0
        self._dumps: Callable[..., bytes] = pickle.dumps

    @property
    def has_room(self) -> bool:
        """Whether a datapoint can be sent without blocking."""
        if self._ahead >= self._window:
            self._read_back(socket.MSG_DONTWAIT)
        return self._ahead < self._window

    def allocate(self, arrays: Sequence[ArraySpec]) -> list[np.ndarray[Any, Any]]:
        """Make the arrays of a datapoint, large ones in a block, so that `send` does not copy them; an `Allocate`.

        After `send`, the arrays belong to the receiver, and must not be used here. Unsent arrays are freed as usual.
        """
        sizes = [prod(shape) * dtype.itemsize for shape, dtype in arrays]
        if sum(sizes) < _LEAST_ALLOCATED or any(dtype.hasobject for _, dtype in arrays):
            return allocate_arrays(arrays)
        offsets, size = _lay_out(sizes)
        block = self._acquire(size + _ROOM_BESIDE)
        whole = np.frombuffer(block.memory, np.uint8)
        let_go = self._let_go
        block.lease = weakref.ref(whole, lambda reference: let_go.append(block))
        block.allocated = size
        self._allocated.append(block)
        return [np.ndarray(shape, dtype, whole, offset) for (shape, dtype), offset in zip(arrays, offsets, strict=True)]

    def send(self, datapoint: Any) -> None:
        """Send a datapoint: arrays in a list, tuple or dict through shared memory, anything else pickled.

        Large buffers of a pickle, such as nested arrays, also go through shared memory.
        """
        self._wait_for_room()
        layout = self._layout_of(datapoint)
        if layout is None:
            self._send_object(datapoint)
            return
        values = datapoint.values() if layout.container is dict else datapoint
        block = self._find_allocated(values, layout) or self._acquire(layout.size)
        for view, value in zip(block.arrays(layout), values):  # noqa: B905 - equal; hot
            np.copyto(view, value)  # does nothing if both are the same memory
        block.is_sent = True
        self._write(HEADER.pack(ARRAYS, block.number, layout.number))

    def send_end(self) -> None:
        """Send the end of the pass."""
        self._wait_for_room()
        self._write(HEADER.pack(END, 0, 0))

    def send_state(self, state: Any) -> None:
        """Send the position of the flow."""
        self._send_payload(STATE, 0, pickle.dumps(state, protocol=5))

    def send_log(self, record: Any) -> None:
        """Send a log record."""
        self._send_payload(LOG, 0, pickle.dumps(record, protocol=5))

    def send_error(self, payload: bytes) -> None:
        """Send the error that ends this sender."""
        self._send_payload(ERROR, 0, payload)

    def _send_payload(self, kind: int, number: int, payload: bytes) -> None:
        self._write(HEADER.pack(kind, number, len(payload)) + payload)

    def _find_allocated(self, values: Iterable[np.ndarray[Any, Any]], layout: Layout) -> _OutBlock | None:
        """Return the block in which a datapoint was built, if the rest of it has room there, too."""
        for block in self._allocated:
            if not block.is_sent and layout.size <= block.size and block.holds(values, layout):
                return block
        return None

    def _layout_of(self, datapoint: Any) -> Layout | None:
        """Return the layout of a datapoint, or None if it is not made of arrays."""
        container = type(datapoint)
        if container is list or container is tuple:
            names, values = (), datapoint
        elif container is dict:
            names, values = tuple(datapoint), datapoint.values()
        else:
            return None
        key: list[Any] = [container, names]
        for value in values:
            if type(value) is not np.ndarray:
                return None
            key.append(value.shape)
            key.append(value.dtype)
        found = tuple(key)
        try:
            return self._layouts[found]
        except KeyError:
            return self._new_layout(found, container, names, list(values))

    def _new_layout(
        self, key: Any, container: type, names: tuple[Any, ...], values: list[np.ndarray[Any, Any]]
    ) -> Layout | None:
        if len(self._layouts) >= _MAX_LAYOUTS:
            self._layouts.clear()
            for block in self._blocks.values():
                block.views.clear()
        if any(value.dtype.hasobject for value in values):
            self._layouts[key] = None
            return None
        offsets, size = _lay_out([value.nbytes for value in values])
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
        # It may contain classes of the main script; cloudpickle can handle these, but is slower.
        self._dumps = cloudpickle.dumps
        return self._pickle(datapoint)

    def _acquire(self, size: int) -> _OutBlock:
        """Return an unused block of at least `size` bytes."""
        if self._num_prefetch is None:
            self._window = min(max(AHEAD_BYTES // max(size, 1), AHEAD_MIN), AHEAD_MAX)
        while self._let_go:
            block = self._let_go.popleft()
            self._allocated.remove(block)
            block.lease, block.allocated = None, 0
            self._take_back(block)
        if not self._free:
            self._read_back(socket.MSG_DONTWAIT)
        # Use the latest first, which is still in the processor's cache.
        for place in reversed(range(len(self._free))):
            if self._free[place].size >= size:
                block = self._free.pop(place)
                if len(self._free) > self._window:  # The receiver kept many for a while.
                    self._drop(self._free[0])
                return block
        if self._free:
            self._drop(self._free[0])
        return self._new_block(block_size(size))

    def _new_block(self, size: int) -> _OutBlock:
        self._file.reserve(size)
        block = _OutBlock(self._blocks_made, size, self._file.map_next(size))
        self._blocks_made += 1
        self._blocks[block.number] = block
        self._write(HEADER.pack(BLOCK, block.number, size))
        return block

    def _drop(self, block: _OutBlock) -> None:
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
        """Handle the messages of the receiver."""
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

    def _take_back(self, block: _OutBlock) -> None:
        """Mark a block as free if neither end uses it."""
        if not block.is_sent and block.lease is None:
            self._free.append(block)


def _address(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _lay_out(sizes: list[int]) -> tuple[list[int], int]:
    """Return the aligned offsets of parts of these sizes, and the end of the last one.

    Large parts come first: those that were allocated stay in their place when small ones join them.
    """
    offsets, end = [0] * len(sizes), 0
    for index in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        offsets[index] = end
        end += -(-sizes[index] // ALIGNMENT) * ALIGNMENT
    return offsets, max(end, 1)


_CHUNK = 1 << 16
_ALL_ACKNOWLEDGED_AT = 8
_MAX_KEPT = 256
"""The largest number of blocks in use at the receiver. Each takes a page and a mapping, of which a process may have
65,000; so a consumer that keeps more datapoints, such as a cache, gets copies."""


class RemoteFailure(Exception):
    """Raised when the sender sends an error instead of a datapoint.

    Attributes:
        payload: the content of its message.
    """

    def __init__(self, payload: bytes) -> None:
        super().__init__("the sender failed")
        self.payload = payload


@attrs.define
class _InBlock:
    memory: memoryview
    release: Callable[[Any], None]
    lease: Any = None


class Receiver:
    """Receives datapoints from the `Sender` at the other end of a socket.

    The arrays of a datapoint are writable, aligned views into shared memory. Their block is reused when the last view
    is gone. While very many blocks are in use, further arrays are copies.

    Args:
        main: a Unix stream socket for the messages. If it has a timeout, `receive` may raise `TimeoutError`, and can
            be called again then.
        file: the sender's file for the blocks.
        num_prefetch: as for the sender.
        log: takes the log records of the sender.

    Attributes:
        items: number of datapoints and ends of passes received.
        state: the last state from the sender; None before the first.
        state_items: `items` when the state was received.
    """

    def __init__(
        self,
        main: socket.socket,
        file: BlockFile,
        num_prefetch: int | None = None,
        log: Callable[[Any], None] = lambda record: None,
    ) -> None:
        self._main = main
        self._file = file
        self._log = log
        self._acknowledge_at = 1 if num_prefetch is not None and num_prefetch < AHEAD_MAX else _ALL_ACKNOWLEDGED_AT
        self._data = b""
        self._place = 0
        self._unacknowledged = 0
        self._blocks: dict[int, _InBlock] = {}
        self._layouts: dict[int, Layout] = {}
        # Views may be dropped in any thread, at any point of this code.
        self._released: deque[int] = deque()
        self._kept = 0
        self.items = 0
        self.state: Any = None
        self.state_items = 0

    def receive(self) -> Any:
        """Return the next datapoint, or `END_OF_PASS`.

        Raises:
            LinkClosed: the sender is gone.
            RemoteFailure: the sender failed.
            TimeoutError: nothing came within the timeout of the socket.
        """
        while True:
            kind, number, value, payload = self._next_message()
            if kind == ARRAYS:
                item = self._arrays(number, self._layouts[value])
            elif kind == OBJECT:
                item = self._object(number, payload)
            elif kind == END:
                item = END_OF_PASS
            else:
                self._take_notice(kind, number, value, payload)
                continue
            self.items += 1
            self._unacknowledged += 1
            if self._unacknowledged >= self._acknowledge_at:
                self._acknowledge()
            return item

    @property
    def has_message(self) -> bool:
        """Whether a message was read from the socket that `receive` did not handle yet."""
        return len(self._data) > self._place

    def _next_message(self) -> tuple[int, int, int, bytes]:
        place = self._place
        while len(self._data) < place + HEADER.size:
            self._read_more()
            place = self._place
        kind, number, value = HEADER.unpack_from(self._data, place)
        end = place + HEADER.size
        payload = b""
        if kind in WITH_PAYLOAD:
            while len(self._data) < self._place + HEADER.size + value:
                self._read_more()
            begin = self._place + HEADER.size
            end = begin + value
            payload = self._data[begin:end]
        self._place = end
        return kind, number, value, payload

    def _read_more(self) -> None:
        self._acknowledge()  # The sender may be waiting for that.
        try:
            data = self._main.recv(_CHUNK)
        except TimeoutError:
            raise
        except OSError:
            data = b""
        if not data:
            raise LinkClosed("the sender of the datapoints is gone")
        self._data = self._data[self._place :] + data
        self._place = 0

    def _acknowledge(self) -> None:
        if not self._unacknowledged and not self._released:
            return
        message = HEADER.pack(USED, 0, self._unacknowledged)
        self._unacknowledged = 0
        while self._released:
            message += HEADER.pack(FREE, self._released.popleft(), 0)
            self._kept -= 1
        try:
            self._main.sendall(message)
        except OSError:
            pass  # Its last messages can still be read.

    def _take_notice(self, kind: int, number: int, value: int, payload: bytes) -> None:
        if kind == BLOCK:
            self._add_block(number, value)
        elif kind == DROP:
            del self._blocks[number]
        elif kind == LAYOUT:
            self._layouts[number] = Layout(*pickle.loads(payload))
        elif kind == STATE:
            self.state, self.state_items = pickle.loads(payload), self.items
        elif kind == ERROR:
            raise RemoteFailure(payload)
        else:
            self._log(pickle.loads(payload))

    def _add_block(self, number: int, size: int) -> None:
        released = self._released
        self._blocks[number] = _InBlock(self._file.map_next(size), lambda reference: released.append(number))
        if size > AHEAD_BYTES // AHEAD_MAX:
            self._acknowledge_at = 1

    def _lease(self, number: int) -> np.ndarray[Any, Any]:
        """Return the bytes of a block, which is released when that array and all views of it are gone."""
        self._kept += 1
        block = self._blocks[number]
        whole = np.frombuffer(block.memory, np.uint8)
        block.lease = weakref.ref(whole, block.release)
        return whole

    def _arrays(self, number: int, layout: Layout) -> Any:
        whole = self._lease(number)
        arrays = [np.ndarray(shape, dtype, whole, offset) for shape, dtype, offset in layout.arrays]
        if self._kept > _MAX_KEPT:
            arrays = [aligned_copy(array) for array in arrays]
        if layout.container is list:
            return arrays
        return tuple(arrays) if layout.container is tuple else dict(zip(layout.names, arrays, strict=True))

    def _object(self, number: int, payload: bytes) -> Any:
        head, spans = pickle.loads(payload)
        if number == NO_BLOCK:
            return pickle.loads(head)
        whole = self._lease(number)
        buffers = [whole[offset : offset + length] for offset, length in spans]
        if self._kept > _MAX_KEPT:
            buffers = [aligned_copy(buffer) for buffer in buffers]
        if head is None:
            head = buffers.pop(0)
        return pickle.loads(head, buffers=buffers)
