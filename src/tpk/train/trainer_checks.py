"""Checks of a trainer whose graph is complete, or about to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import tpk
from tpk.callbacks.statistics.followed import StatisticFollower
from tpk.callbacks.triggers import callbacks_of
from tpk.errors import ConfigError, TrainerStateError
from tpk.graph.determinism import warn_of_stateful_random_ops
from tpk.graph.reports.overview import log_model_overview


def check_steps_per_run(trainer: tpk.Trainer) -> None:
    """Check that one run of the session can make `steps_per_run` steps.

    Raises:
        ConfigError: if the trainer, its strategy or its input source can make only one step in a run.
    """
    steps = trainer.loop.steps_per_run
    if steps == 1:
        return
    kind, what = type(trainer).__name__, f"steps_per_run={steps}"
    if not trainer.repeats_steps:
        raise ConfigError(
            f"{what}: {kind} overrides run_step, which makes one step. Leave steps_per_run out, or do not "
            "override run_step, and set train_op."
        )
    if len(trainer.train_ops) != 1:
        raise ConfigError(
            f"{what}: a step of this {kind} is not always one run of the same op. Leave steps_per_run out, or "
            "minimize all objectives in each step: update='together', and every=1."
        )
    if not trainer.strategy.repeats_steps:
        raise ConfigError(
            f"{what}: {type(trainer.strategy).__name__} has work in each step that cannot be part of a loop in the "
            "graph. Leave steps_per_run out, or use 'single', 'replicated', 'parameter_server', 'collective' or "
            "'horovod'."
        )
    source = trainer.input_source
    if source is not None and source.is_fed:
        raise ConfigError(
            f"{what}: {type(source).__name__} feeds the data of one step with each run. Use an input in the graph, "
            "such as data=tpk.QueueInput(flow)."
        )


def followed_statistics(plugins: Sequence[Any]) -> dict[str, str]:
    """Return the names of the statistics that some of the plugins follow, with ``"min"`` or ``"max"``."""
    return {each.statistic: each.mode for each in callbacks_of(plugins, StatisticFollower)}


def check_graph(trainer: tpk.Trainer) -> None:
    """Check that the train ops belong to the graph, which is complete. Log its variables and unseeded random ops.

    Raises:
        TrainerStateError: if the graph cannot run a train op.
    """
    for train_op in trainer.train_ops:
        for leaf in tf.nest.flatten(train_op):
            problem = _problem_of(leaf, trainer.graph)
            if problem:
                raise TrainerStateError(f"the train_op of {type(trainer).__name__} is {problem}")
    warn_of_stateful_random_ops(trainer.train_ops)
    log_model_overview(trainer.graph)


def _problem_of(fetch: Any, graph: Any) -> str | None:
    where = "Create it, and its variables, under `with self.graph.as_default():`."
    tensor = getattr(fetch, "handle", fetch)
    if isinstance(tensor, tf.Tensor) and not tf.is_symbolic_tensor(tensor):
        return f"an eager {type(fetch).__name__}, which is not in the trainer's graph. {where}"
    if callable(fetch) and not isinstance(fetch, tf.Tensor | tf.Variable):
        return f"the function {fetch!r}; expected an op or tensors. Override run_step() to call a function."
    try:
        graph.as_graph_element(fetch)
    except (TypeError, ValueError, KeyError) as error:
        return f"{fetch!r}; expected an op or tensors of its graph, or their names: {error} {where}"
    return None
