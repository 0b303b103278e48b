"""Gradient processors, which change or inspect gradients before the optimizer applies them.

`apply_grad_processors` puts processors in front of an optimizer. They match the names of variables inside the tower: if
each device has a replica of the model, ``conv0/.*`` matches ``conv0/kernel`` and ``tower1/conv0/kernel``, so all
replicas are treated alike.
"""

from __future__ import annotations

import abc
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any

import tensorflow as tf

from tpk.argument_checks import check_positive
from tpk.errors import ConfigError
from tpk.graph.gradients import Gradients, map_values, values_of
from tpk.graph.optimizers.proxy_optimizer import ProxyOptimizer
from tpk.graph.reports.summary_ops import add_tensor_summary
from tpk.graph.scopes import check_can_be_collected
from tpk.graph.variables import NamePattern, name_in_tower, variable_name

logger = logging.getLogger(__name__)


class GradientProcessor(abc.ABC):
    """The base of gradient processors. A subclass overrides `_process`.

    Example:
        ```python
        class AddNoise(GradientProcessor):
            def _process(self, grads_and_vars):
                return [(grad + tf.random.normal(grad.shape, stddev=1e-3), var) for grad, var in grads_and_vars]
        ```
    """

    def process(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Gradients:
        """Return the gradients for the optimizer.

        Args:
            grads_and_vars: pairs of a gradient (a tensor, a `tf.IndexedSlices`, or None) and its variable.

        Returns:
            Such pairs. The variable of a pair that is left out is not updated.

        Raises:
            ConfigError: if a processed gradient is not a gradient or does not fit its variable.
        """
        pairs = list(grads_and_vars)
        with tf.name_scope(type(self).__name__.lstrip("_")):
            processed = list(self._process(pairs))
        for grad, var in processed:
            self._check(grad, var)
        return processed

    @abc.abstractmethod
    def _process(self, grads_and_vars: Gradients) -> Iterable[tuple[Any, Any]]:
        """Return the processed gradients; see `process`."""

    def _check(self, grad: Any, var: Any) -> None:
        if grad is None or isinstance(grad, tf.IndexedSlices):
            return
        if (
            not isinstance(grad, tf.Tensor)
            or not grad.shape.is_compatible_with(var.shape)
            or grad.dtype != var.dtype.base_dtype
        ):
            raise ConfigError(
                f"{type(self).__name__} returned {grad!r} for the gradient of {variable_name(var)!r}; expected a "
                f"tensor of shape {var.shape} and type {var.dtype.base_dtype.name}, a tf.IndexedSlices, or None."
            )


class FilterNoneGrad(GradientProcessor):
    """Removes variables that have no gradient.

    Args:
        verbose: log a warning that names them.
    """

    def __init__(self, verbose: bool = True) -> None:
        self._verbose = verbose

    def _process(self, grads_and_vars: Gradients) -> Gradients:
        without = [variable_name(var) for grad, var in grads_and_vars if grad is None]
        if without and self._verbose:
            logger.warning("no gradient of %d variables, so not trained: %s", len(without), ", ".join(without))
        return [(grad, var) for grad, var in grads_and_vars if grad is not None]


class GlobalNormClip(GradientProcessor):
    """Scales all gradients down together if their global norm is too large, as `tf.clip_by_global_norm` does.

    The global norm is the root of the sum of the squares of the elements of *all* gradients. A sparse gradient may have
    the same row more than once, e.g. when a word occurs twice in a batch. Such rows are added first, so the norm equals
    the norm of the dense gradient; TensorFlow treats them as different rows. The norm of 16-bit gradients is computed
    in ``float32``.

    Args:
        global_norm: the largest norm that is not clipped.

    Raises:
        ConfigError: if `global_norm` is not positive.
    """

    def __init__(self, global_norm: float) -> None:
        check_positive(self, global_norm=global_norm)
        self._global_norm = float(global_norm)

    def _process(self, grads_and_vars: Gradients) -> Gradients:
        dtypes = [values_of(grad).dtype for grad, _ in grads_and_vars if grad is not None]
        if not dtypes:
            return grads_and_vars
        # In float16, a sum of squares is infinite from 65,520 on, and squares below 6e-8 are zero.
        work = max([tf.float32, *dtypes], key=lambda dtype: dtype.size)
        grads = [_add_duplicate_rows(_cast(grad, work)) for grad, _ in grads_and_vars]
        clipped, _ = tf.clip_by_global_norm(grads, self._global_norm)
        variables = [var for _, var in grads_and_vars]
        return [(_cast(grad, var.dtype.base_dtype), var) for grad, var in zip(clipped, variables, strict=True)]


class MapGradient(GradientProcessor):
    """Applies a function to the gradients of variables whose names match.

    If no name matches, there is a warning. Variables without a gradient are ignored.

    Args:
        func: takes the gradient, or the gradient and the variable, as arguments without defaults. It returns the new
            gradient, or None to skip the update of the variable. Sparse gradients are `tf.IndexedSlices`.
        regex: a regular expression that matches the whole name of a variable inside its tower.

    Raises:
        ConfigError: if `func` takes other arguments, or `regex` is invalid.

    Example:
        ```python
        MapGradient(lambda grad: tf.clip_by_value(grad, -0.1, 0.1), regex=".*/kernel")
        ```
    """

    def __init__(self, func: Callable[..., Any], regex: str = ".*") -> None:
        self._func = _with_two_arguments(func)
        self._pattern = NamePattern(regex, type(self).__name__)

    def _process(self, grads_and_vars: Gradients) -> Gradients:
        self._pattern.warn_unless_any(var for _, var in grads_and_vars)
        processed = []
        for grad, var in grads_and_vars:
            if grad is None or not self._pattern.matches(var):
                processed.append((grad, var))
            elif (mapped := self._func(grad, var)) is not None:
                processed.append((mapped, var))
        return processed


class SummaryGradient(MapGradient):
    """Summarizes gradients, as ``SummaryGradient/<variable>-grad-histogram`` and ``…-rms``.

    It summarizes gradients of the main training tower, once for each variable. They cost nothing in steps in which the
    summaries are not evaluated. For a sparse gradient, only existing rows are summarized.

    Args:
        regex: a regular expression that matches the whole name of a variable.
        collections: the collections to add the summaries to; `GraphKeys.SUMMARIES` by default.

    Raises:
        ConfigError: if `regex` is invalid; and, when it processes gradients, inside a `tf.cond` or another function.
    """

    def __init__(self, regex: str = ".*", collections: Sequence[str] | None = None) -> None:
        super().__init__(self._summarize, regex)
        self._collections = collections
        self._summarized: set[Any] = set()

    def _summarize(self, grad: Any, var: Any) -> Any:
        name = name_in_tower(variable_name(var))
        check_can_be_collected(
            f"SummaryGradient: the gradient of {name}",
            "Put it around what accumulates gradients or skips updates: "
            "apply_grad_processors(AccumGradOptimizer(...), [SummaryGradient()]).",
        )
        if name == variable_name(var) and var.ref() not in self._summarized:
            self._summarized.add(var.ref())
            # Tags do not depend on where the gradients are applied: with the slash, the scope is the same everywhere.
            with tf.name_scope("SummaryGradient/"):
                self._write(name, values_of(grad))
        return grad

    def _write(self, name: str, values: Any) -> None:
        add_tensor_summary(values, ["histogram", "rms"], name=f"{name}-grad", collections=self._collections)


class CheckGradient(MapGradient):
    """Ends the step with an error that names the variable if a gradient has an infinite element or a NaN.

    The error is TensorFlow's `tf.errors.InvalidArgumentError`. Nothing is updated from that gradient.

    Args:
        regex: a regular expression that matches the whole name of a variable inside its tower.
    """

    def __init__(self, regex: str = ".*") -> None:
        super().__init__(_check_numerics, regex)


class PrintGradient(MapGradient):
    """Prints the size of gradients in each step: shape, mean, root mean square, and greatest magnitude.

    It is meant for a few steps of debugging: in each step, TensorFlow computes several sums of each gradient and prints
    to the standard error. It prints gradients of the main training tower, once for each variable, with any strategy and
    in each step of a run of several steps. XLA does not compile printing: leave it out with ``xla=True``. For a sparse
    gradient, only existing rows are used.

    Args:
        regex: a regular expression that matches the whole name of a variable inside its tower.

    Raises:
        ConfigError: if `regex` is invalid.

    Example:
        ```python
        tpk.apply_grad_processors(optimizer, [tpk.PrintGradient("logits/.*"), tpk.GlobalNormClip(1.0)])
        ```
    """

    def __init__(self, regex: str = ".*") -> None:
        super().__init__(self._print, regex)
        self._printed: set[Any] = set()

    def _print(self, grad: Any, var: Any) -> Any:
        name = name_in_tower(variable_name(var))
        if name != variable_name(var) or var.ref() in self._printed:
            return grad
        self._printed.add(var.ref())
        values = values_of(grad)
        numbers = {
            "shape": tf.shape(values),
            "mean": tf.reduce_mean(values),
            "rms": tf.sqrt(tf.reduce_mean(tf.square(values))),
            "max": tf.reduce_max(tf.abs(values)),
        }
        shown = [part for label, number in numbers.items() for part in (label, number)]
        with tf.control_dependencies([tf.print(f"gradient of {name}:", *shown, output_stream=sys.stderr)]):
            return map_values(grad, tf.identity)


class ScaleGradient(GradientProcessor):
    """Multiplies gradients, to give some variables a different learning rate, or to freeze them.

    The multiplier of the *first* regular expression that matches the name of a variable applies. With 0, the variable
    is not updated at all, not even by remaining momentum. A warning names expressions without a match.

    Args:
        multipliers: pairs of a regular expression, which matches whole names of variables inside their tower, and a
            number; or one such pair.
        verbose: log the multipliers of variables.

    Raises:
        ConfigError: if `multipliers` has an invalid element.

    Example:
        ```python
        # Twice the learning rate for all biases, and layer0 is frozen.
        ScaleGradient([("layer0/.*", 0.0), (".*/bias", 2.0)])
        ```
    """

    def __init__(self, multipliers: tuple[str, float] | Sequence[tuple[str, float]], verbose: bool = True) -> None:
        is_list = isinstance(multipliers, Sequence) and not _is_multiplier(multipliers)
        pairs: Any = multipliers if is_list else [multipliers]
        wrong = [pair for pair in pairs if not _is_multiplier(pair)]
        if wrong:
            raise ConfigError(f"ScaleGradient takes pairs of a regular expression and a number, got {wrong[0]!r}.")
        self._multipliers = [(NamePattern(regex, "ScaleGradient"), float(multiplier)) for regex, multiplier in pairs]
        self._verbose = verbose

    def _process(self, grads_and_vars: Gradients) -> Gradients:
        for pattern, _ in self._multipliers:
            pattern.warn_unless_any(var for _, var in grads_and_vars)
        processed = []
        for grad, var in grads_and_vars:
            multiplier = next((number for pattern, number in self._multipliers if pattern.matches(var)), 1.0)
            if multiplier != 1 and self._verbose:
                logger.info("the gradient of %s is multiplied by %g", variable_name(var), multiplier)
            if multiplier != 0:
                scaled = grad if multiplier == 1 else map_values(grad, functools.partial(tf.multiply, y=multiplier))
                processed.append((scaled, var))
        return processed


def apply_grad_processors(optimizer: Any, processors: Sequence[GradientProcessor]) -> ProxyOptimizer:
    """Return an optimizer that processes gradients before `optimizer` takes them.

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer`.
        processors: applied in this order.

    Raises:
        ConfigError: if one of them is something else.

    Example:
        ```python
        def optimizer(self):
            optimizer = tf.compat.v1.train.AdamOptimizer(1e-3)
            return apply_grad_processors(optimizer, [CheckGradient(), GlobalNormClip(1.0)])
        ```
    """
    if not isinstance(processors, Sequence) or not all(isinstance(each, GradientProcessor) for each in processors):
        raise ConfigError(
            f"apply_grad_processors takes a list of GradientProcessor instances, got {processors!r}. For a function, "
            "write [MapGradient(function)]."
        )
    return _GradientProcessingOptimizer(optimizer, processors)


class _GradientProcessingOptimizer(ProxyOptimizer):
    def __init__(self, opt: Any, processors: Sequence[GradientProcessor]) -> None:
        super().__init__(opt, "ProcessGradients")
        self._processors = tuple(processors)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        pairs = list(grads_and_vars)
        for processor in self._processors:
            pairs = processor.process(pairs)
        if all(grad is None for grad, _ in pairs):
            names = ", ".join(type(processor).__name__ for processor in self._processors)
            raise ConfigError(f"the gradient processors ({names}) removed all gradients.")
        return self._opt.apply_gradients(pairs, global_step=global_step, name=name)


def _check_numerics(grad: Any, var: Any) -> Any:
    message = f"CheckGradient: the gradient of {variable_name(var)} is not finite"
    return map_values(grad, lambda values: tf.debugging.check_numerics(values, message))


def _cast(grad: Any, dtype: Any) -> Any:
    return map_values(grad, lambda values: tf.cast(values, dtype))


def _add_duplicate_rows(grad: Any) -> Any:
    if not isinstance(grad, tf.IndexedSlices):
        return grad
    rows, row_of = tf.unique(grad.indices)
    values = tf.math.unsorted_segment_sum(grad.values, row_of, tf.size(rows))
    return tf.IndexedSlices(values, rows, grad.dense_shape)


def _with_two_arguments(func: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return `func`, which takes a gradient or a gradient and a variable, as one that takes both."""
    for arguments, adapted in (("grad",), lambda grad, var: func(grad)), (("grad", "var"), func):
        with suppress(TypeError, ValueError):
            inspect.signature(func).bind(*arguments)
            return adapted
    raise ConfigError(
        f"MapGradient calls func(grad) or func(grad, var), but {func!r} does not take these arguments. "
        "Wrap it: lambda grad: ..."
    )


def _is_multiplier(value: Any) -> bool:
    return (
        isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], Real)
    )
