"""Cells made of cells: a stack of cells, a residual connection, a cell on a device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.layers.rnn_cell.base import RNNCell, argument_error, check_like_cell

_logger = logging.getLogger(__name__)


class MultiRNNCell(RNNCell):
    """A stack of cells: the outputs of each are the inputs of the next.

    The variables of the cells are in the scopes ``cell_0``, ``cell_1``, ... of ``multi_rnn_cell``.

    Args:
        cells: the cells, from the lowest to the highest. A cell that occurs twice shares its variables.
        state_is_tuple: whether the state is a tuple with the state of each cell; otherwise it is one tensor, the
            concatenation of the states, none of which may be a tuple.

    Raises:
        ConfigError: if `cells` is empty or contains something else, or their states cannot be concatenated.

    Example:
        ```python
        cell = rnn_cell.MultiRNNCell([rnn_cell.LSTMCell(size) for size in (128, 64)])
        outputs, (first, second) = tf.compat.v1.nn.dynamic_rnn(cell, x, dtype=tf.float32)
        ```
    """

    def __init__(self, cells: Sequence[Any], state_is_tuple: bool = True) -> None:
        super().__init__()
        if not isinstance(cells, list | tuple) or not cells:
            raise argument_error(self, "cells", cells, "a list of one cell or more", "Pass e.g. [LSTMCell(128)].")
        for index, cell in enumerate(cells):
            check_like_cell(self, cell, f"cells[{index}]")
        if len({id(cell) for cell in cells}) < len(cells):
            _logger.warning(
                "MultiRNNCell: a cell occurs twice, and shares its variables. If that is not intended, make a cell for "
                "each place, as in [LSTMCell(128) for _ in range(2)]."
            )
        self._cells = list(cells)
        self._state_is_tuple = state_is_tuple
        if not state_is_tuple and any(tf.nest.is_nested(cell.state_size) for cell in cells):
            expected = "True, as there is a cell whose state is a tuple"
            raise argument_error(
                self, "state_is_tuple", False, expected, "Pass state_is_tuple=False to the cells, too."
            )

    @property
    def state_size(self) -> Any:
        """The sizes of the states, a tuple; their sum if the state is one tensor."""
        sizes = tuple(cell.state_size for cell in self._cells)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> Any:
        """The size of the outputs of the highest cell."""
        return self._cells[-1].output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the `zero_state` of each cell."""
        if not self._state_is_tuple:
            return super().zero_state(batch_size, dtype)
        with tf.name_scope("MultiRNNCellZeroState"):
            return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Compute the outputs of the highest cell, and the next state of each."""
        states = self._unpack(state)
        for index, cell in enumerate(self._cells):
            with tf.compat.v1.variable_scope(f"cell_{index}"):
                inputs, states[index] = cell(inputs, states[index])
        return inputs, tuple(states) if self._state_is_tuple else tf.concat(states, 1)

    def _unpack(self, state: Any) -> list[Any]:
        if not self._state_is_tuple:
            # As in TensorFlow, columns after those of the cells are ignored.
            sizes = [cell.state_size for cell in self._cells]
            return [tf.slice(state, [0, sum(sizes[:index])], [-1, size]) for index, size in enumerate(sizes)]
        if not isinstance(state, tuple | list) or len(state) != len(self._cells):
            expected = f"a tuple with the states of the {len(self._cells)} cells"
            remedy = "Start from `cell.zero_state(batch_size, dtype)`."
            raise self._opened_layer().error("the state", state, expected, remedy)
        return list(state)


class CellWrapper(RNNCell):
    """A cell without its own variables and scope, with the sizes and the state of the wrapped cell."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        check_like_cell(self, cell)
        self._cell = cell

    @property
    def state_size(self) -> Any:
        """The size of the wrapped cell."""
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        """The size of the wrapped cell."""
        return self._cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the state of the wrapped cell."""
        with tf.name_scope(f"{type(self).__name__}ZeroState"):
            return self._cell.zero_state(batch_size, dtype)


class ResidualWrapper(CellWrapper):
    """A cell whose inputs are added to its outputs (Wu et al., 2016, https://arxiv.org/abs/1609.08144).

    Args:
        cell: the cell to wrap.
        residual_fn: maps inputs and outputs of the cell to the outputs; None adds them, so their shapes must agree.

    Raises:
        ConfigError: if `cell` is not a cell, or inputs and outputs cannot be added.

    Example:
        ```python
        cell = rnn_cell.MultiRNNCell([rnn_cell.ResidualWrapper(rnn_cell.GRUCell(64)) for _ in range(4)])
        ```
    """

    def __init__(self, cell: Any, residual_fn: Callable[[Any, Any], Any] | None = None) -> None:
        super().__init__(cell)
        self._residual_fn = residual_fn

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """Compute the outputs with the inputs added, and the next state; see `RNNCell` for the arguments."""
        outputs, state = self._cell(inputs, state, scope=scope)
        if self._residual_fn is not None:
            return self._residual_fn(inputs, outputs), state
        return tf.nest.map_structure(self._add, inputs, outputs), state

    def _add(self, inputs: Any, outputs: Any) -> Any:
        inputs = tf.convert_to_tensor(inputs)
        if not inputs.shape.is_compatible_with(outputs.shape):
            raise ConfigError(
                f"ResidualWrapper: the inputs of {type(self._cell).__name__} have the shape {inputs.shape}, and its "
                f"outputs {outputs.shape}, which cannot be added. Give it as many units as there are inputs, or pass a "
                "residual_fn that projects them."
            )
        return inputs + outputs


class DeviceWrapper(CellWrapper):
    """A cell with its ops and variables on a device.

    Args:
        cell: the cell to wrap.
        device: the argument of `tf.device`, such as ``"/device:GPU:1"``.

    Raises:
        ConfigError: if `cell` is not a cell.

    Example:
        ```python
        cell = rnn_cell.DeviceWrapper(rnn_cell.LSTMCell(512), "/device:GPU:1")
        ```
    """

    def __init__(self, cell: Any, device: Any) -> None:
        super().__init__(cell)
        self._device = device

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the state of the wrapped cell, on the device."""
        with tf.device(self._device):
            return super().zero_state(batch_size, dtype)

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """Compute outputs and next state on the device; see `RNNCell` for the arguments."""
        with tf.device(self._device):
            outputs, state = self._cell(inputs, state, scope=scope)
        return outputs, state
