"""Evaluating a model in the middle of its training, without a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpk_estimator.estimator import Estimator
from tpk_estimator.evaluation import StopAfterSteps, evaluate_spec, write_results
from tpk_estimator.spec import ModeKeys

v1 = tf.compat.v1


class InMemoryEvaluatorHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Evaluates with the values of the running training: before it, every few steps, and after it.

    Args:
        estimator: the estimator that trains.
        input_fn: as for `Estimator.evaluate`.
        steps: the number of batches; None for all of the input.
        hooks: session hooks of the evaluations.
        name: of the evaluation: its event file is in ``eval_<name>``.
        every_n_iter: the number of training steps between two evaluations.

    Raises:
        ValueError: if `every_n_iter` is not positive.
        TypeError: if `estimator` is not an `Estimator`.
    """

    def __init__(
        self,
        estimator: Estimator,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Any] | None = None,
        name: str | None = None,
        every_n_iter: int = 100,
    ) -> None:
        if not isinstance(estimator, Estimator):
            raise TypeError(f"estimator must be an Estimator, but got {estimator!r}.")
        if every_n_iter is None or every_n_iter <= 0:
            raise ValueError(f"every_n_iter must be positive, but is {every_n_iter}.")
        self._estimator = estimator
        self._input_fn = input_fn
        self._steps = steps
        self._hooks = list(hooks or ())
        self._name = name
        self._every_n_iter = every_n_iter

    def begin(self) -> None:
        """Remember the variables of the training, and start to count."""
        self._variables = {variable.name: variable for variable in v1.global_variables()}
        self._done = self._evaluated = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Evaluate the values that the training starts with."""
        self._evaluate(session)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Evaluate every few steps."""
        self._done += 1
        if self._done - self._evaluated >= self._every_n_iter:
            self._evaluate(run_context.session)

    def end(self, session: Any) -> None:
        """Evaluate the trained values."""
        self._evaluate(session)

    def _evaluate(self, session: Any) -> None:
        self._evaluated = self._done
        with tf.Graph().as_default():
            inputs, spec = self._estimator.model.build(self._input_fn, ModeKeys.EVAL)
            variables = v1.global_variables()
            values = session.run({variable.name: self._variables[variable.name] for variable in variables})

            def load(scaffold: Any, evaluation: Any) -> None:
                for variable in variables:
                    variable.load(values[variable.name], evaluation)

            spec = spec._replace(scaffold=v1.train.Scaffold(init_fn=load, copy_from_scaffold=spec.scaffold))
            hooks = [*inputs.hooks, *self._hooks, *spec.evaluation_hooks]
            if self._steps is not None:
                hooks.append(StopAfterSteps(self._steps))
            config = self._estimator.config
            results = evaluate_spec(spec, hooks, None, config.evaluation_master, config.session_config)
            write_results(self._estimator.eval_dir(self._name), results, None)
