"""`tf.contrib.opt`: minimization by SciPy. The optimizers are not available, but have replacements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tpk_tensorflow1.missing import finder_in

__all__ = ["ScipyOptimizerInterface"]

v1 = tf.compat.v1


class ScipyOptimizerInterface:
    """Minimizes a loss with `scipy.optimize.minimize`.

    Args:
        loss: a scalar.
        var_list: the variables to change; by default all trainable variables.
        equalities: scalars to keep at zero, for a method such as ``"SLSQP"``.
        inequalities: scalars to keep from being negative, likewise.
        var_to_bounds: the lowest and the highest value of variables, each a number, an array that can be broadcast to
            the shape of the variable, or None.
        optimizer_kwargs: further arguments of `scipy.optimize.minimize`, such as ``method`` and ``options``. The method
            is ``"L-BFGS-B"`` by default.

    Example:
        ```python
        optimizer = tf.contrib.opt.ScipyOptimizerInterface(loss, options={"maxiter": 100})
        optimizer.minimize(sess, feed_dict={x: data}, fetches=[loss], loss_callback=print)
        ```
    """

    def __init__(
        self,
        loss: Any,
        var_list: Sequence[Any] | None = None,
        equalities: Sequence[Any] | None = None,
        inequalities: Sequence[Any] | None = None,
        var_to_bounds: dict[Any, tuple[Any, Any]] | None = None,
        **optimizer_kwargs: Any,
    ) -> None:
        self._variables = v1.trainable_variables() if var_list is None else list(var_list)
        self._point = _packed(self._variables)
        self._new_point = v1.placeholder(tf.float64, self._point.shape)
        parts = tf.split(self._new_point, [each.shape.num_elements() for each in self._variables])
        self._move = [
            variable.assign(tf.cast(tf.reshape(part, variable.shape), variable.dtype.base_dtype))
            for variable, part in zip(self._variables, parts, strict=True)
        ]
        self._loss = self._with_gradient(loss)
        self._constraints = [
            *(("eq", *self._with_gradient(each)) for each in equalities or ()),
            *(("ineq", *self._with_gradient(each)) for each in inequalities or ()),
        ]
        self._options = {"method": "L-BFGS-B", **optimizer_kwargs}
        if var_to_bounds is not None:
            self._options["bounds"] = _bounds(self._variables, var_to_bounds)

    def minimize(
        self,
        session: Any = None,
        feed_dict: Any = None,
        fetches: Sequence[Any] | None = None,
        step_callback: Callable[[Any], Any] | None = None,
        loss_callback: Callable[..., Any] | None = None,
        **run_kwargs: Any,
    ) -> None:
        """Move the variables to the minimum.

        Args:
            session: the session, by default the current one.
            feed_dict: what to feed whenever the loss is computed.
            fetches: tensors to compute together with the loss.
            step_callback: called after each step of SciPy, with the values of all variables as one vector.
            loss_callback: called with the values of `fetches` whenever the loss is computed.
            run_kwargs: arguments of ``session.run`` when the variables get their final values.
        """
        from scipy import optimize

        session = session or v1.get_default_session()

        def at(point: Any, tensors: Any) -> Any:
            session.run(self._move, {self._new_point: point})
            return session.run(tensors, feed_dict)

        def loss_at(point: Any) -> tuple[Any, Any]:
            (loss, gradient), fetched = at(point, [self._loss, fetches or []])
            if loss_callback is not None:
                loss_callback(*fetched)
            return loss, gradient

        constraints = [
            {"type": kind, "fun": partial(at, tensors=value), "jac": partial(at, tensors=gradient)}
            for kind, value, gradient in self._constraints
        ]
        start = session.run(self._point)
        result = optimize.minimize(
            loss_at, start, jac=True, callback=step_callback, constraints=constraints, **self._options
        )
        session.run(self._move, {self._new_point: result.x}, **run_kwargs)
        v1.logging.info("scipy.optimize.minimize: %s; the loss is %g", result.message, result.fun)

    def _with_gradient(self, scalar: Any) -> tuple[Any, Any]:
        gradients = tf.gradients(scalar, self._variables, unconnected_gradients="zero")
        return tf.cast(scalar, tf.float64), _packed(gradients)


def _packed(tensors: Sequence[Any]) -> Any:
    """Return the elements of all tensors as one vector, in the precision in which SciPy computes."""
    return tf.concat([tf.reshape(tf.cast(each, tf.float64), [-1]) for each in tensors], 0)


def _bounds(variables: Sequence[Any], var_to_bounds: dict[Any, tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    bounds: list[tuple[Any, Any]] = []
    for variable in variables:
        limits = var_to_bounds.get(variable, (None, None))
        bounds += zip(*(np.broadcast_to(limit, variable.shape.as_list()).ravel() for limit in limits), strict=True)
    return bounds


__getattr__ = finder_in("tf.contrib.opt", __all__)
