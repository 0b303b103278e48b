"""An input source for datapoints that other processes send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tpk.input_source import InputSource, QueueInput
from tpk_zmq.receiver import RemoteDataZMQ


class ZMQInput(QueueInput):
    """A `QueueInput` that receives the datapoints of `send_dataflow_zmq`; see `RemoteDataZMQ` about the senders.

    It has no position in the data: a resumed run continues with whatever the senders send next.

    Args:
        endpoint: ``"tcp://host:port"`` or ``"ipc:///path"``, or several of them.
        hwm: how many datapoints of each sender may wait in this process, in addition to the queue.
        bind: True if this process binds to the address and the senders connect to it; False for the reverse.
        queue_size: the capacity of the queue, in datapoints.
        infinite: whether a new pass begins when all senders have finished. Otherwise training ends.
        options: the other options of `RemoteDataZMQ`: `key`, `senders` and `timeout`.

    Raises:
        ConfigError: if an option is invalid.

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
        queue_size: int = 50,
        infinite: bool = True,
        **options: Any,
    ) -> None:
        self._receiver = RemoteDataZMQ(endpoint, hwm, bind, **options)
        super().__init__(self._receiver, queue_size=queue_size, infinite=infinite)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the sockets, with actual port numbers."""
        return self._receiver.addresses

    def shard(self, index: int, count: int) -> None:
        """Do nothing: processes do not receive each other's data."""

    def state_after(self, count: int) -> dict[str, Any]:
        """Return an empty position."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Accept only an empty position."""
        InputSource.load_state_dict(self, state)

    def start(self, session: Any) -> None:
        """Open the sockets, and start to fill the queue; called in `before_train`."""
        self._receiver.reset_state()
        super().start(session)

    def stop(self) -> None:
        """Stop the thread, which may be waiting for data, and close the sockets; called in `after_train`."""
        self.interrupt()
        self._receiver.close()
        super().stop()
