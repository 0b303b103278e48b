"""Towers that XLA compiles.

The ops of a tower, and those of its gradients, are marked for compilation one by one, by
`tf.xla.experimental.jit_scope`. TensorFlow makes clusters of them when a session first runs them, and compiles each
cluster for every set of shapes that it meets. The graph stays what it was: names, collections and variables are the
same, and any tensor can be fetched. What XLA does not compile, such as random numbers, summaries and queues, runs as
ever, with the same results.

The other ways do less. A `tf.function(jit_compile=True)` hides what is in the tower: tensors cannot be fetched, and
summaries and update ops are lost. The ``global_jit_level`` of a session's config does nothing on CPUs, unless
``TF_XLA_FLAGS=--tf_xla_cpu_global_jit`` was in the environment when TensorFlow started.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError


def check_xla() -> None:
    """Check that this TensorFlow has XLA.

    Raises:
        ConfigError: if it has not.
    """
    if not tf.test.is_built_with_xla():
        raise ConfigError(
            f"xla=True, but TensorFlow {tf.__version__} for this platform was built without XLA. Leave the option out, "
            "or install a build of TensorFlow that has it."
        )


def compiled_by_xla(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return the tower function `func` as one whose tower and gradients are compiled by XLA.

    Args:
        func: takes input tensors, and adds ops to the default graph, which must be no eager one.

    Raises:
        ConfigError: if this TensorFlow has no XLA.

    Example:
        ```python
        tower_func = tpk.TowerFunc(compiled_by_xla(model.build_graph), model.get_input_signature())
        ```
    """
    check_xla()

    @functools.wraps(func)
    def build(*inputs: Any) -> Any:
        with tf.xla.experimental.jit_scope(), tf.variable_creator_scope(_create_uncompiled):
            return func(*inputs)

    return build


def _create_uncompiled(next_creator: Callable[..., Any], **options: Any) -> Any:
    """Create a variable whose initializer is not compiled: it runs once, and its values must not differ."""
    with tf.xla.experimental.jit_scope(compile_ops=False):
        return next_creator(**options)
