"""What has to be fed so that a tensor can be computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tpk.errors import InputError

_NEED_A_FEED = ("Placeholder", "PlaceholderV2")


def placeholders_beneath(outputs: Iterable[Any], fed: Iterable[Any] = ()) -> list[Any]:
    """Return the placeholders that must be fed to compute `outputs`, besides the tensors in `fed`."""
    known = {tensor.name for tensor in fed}
    waiting = [tensor.op for tensor in outputs if tensor.name not in known]
    seen = {op.name for op in waiting}
    found = {}
    while waiting:
        op = waiting.pop()
        if op.type in _NEED_A_FEED:
            found[op.name] = op.outputs[0]
        beneath = [*(tensor.op for tensor in op.inputs if tensor.name not in known), *op.control_inputs]
        for other in beneath:
            if other.name not in seen:
                seen.add(other.name)
                waiting.append(other)
    return list(found.values())


def check_feeds_suffice(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Check that `outputs` can be computed from `inputs`.

    Raises:
        InputError: if not; it names the placeholders that are missing.
    """
    missing = placeholders_beneath(outputs, inputs)
    if missing:
        raise InputError(
            f"the outputs {_names(outputs)} depend on {_names(missing)}, which is not among the inputs "
            f"({_names(inputs) or 'none'}). Add it to the input names, or name outputs that do not need it."
        )


def _names(tensors: Iterable[Any]) -> str:
    return ", ".join(repr(tensor.name.removesuffix(":0")) for tensor in tensors)
