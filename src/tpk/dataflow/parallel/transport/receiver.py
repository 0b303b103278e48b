"""Receiving end of a link: hands out views into shared memory, and tells when they are gone."""

from __future__ import annotations

import pickle
import socket
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from tpk.dataflow.memory import aligned_copy
from tpk.dataflow.parallel.transport.block import BlockFile
from tpk.dataflow.parallel.transport.wire import (
    AHEAD_BYTES,
    AHEAD_MAX,
    ARRAYS,
    BLOCK,
    DROP,
    END,
    END_OF_PASS,
    ERROR,
    FORGET,
    FREE,
    HEADER,
    LAYOUT,
    NO_BLOCK,
    OBJECT,
    STATE,
    USED,
    WITH_PAYLOAD,
    Layout,
    LinkClosed,
)

_CHUNK = 1 << 16
_ALL_ACKNOWLEDGED_AT = 8
_MAX_KEPT = 256
"""Blocks. Each is a mapping of its own, of which a process may have some 65,000, and takes a page at least; so whoever
keeps more datapoints than that, such as a cache, gets copies of the further ones."""


class RemoteFailure(Exception):
    """The sender sent an error instead of a datapoint.

    Attributes:
        payload: what it sent.
    """

    def __init__(self, payload: bytes) -> None:
        super().__init__("the sender failed")
        self.payload = payload


@attrs.define
class _Block:
    memory: memoryview
    release: Callable[[Any], None]
    lease: Any = None


class Receiver:
    """Receives datapoints from the `Sender` at the other end of a socket.

    The arrays of a datapoint are views into shared memory, writable, and start on a multiple of 64 bytes. Their block
    is used again when the last of them is gone. While very many are kept, further ones are copies.

    Args:
        main: a Unix stream socket for the messages. If it has a timeout, `receive` may raise `TimeoutError`, and can
            be called again then.
        file: the sender's, for the blocks.
        num_prefetch: as the sender has it.
        log: takes what the sender logs.

    Attributes:
        items: how many datapoints and ends of passes were received.
        state: the last state that the sender told; None before the first.
        state_items: `items` when it was told.
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
        self._blocks: dict[int, _Block] = {}
        self._layouts: dict[int, Layout] = {}
        # Views are let go of in any thread, at any time, even in the middle of what stands here.
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
        """Whether something has been read from the socket that `receive` has not yet looked at."""
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
            pass  # What it has sent before it went is still there to be read.

    def _take_notice(self, kind: int, number: int, value: int, payload: bytes) -> None:
        if kind == BLOCK:
            self._add_block(number, value)
        elif kind == DROP:
            del self._blocks[number]
        elif kind == LAYOUT:
            self._layouts[number] = Layout(*pickle.loads(payload))
        elif kind == FORGET:
            self._layouts.clear()
        elif kind == STATE:
            self.state, self.state_items = pickle.loads(payload), self.items
        elif kind == ERROR:
            raise RemoteFailure(payload)
        else:
            self._log(pickle.loads(payload))

    def _add_block(self, number: int, size: int) -> None:
        released = self._released
        self._blocks[number] = _Block(self._file.map_next(size), lambda reference: released.append(number))
        if size > AHEAD_BYTES // AHEAD_MAX:
            self._acknowledge_at = 1

    def _lease(self, number: int) -> np.ndarray[Any, Any]:
        """Return the bytes of a block; when that array and all views of it are gone, the block is released."""
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
