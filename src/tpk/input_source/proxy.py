"""Input sources that take their data from another source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpk.dataflow.position import Position
from tpk.errors import InputError
from tpk.input_source.base import InputSource
from tpk.input_source.meter import InputMeter
from tpk.plugin.callback import Callback


class ProxyInput(InputSource):
    """Base of the sources that take their data from another source: size, end, seeds and positions are that one's.

    Args:
        source: the other one.
    """

    def __init__(self, source: InputSource) -> None:
        self.source = source

    @property
    def is_fed(self) -> bool:  # type: ignore[override]
        """Whether the source is."""
        return self.source.is_fed

    @property
    def size(self) -> int | None:
        """The size of the source."""
        return self.source.size

    def end_after_each_pass(self) -> bool:
        """Let the source end."""
        return self.source.end_after_each_pass()

    @property
    def position(self) -> Position | None:
        """The position of the source's dataflow."""
        return self.source.position

    @property
    def innermost(self) -> InputSource:
        """The source at the end of the chain."""
        return self.source.innermost

    def seed(self, seed: int) -> None:
        """Seed the source."""
        self.source.seed(seed)

    def keep_first(self, count: int) -> None:
        """Let the source keep them."""
        self.source.keep_first(count)

    def shard(self, index: int, count: int) -> None:
        """Let the source deliver only a share."""
        self.source.shard(index, count)

    def datapoints_of(self, takes: range) -> range:
        """Ask the source, which counts as this one does."""
        return self.source.datapoints_of(takes)

    def state_after(self, count: int) -> dict[str, Any]:
        """Return the position of the source."""
        return self.source.state_after(count)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the source back its position."""
        self.source.load_state_dict(state)


class RemapInput(ProxyInput):
    """Gives the inputs with certain names from a source, and a placeholder for each of the others.

    Args:
        source: provides the inputs called `names`, in that order.
        names: names from the signature; the components of the source's datapoints, by position.

    Raises:
        InputError: (at `setup`) a name is not in the signature.
    """

    def __init__(self, source: InputSource, names: Sequence[str]) -> None:
        super().__init__(source)
        self.names = list(names)

    @property
    def max_ahead(self) -> int:
        """What the source may be ahead."""
        return self.source.max_ahead

    @max_ahead.setter
    def max_ahead(self, count: int) -> None:
        self.source.max_ahead = count

    @property
    def consumed(self) -> int:
        """How many datapoints have left the source."""
        return self.source.consumed

    def state_dict(self, ahead: int = 0) -> dict[str, Any]:
        """Return the position of the source."""
        return self.source.state_dict(ahead)

    def interrupt(self) -> None:
        """Interrupt the source."""
        self.source.interrupt()

    def make_meter(self) -> InputMeter | None:
        """Return the meter of the source."""
        return self.source.make_meter()

    def _setup(self) -> list[Callback]:
        specs = {spec.name: spec for spec in self.signature}
        unknown = [name for name in self.names if name not in specs]
        if unknown:
            raise InputError(f"remap_input_source: the signature has no {unknown}; it has {list(specs)}")
        return self.source.setup([specs[name] for name in self.names])

    def _get_input_tensors(self) -> list[Any]:
        given = dict(zip(self.names, self.source.get_input_tensors(), strict=True))
        return [
            given[spec.name] if spec.name in given else tf.compat.v1.placeholder(spec.dtype, spec.shape, name=spec.name)
            for spec in self.signature
        ]

    def _reset_state(self) -> None:
        self.source.reset_state()


def remap_input_source(source: InputSource, names: Sequence[str]) -> RemapInput:
    """Let a source provide only the inputs called `names`; the other ones become placeholders.

    Whoever runs the graph feeds those, e.g. a callback's `before_run`.

    Args:
        source: provides one component for each name.
        names: names from the model's signature, in the order of the source's components.

    Example:
        ```python
        # The model's inputs are image, label and mask; the data has labels and images.
        source = remap_input_source(QueueInput(flow), ["label", "image"])
        ```
    """
    return RemapInput(source, names)
