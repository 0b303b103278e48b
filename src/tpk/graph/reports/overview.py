"""Overview of a model: a table of its variables, and what they add up to, in the log before a training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.graph.gradients import recorded_costs, warn_of_untrained_variables
from tpk.graph.random import COUNTERS
from tpk.graph.steps import ops_computing
from tpk.graph.variables import variable_name
from tpk.text import format_count, human_size, shorten

logger = logging.getLogger(__name__)

GraphKeys = tf.compat.v1.GraphKeys

_HEADER = ("name", "shape", "elements", "size", "device", "trainable")
_TO_THE_RIGHT = ("elements", "size")
_GAP = "  "
_MAX_WIDTH = 120
_MAX_SHAPE = 20
_MAX_DEVICE = 22


@attrs.frozen
class ModelVariable:
    """A variable of a model.

    Attributes:
        name: its name, as checkpoints know it.
        shape: its shape; None if the rank is unknown, and None for a dimension that is.
        dtype: the name of its type.
        bytes_per_element: the size of an element.
        device: where it was asked to be; empty if TensorFlow chooses.
        trainable: whether optimizers may update it.
    """

    name: str
    shape: tuple[int | None, ...] | None
    dtype: str
    bytes_per_element: int
    device: str
    trainable: bool

    @property
    def elements(self) -> int | None:
        """How many elements it has; None if the shape is not fully known."""
        return tf.TensorShape(self.shape).num_elements()  # type: ignore[no-any-return]

    @property
    def bytes(self) -> int | None:
        """The size of all elements; None if the shape is not fully known."""
        return None if self.elements is None else self.elements * self.bytes_per_element


@attrs.frozen
class ModelOverview:
    """The variables of a graph; as a string it is a table, at most 120 columns wide.

    Attributes:
        variables: those of the model, in the order of their creation.
        others: the other global ones: slots of optimizers, counters, averages.
    """

    variables: tuple[ModelVariable, ...]
    others: tuple[ModelVariable, ...]

    @property
    def trainable(self) -> tuple[ModelVariable, ...]:
        """The variables of the model that optimizers may update."""
        return tuple(each for each in self.variables if each.trainable)

    @property
    def non_trainable(self) -> tuple[ModelVariable, ...]:
        """The other variables of the model, such as the statistics of batch normalization."""
        return tuple(each for each in self.variables if not each.trainable)

    def __str__(self) -> str:
        table = _align([_HEADER, *map(_cells, self.variables)]) if self.variables else []
        sums = [
            f"trainable: {_sum_up(self.trainable)}",
            f"not trainable: {_sum_up(self.non_trainable)}",
            f"optimizer and other state: {_sum_up(self.others)}",
        ]
        return "\n".join([*table, *sums])


def log_model_overview(graph: Any) -> None:
    """Write the variables of the model to the log, and warn of those that nothing trains.

    Args:
        graph: a `tf.Graph` that is complete but for its session.
    """
    logger.info("the variables of the model:\n%s", model_overview(graph))
    warn_of_untrained_variables(graph)


def model_overview(graph: Any) -> ModelOverview:
    """Return what the model in a graph consists of.

    To the model belong the trainable variables, those in the collection ``MODEL_VARIABLES``, and those that a cost or
    an op in ``UPDATE_OPS`` reads or writes. What replicates of the model have of their own are local variables; they
    are left out.

    Args:
        graph: a `tf.Graph`.

    Example:
        ```python
        overview = tpk.graph.reports.overview(trainer.graph)
        parameters = sum(variable.elements for variable in overview.trainable)
        ```
    """
    trainable = {variable_name(each) for each in graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)}
    of_model = trainable | {variable_name(each) for each in graph.get_collection(GraphKeys.MODEL_VARIABLES)}
    keys = (GraphKeys.GLOBAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES, GraphKeys.MODEL_VARIABLES)
    variables = {variable_name(each): each for key in keys for each in graph.get_collection(key)}
    used = set(ops_computing([*recorded_costs(graph).values(), *graph.get_collection(GraphKeys.UPDATE_OPS)]))
    # Random ops read the counters, so a cost with dropout depends on them.
    of_model |= {name for name, each in variables.items() if each.op in used and name not in COUNTERS}
    described = {name: _describe(each, name in trainable) for name, each in variables.items()}
    return ModelOverview(
        tuple(each for name, each in described.items() if name in of_model),
        tuple(each for name, each in described.items() if name not in of_model),
    )


def _describe(variable: Any, trainable: bool) -> ModelVariable:
    shape = variable.shape
    return ModelVariable(
        name=variable_name(variable),
        shape=None if shape.rank is None else tuple(shape.as_list()),
        dtype=variable.dtype.base_dtype.name,
        bytes_per_element=variable.dtype.size,
        device=variable.device,
        trainable=trainable,
    )


def _sum_up(variables: Sequence[ModelVariable]) -> str:
    if not variables:
        return "none"
    known = [each for each in variables if each.elements is not None]
    elements = sum(each.elements or 0 for each in known)
    size = sum(each.bytes or 0 for each in known)
    unknown = len(variables) - len(known)
    text = f"{format_count(len(variables), 'variable')}, {format_count(elements, 'element')}, {human_size(size)}"
    return f"{text}, and {unknown:,} of unknown shape" if unknown else text


def _cells(variable: ModelVariable) -> tuple[str, ...]:
    return (
        variable.name,
        shorten(_shape_text(variable.shape), _MAX_SHAPE),
        "-" if variable.elements is None else f"{variable.elements:,}",
        "-" if variable.bytes is None else human_size(variable.bytes),
        shorten(_device_text(variable.device), _MAX_DEVICE),
        "yes" if variable.trainable else "no",
    )


def _device_text(device: str) -> str:
    full: str = tf.DeviceSpec.from_string(device).to_string()
    return full.replace("/device:", "/").lstrip("/") or "-"


def _shape_text(shape: Sequence[int | None] | None) -> str:
    if shape is None:
        return "unknown"
    return f"({', '.join('?' if size is None else str(size) for size in shape)})"


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    # Names get what the other columns leave.
    widths[0] = min(widths[0], _MAX_WIDTH - sum(widths[1:]) - len(_GAP) * (len(widths) - 1))
    rows = [(shorten(name, widths[0]), *others) for name, *others in rows]
    to_the_right = [name in _TO_THE_RIGHT for name in _HEADER]
    return [
        _GAP.join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, to_the_right, strict=True)
        ).rstrip()
        for row in rows
    ]
