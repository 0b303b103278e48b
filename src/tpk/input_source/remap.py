"""Provision of some of a model's inputs by a source, where others are fed by somebody else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import InputError
from tpk.input_source.base import InputSource, ProxyInput
from tpk.input_source.meter import InputMeter
from tpk.plugin.callback import Callback


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
