"""A log of the input and output shapes of layers."""

from __future__ import annotations

from typing import Any

from tpk.tower import get_current_tower_context
from tpk_tensorpack.tfutils.model_utils import get_shape_str
from tpk_tensorpack.utils import logger

_is_on = True


def disable_layer_logging() -> None:
    """Disable the log of layers from now on."""
    global _is_on
    _is_on = False


def log_shapes(name: str, kind: str, inputs: Any, outputs: Any) -> None:
    """Log the shapes of a layer; within towers, only for the first training tower.

    Args:
        name: the name of the layer.
        kind: the name of its function.
        inputs: a tensor, or a list of them.
        outputs: a tensor, or a list of them.
    """
    context = get_current_tower_context()
    if _is_on and (context is None or context.is_main_training_tower):
        logger.info("%s (%s): %s --> %s", name, kind, get_shape_str(inputs), get_shape_str(outputs))
