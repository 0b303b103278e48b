"""Options of a tower: mixed precision, and compilation by XLA.

In a tower of mixed precision, which computes in 16 bits while its variables keep 32:

- Floating-point inputs are cast to the 16-bit type. For a variable of that type, or without an explicit type,
  `get_variable` returns a tensor of the 16-bit type, cast from a ``float32`` variable. The variable keeps its name;
  optimizers update it with ``float32`` gradients, and checkpoints contain it.
- A variable with an explicit ``dtype=tf.float32`` is not cast. Use this for variables that the model assigns to, or
  that accumulate over many steps; the batch normalization of `tpk.layers` does so for all of its variables.
- The cost is cast to ``float32``.

Micikevicius et al., "Mixed Precision Training", 2018 (https://arxiv.org/abs/1710.03740), section 3.1, explains the need
for a ``float32`` copy. With ``float16``, gradients are too small for the type unless the cost is scaled: see
`tpk.graph.optimizers.loss_scale`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk.argument_checks import check_one_of
from tpk.errors import ConfigError, noting

PRECISIONS = ("float32", "bfloat16", "float16")

_HALVES = (tf.bfloat16, tf.float16)


def in_precision(func: Callable[..., Any], precision: str) -> Callable[..., Any]:
    """Return a tower function that computes `func` in `precision`.

    Args:
        func: takes input tensors, and returns a cost or a mapping of costs.
        precision: ``"float32"``, which returns `func` unchanged; ``"bfloat16"``; or ``"float16"``.

    Raises:
        ConfigError: if the precision is unknown.

    Example:
        ```python
        tower_func = tpk.TowerFunc(in_precision(model.build_graph, "bfloat16"), model.get_input_signature())
        ```
    """
    check_one_of("in_precision", PRECISIONS, precision=precision)
    if precision == "float32":
        return func
    dtype = tf.as_dtype(precision)
    hint = (
        f"This tower computes in {precision}: floating-point inputs are cast to it, and get_variable returns a "
        f"{precision} tensor of a float32 variable. Cast other tensors with tf.cast(x, y.dtype). A variable that the "
        "model assigns to must ask for dtype=tf.float32."
    )

    @functools.wraps(func)
    def build(*inputs: Any) -> Any:
        with tf.name_scope("mixed_precision"):
            inputs = tuple(tf.cast(each, dtype) if each.dtype.is_floating else each for each in inputs)
        scope = tf.compat.v1.get_variable_scope()
        # The type of the scope applies to variables without an explicit type.
        cast = tf.compat.v1.variable_scope(scope, dtype=dtype, custom_getter=_get_cast, auxiliary_name_scope=False)
        with cast, noting(hint, (TypeError, ValueError, AttributeError)):
            output = func(*inputs)
        with tf.name_scope("mixed_precision"):
            return tf.nest.map_structure(_in_float32, output)

    return build


def _get_cast(getter: Callable[..., Any], name: str, *args: Any, dtype: Any = None, **options: Any) -> Any:
    """Get a variable, as a custom getter; for a 16-bit type, return a cast ``float32`` variable."""
    wanted = tf.as_dtype(dtype)
    if wanted not in _HALVES:
        return getter(name, *args, dtype=dtype, **options)
    initializer = options.get("initializer")
    if initializer is not None and not callable(initializer) and getattr(initializer, "dtype", None) in _HALVES:
        options["initializer"] = tf.cast(initializer, tf.float32)
    variable = getter(name, *args, dtype=tf.float32, **options)
    # With an integer or boolean initial value, the variable has the type of that value.
    return tf.cast(variable, wanted, name=f"{name}/{wanted.name}") if variable.dtype.is_floating else variable


def _in_float32(value: Any) -> Any:
    is_half = isinstance(value, tf.Tensor) and value.dtype in _HALVES
    return tf.cast(value, tf.float32) if is_half else value


def check_xla() -> None:
    """Check that this TensorFlow has XLA.

    Raises:
        ConfigError: if XLA is missing.
    """
    if not tf.test.is_built_with_xla():
        raise ConfigError(
            f"xla=True, but TensorFlow {tf.__version__} for this platform was built without XLA. Leave the option out, "
            "or install a build of TensorFlow that has it."
        )


def compiled_by_xla(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tower function like `func`, whose tower and gradients are compiled by XLA.

    Args:
        func: takes input tensors, and adds ops to the default graph, which must not be eager.

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
