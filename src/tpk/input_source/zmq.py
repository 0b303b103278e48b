"""Data that other processes send, as an input source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tpk.input_source.base import InputSource
from tpk.input_source.queue import QueueInput


class ZMQInput(QueueInput):
    """Takes the datapoints that `send_dataflow_zmq` sends, here or elsewhere.

    It is a `QueueInput` of a `RemoteDataZMQ`, which says
    what holds for the senders. Where the data stands is known to them alone, so there is no position: a resumed run
    goes on with what they send next.

    Args:
        endpoint: ``"tcp://host:port"`` or ``"ipc:///path"``, or several of them.
        hwm: how many datapoints of each sender may wait in this process, besides the queue.
        bind: whether the senders connect to this address, rather than this source to the senders'.
        key: a secret that sender and receiver share, by default that of this user; see `send_dataflow_zmq`.
        senders: how many there are at least.
        queue_size: how many datapoints the queue holds.
        infinite: whether there is another pass when all senders have come to their end. Otherwise the training ends
            then.
        timeout: seconds; a wait for data that lasts so long, while a sender gives no sign of life, is an error.

    Raises:
        ConfigError: an option has a value that it cannot have.
        PluginImportError: pyzmq is not installed.

    Example:
        ```python
        source = ZMQInput("tcp://127.0.0.1:8877")
        ```
    """

    def __init__(
        self,
        endpoint: str | Sequence[str],
        hwm: int = 8,
        bind: bool = True,
        *,
        key: bytes | str | None = None,
        senders: int = 1,
        queue_size: int = 50,
        infinite: bool = True,
        timeout: float = 60.0,
    ) -> None:
        # Nobody else needs what it imports.
        from tpk.dataflow.zmq.receiver import RemoteDataZMQ

        self._receiver = RemoteDataZMQ(endpoint, hwm, bind, key=key, senders=senders, timeout=timeout)
        super().__init__(self._receiver, queue_size=queue_size, infinite=infinite)

    @property
    def size(self) -> None:
        """Nobody knows how much will be sent."""
        return None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the sockets are, with the ports that were taken."""
        return self._receiver.addresses

    def shard(self, index: int, count: int) -> None:
        """Do nothing: what one process receives, no other does."""

    def state_after(self, count: int) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take nothing."""
        InputSource.load_state_dict(self, state)

    def start(self, session: Any) -> None:
        """Open the sockets, and start to fill the queue; called in `before_train`."""
        self._receiver.reset_state()
        super().start(session)

    def stop(self) -> None:
        """Close the sockets, and stop the thread; called in `after_train`."""
        # The thread may wait for data. For it, the closing ends a pass, after which no other must begin.
        self._stream.infinite, self._stream.may_be_empty = False, True
        self._receiver.close()
        super().stop()
