"""Mixed precision: a tower computes in 16 bits, while its variables keep 32.

Inside a tower that is built so:

- Floating-point inputs are cast to the type to compute in, and so is what `get_variable` gives for a variable of that
  type, or of none in particular. The variable itself is ``float32``, has the name that it always has, and is what an
  optimizer updates and a checkpoint holds; gradients reach it as ``float32``. What is cast is a tensor.
- A variable that asks for ``dtype=tf.float32`` is left alone. That is for what the model assigns to, or sums up over
  many steps; the batch normalization of `tpk.layers` keeps all of its variables so.
- The cost that it returns is cast to ``float32``.

Micikevicius et al., "Mixed Precision Training", 2018 (https://arxiv.org/abs/1710.03740), section 3.1, has the reasons
for the ``float32`` copy. With ``float16``, gradients are too small for the type unless the cost is scaled: see
`tpk.graph.optimizers.loss_scale`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError, add_note

PRECISIONS = ("float32", "bfloat16", "float16")

_HALVES = (tf.bfloat16, tf.float16)


def check_precision(precision: str) -> str:
    """Return `precision` after checking that it is one of `PRECISIONS`.

    Raises:
        ConfigError: if it is something else.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"precision={precision!r}: expected {', '.join(map(repr, PRECISIONS))}.")
    return precision


def in_precision(func: Callable[..., Any], precision: str) -> Callable[..., Any]:
    """Return the tower function `func` as one that computes in `precision`.

    Args:
        func: takes input tensors, and returns a cost or a mapping of costs.
        precision: ``"float32"`` leaves `func` as it is; ``"bfloat16"`` or ``"float16"``.

    Raises:
        ConfigError: if the precision is unknown.

    Example:
        ```python
        tower_func = tpk.TowerFunc(in_precision(model.build_graph, "bfloat16"), model.get_input_signature())
        ```
    """
    if check_precision(precision) == "float32":
        return func
    dtype = tf.as_dtype(precision)

    @functools.wraps(func)
    def build(*inputs: Any) -> Any:
        with tf.name_scope("mixed_precision"):
            inputs = tuple(tf.cast(each, dtype) if each.dtype.is_floating else each for each in inputs)
        scope = tf.compat.v1.get_variable_scope()
        # The scope's type is that of variables which ask for none.
        with tf.compat.v1.variable_scope(scope, dtype=dtype, custom_getter=_get_cast, auxiliary_name_scope=False):
            try:
                output = func(*inputs)
            except (TypeError, ValueError, AttributeError) as error:
                add_note(
                    error,
                    f"This tower computes in {precision}: floating-point inputs are cast to it, and get_variable "
                    f"returns a {precision} tensor of a float32 variable. Cast other tensors with tf.cast(x, y.dtype). "
                    "A variable that the model assigns to must ask for dtype=tf.float32.",
                )
                raise
        with tf.name_scope("mixed_precision"):
            if isinstance(output, Mapping):
                return {name: _in_float32(cost) for name, cost in output.items()}
            return _in_float32(output)

    return build


def _get_cast(getter: Callable[..., Any], name: str, *args: Any, dtype: Any = None, **options: Any) -> Any:
    """Get a variable, as a custom getter; in place of one of 16 bits, what is cast from one of ``float32``."""
    wanted = tf.as_dtype(dtype)
    if wanted not in _HALVES:
        return getter(name, *args, dtype=dtype, **options)
    initializer = options.get("initializer")
    if initializer is not None and not callable(initializer) and getattr(initializer, "dtype", None) in _HALVES:
        options["initializer"] = tf.cast(initializer, tf.float32)
    variable = getter(name, *args, dtype=tf.float32, **options)
    # An initial value that is no floating-point number makes a variable of its own type.
    return tf.cast(variable, wanted, name=f"{name}/{wanted.name}") if variable.dtype.is_floating else variable


def _in_float32(value: Any) -> Any:
    is_half = isinstance(value, tf.Tensor) and value.dtype in _HALVES
    return tf.cast(value, tf.float32) if is_half else value


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
