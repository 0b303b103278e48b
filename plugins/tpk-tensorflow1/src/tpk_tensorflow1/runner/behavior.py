"""TensorFlow with the behavior of TensorFlow 1, for the whole process."""

from __future__ import annotations

import functools
import logging
import numbers
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

_IN_PLACE = {f"__i{name}__" for name in ("add", "sub", "mul", "div", "truediv", "floordiv", "realdiv", "pow", "matmul")}


def use_tensorflow1(resource_variables: bool = False) -> None:
    """Switch TensorFlow to the behavior of TensorFlow 1, for the whole process.

    In addition to `tf.compat.v1.disable_v2_behavior`, a dimension may be a float such as ``28 / 2`` again, and without
    GPUs, sessions run the ops for GPUs on the CPU.

    Args:
        resource_variables: whether variables are resource variables, which have a defined value within a step. They
            were optional in TensorFlow 1. In-place operators such as ``+=`` return tensors, as for other variables.
    """
    import tensorflow as tf

    log = logging.getLogger("tensorflow")
    level = log.level
    log.setLevel(logging.ERROR)  # It warns that these functions are deprecated.
    try:
        tf.compat.v1.disable_v2_behavior()
        if resource_variables:
            tf.compat.v1.enable_resource_variables()
            _allow_in_place_operators()
    finally:
        log.setLevel(level)
    _replace_initializers()


def _allow_in_place_operators() -> None:
    """Make ``v += x`` mean ``v = v + x`` for resource variables, which define in-place operators only to refuse them.

    The default variables of TensorFlow 1 had none, so Python used the ordinary operators.
    """
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

    for name in [name for name in vars(BaseResourceVariable) if name in _IN_PLACE]:
        delattr(BaseResourceVariable, name)


@functools.cache
def _replace_initializers() -> None:
    import tensorflow as tf
    from tensorflow.python.ops import variable_scope

    # The losses of regularizers are tensors, instead of objects that build a tensor whenever they are used.
    variable_scope._LazyEvalTensor = tf.init_scope()(lambda build: build())
    kinds = {tf.compat.v1.Dimension: _of_dimension, tf.compat.v1.Session: _of_session}
    for kind, replace in {**kinds, tf.compat.v1.InteractiveSession: _of_session}.items():
        kind.__init__ = replace(kind.__init__)


def _of_dimension(initialize: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(initialize)
    def __init__(self: Any, value: Any) -> None:
        is_whole = isinstance(value, numbers.Real) and value == value // 1
        initialize(self, int(value) if is_whole else value)

    return __init__


def _of_session(initialize: Callable[..., None]) -> Callable[..., None]:
    import tensorflow as tf

    @functools.wraps(initialize)
    def __init__(self: Any, target: str = "", graph: Any = None, config: Any = None) -> None:
        # Asked here, because a script may first choose the GPUs that are visible.
        if not target and not tf.config.list_physical_devices("GPU"):
            softly = tf.compat.v1.ConfigProto(allow_soft_placement=True)
            softly.MergeFrom(config or tf.compat.v1.ConfigProto())
            config = softly
            ops = (graph or tf.compat.v1.get_default_graph()).get_operations()
            if any("GPU" in op.device.upper() for op in ops):
                _warn_of_cpus()
        initialize(self, target, graph, config)

    return __init__


@functools.cache
def _warn_of_cpus() -> None:
    logger.warning("TensorFlow sees no GPU, so it runs the ops that the script places on GPUs on the CPU.")
