"""The overview of a model that is logged before training: a table of its variables, and their totals."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.graph.fetches import ops_computing
from tpk.graph.gradients import costs_of_first_tower, warn_of_untrained_variables
from tpk.graph.random import COUNTERS
from tpk.graph.variables import variable_name
from tpk.text import format_count, human_size, shorten, text_table

logger = logging.getLogger(__name__)

GraphKeys = tf.compat.v1.GraphKeys

_HEADER = ("name", "shape", "elements", "size", "device", "trainable")
_TO_THE_RIGHT = ("elements", "size")
_MAX_WIDTH = 120
_MAX_SHAPE = 20
_MAX_DEVICE = 22


@attrs.frozen
class ModelVariable:
    """A variable of a model.

    Attributes:
        name: its name in checkpoints.
        shape: its shape; None if the rank is unknown. An unknown dimension is None.
        dtype: its `tf.DType`.
        device: the requested device; empty if TensorFlow chooses.
        trainable: whether optimizers may update it.
    """

    name: str
    shape: tuple[int | None, ...] | None
    dtype: Any
    device: str
    trainable: bool

    @property
    def elements(self) -> int | None:
        """The number of elements; None if the shape is not fully known."""
        return tf.TensorShape(self.shape).num_elements()  # type: ignore[no-any-return]

    @property
    def bytes(self) -> int | None:
        """The size in bytes; None if the shape is not fully known."""
        return None if self.elements is None else self.elements * self.dtype.size


@attrs.frozen
class ModelOverview:
    """The variables of a graph; as a string it is a table, at most 120 columns wide.

    Attributes:
        variables: the variables of the model, in the order of their creation.
        others: the other global variables: optimizer slots, counters, averages.
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
        return "\n".join(
            [
                *(_table(self.variables) if self.variables else []),
                f"trainable: {_sum_up(self.trainable)}",
                f"not trainable: {_sum_up(self.non_trainable)}",
                f"optimizer and other state: {_sum_up(self.others)}",
            ]
        )


def log_model_overview(graph: Any) -> None:
    """Log the variables of the model, and warn about trainable variables that are not trained.

    Args:
        graph: a complete `tf.Graph`.
    """
    logger.info("the variables of the model:\n%s", model_overview(graph))
    warn_of_untrained_variables(graph)


def model_overview(graph: Any) -> ModelOverview:
    """Return the variables of the model in a graph.

    The model consists of the trainable variables, the collection ``MODEL_VARIABLES``, and the variables that a cost or
    an op in ``UPDATE_OPS`` reads or writes. Local variables, such as the copies in other replicas, are ignored.

    Args:
        graph: a `tf.Graph`.

    Example:
        ```python
        overview = tpk.model_overview(trainer.graph)
        parameters = sum(variable.elements for variable in overview.trainable)
        ```
    """
    trainable = {variable_name(each) for each in graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)}
    of_model = trainable | {variable_name(each) for each in graph.get_collection(GraphKeys.MODEL_VARIABLES)}
    keys = (GraphKeys.GLOBAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES, GraphKeys.MODEL_VARIABLES)
    variables = {variable_name(each): each for key in keys for each in graph.get_collection(key)}
    costs = [cost for cost, _ in costs_of_first_tower(graph).values()]
    used = set(ops_computing([*costs, *graph.get_collection(GraphKeys.UPDATE_OPS)]))
    # Random ops read the counters, so a cost with dropout depends on them.
    of_model |= {name for name, each in variables.items() if each.op in used and name not in COUNTERS}
    described = {name: _describe(each, name in trainable) for name, each in variables.items()}
    return ModelOverview(
        tuple(each for name, each in described.items() if name in of_model),
        tuple(each for name, each in described.items() if name not in of_model),
    )


def _describe(variable: Any, trainable: bool) -> ModelVariable:
    shape = None if variable.shape.rank is None else tuple(variable.shape.as_list())
    return ModelVariable(variable_name(variable), shape, variable.dtype.base_dtype, variable.device, trainable)


def _sum_up(variables: Sequence[ModelVariable]) -> str:
    if not variables:
        return "none"
    elements = sum(each.elements or 0 for each in variables)
    size = sum(each.bytes or 0 for each in variables)
    unknown = sum(each.elements is None for each in variables)
    text = f"{format_count(len(variables), 'variable')}, {format_count(elements, 'element')}, {human_size(size)}"
    return f"{text}, and {unknown:,} of unknown shape" if unknown else text


def _table(variables: Sequence[ModelVariable]) -> list[str]:
    rows = list(map(_cells, variables))
    # Names get the width that the other columns leave.
    others = text_table(_HEADER[1:], [cells for _, *cells in rows], _TO_THE_RIGHT)
    width = _MAX_WIDTH - len(others[0]) - 2
    return text_table(_HEADER, [(shorten(name, width), *cells) for name, *cells in rows], _TO_THE_RIGHT)


def _cells(variable: ModelVariable) -> tuple[str, ...]:
    return (
        variable.name,
        shorten(str(tf.TensorShape(variable.shape)), _MAX_SHAPE),
        "-" if variable.elements is None else f"{variable.elements:,}",
        human_size(variable.bytes),
        shorten(_device_text(variable.device), _MAX_DEVICE),
        "yes" if variable.trainable else "no",
    )


def _device_text(device: str) -> str:
    full: str = tf.DeviceSpec.from_string(device).to_string()
    return full.replace("/device:", "/").lstrip("/") or "-"
