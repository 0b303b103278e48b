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
    """Base class of the sources that take their data from another source, and delegate to it.

    Args:
        source: the other source.
    """

    def __init__(self, source: InputSource) -> None:
        self.source = source
        self.is_fed = source.is_fed

    @property
    def max_ahead(self) -> int:
        """How far the source may be ahead."""
        return self.source.max_ahead

    @max_ahead.setter
    def max_ahead(self, count: int) -> None:
        self.source.max_ahead = count

    @property
    def size(self) -> int | None:
        """The size of the source."""
        return self.source.size

    def end_after_each_pass(self) -> bool:
        """Make the source end."""
        return self.source.end_after_each_pass()

    @property
    def position(self) -> Position | None:
        """The position in the source's dataflow."""
        return self.source.position

    @property
    def innermost(self) -> InputSource:
        """The last source of the chain."""
        return self.source.innermost

    @property
    def left_out(self) -> int:
        """How many datapoints the source leaves out."""
        return self.source.left_out

    def place_on(self, devices: Sequence[str]) -> None:
        """Tell the source about the devices."""
        self.source.place_on(devices)

    def seed(self, seed: int) -> None:
        """Seed the source."""
        self.source.seed(seed)

    def keep_first(self, count: int) -> None:
        """Make the source keep its first datapoints."""
        self.source.keep_first(count)

    def shard(self, index: int, count: int) -> None:
        """Make the source deliver only a share."""
        self.source.shard(index, count)

    @property
    def consumed(self) -> int:
        """How many datapoints have left the source."""
        return self.source.consumed

    def datapoints_of(self, takes: range) -> range:
        """Ask the source, which counts as this one does."""
        return self.source.datapoints_of(takes)

    def state_after(self, count: int) -> dict[str, Any]:
        """Return the position of the source."""
        return self.source.state_after(count)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the position of the source."""
        self.source.load_state_dict(state)

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Ask the source."""
        return self.source.translate_error(error)

    def interrupt(self) -> None:
        """Interrupt the source."""
        self.source.interrupt()

    def make_meter(self) -> InputMeter | None:
        """Return the meter of the source."""
        return self.source.make_meter()

    def _reset_state(self) -> None:
        self.source.reset_state()


class RemapInput(ProxyInput):
    """Takes the inputs with certain names from a source, and makes a placeholder for each of the others.

    Args:
        source: provides the inputs called `names`, in that order.
        names: names from the signature; the components of the source's datapoints, by position.

    Raises:
        InputError: (at `setup`) a name is not in the signature.
    """

    def __init__(self, source: InputSource, names: Sequence[str]) -> None:
        super().__init__(source)
        self.names = list(names)

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


def remap_input_source(source: InputSource, names: Sequence[str]) -> RemapInput:
    """Make a source provide only the inputs called `names`; the others become placeholders.

    The caller feeds those placeholders, for example in a callback's `before_run`.

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
