"""Training a model on tpk's loop, with the session hooks and files of an Estimator."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import tpk
from tpk_estimator.cluster import session_creator
from tpk_estimator.model import Inputs
from tpk_estimator.resume import ResumePoint
from tpk_estimator.run_config import RunConfig
from tpk_estimator.spec import EstimatorSpec

logger = logging.getLogger(__name__)
v1 = tf.compat.v1


def train_spec(
    spec: EstimatorSpec, inputs: Inputs, config: RunConfig, hooks: Sequence[Any], saving_listeners: Sequence[Any]
) -> Any:
    """Train a model that is built in the default graph, until a hook or the end of the input stops it.

    Args:
        spec: the model.
        inputs: its input.
        config: the settings; `model_dir` is the directory of the files.
        hooks: the session hooks of the caller.
        saving_listeners: called before and after each checkpoint.

    Returns:
        The loss of the last step; None if there was no step.

    Raises:
        ValueError: if there are listeners, but nothing saves checkpoints.
    """
    chief_hooks, worker_hooks, saver = session_hooks(spec, inputs, config, hooks, saving_listeners)
    # Asynchronous workers have no state that could be continued exactly.
    resume_point = ResumePoint(inputs, config.model_dir) if saver and not config.num_ps_replicas else None
    if resume_point:
        _listen(saver, resume_point.listener)
    last_loss = LastLoss(spec.loss)
    trainer = tpk.Trainer()
    trainer.train_op = spec.train_op
    trainer.train(
        callbacks=[
            *map(tpk.HookToCallback, [*(chief_hooks if config.is_chief else []), *worker_hooks]),
            last_loss,
            *(resume_point.callbacks if resume_point else []),
        ],
        session_creator=session_creator(spec.scaffold, config),
        steps_per_epoch=sys.maxsize,
        max_epoch=1,
        **(resume_point.options if resume_point else {}),
    )
    if resume_point:
        resume_point.forget()
    if last_loss.value is None:
        logger.warning("the training made no steps: its input may be empty")
    return last_loss.value


def session_hooks(
    spec: EstimatorSpec, inputs: Inputs, config: RunConfig, hooks: Sequence[Any], saving_listeners: Sequence[Any]
) -> tuple[list[Any], list[Any], Any]:
    """Return the session hooks of a training: of the chief, of every process, and the one that saves; None for none.

    Raises:
        ValueError: if there are listeners, but nothing saves checkpoints.
    """
    _add_loss_summary(spec.loss)
    worker_hooks = [*inputs.hooks, *hooks, *_watching_hooks(spec, config), *spec.training_hooks]
    _add_saver(spec.scaffold, config)
    own = []
    savers = _saver_hooks([*worker_hooks, *spec.training_chief_hooks])
    if not savers and (config.save_checkpoints_secs or config.save_checkpoints_steps):
        savers = own = [_saver_hook(spec.scaffold, config)]
    if saving_listeners and not savers:
        raise ValueError(
            "saving_listeners are given, but nothing saves checkpoints: give RunConfig save_checkpoints_steps or "
            "save_checkpoints_secs."
        )
    for listener in saving_listeners:
        _listen(savers[0], listener)
    chief_hooks = [*own, *spec.training_chief_hooks, *_counting_hooks(spec.scaffold, config)]
    return chief_hooks, worker_hooks, savers[0] if savers else None


class LastLoss(tpk.Callback):
    """Keeps the loss of the last step."""

    chief_only = False

    def __init__(self, loss: Any) -> None:
        self._loss = loss
        self.value: Any = None

    def before_run(self, run_context: Any) -> Any:
        """Fetch the loss."""
        return self._loss

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keep it."""
        self.value = run_values.results


def _add_loss_summary(loss: Any) -> None:
    if not any(each.op.name == "loss" for each in v1.get_collection(v1.GraphKeys.SUMMARIES)):
        v1.summary.scalar("loss", loss)
    v1.add_to_collection(v1.GraphKeys.LOSSES, loss)


def _add_saver(scaffold: Any, config: RunConfig) -> None:
    """Add a saver to the collection, where the scaffold finds it, unless the model brings one."""
    if scaffold.saver is None and not v1.get_collection(v1.GraphKeys.SAVERS):
        saver = v1.train.Saver(
            sharded=True,
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            defer_build=True,
            save_relative_paths=True,
        )
        v1.add_to_collection(v1.GraphKeys.SAVERS, saver)


def _saver_hook(scaffold: Any, config: RunConfig) -> Any:
    return v1.train.CheckpointSaverHook(
        config.model_dir,
        save_secs=config.save_checkpoints_secs,
        save_steps=config.save_checkpoints_steps,
        scaffold=scaffold,
        save_graph_def=config.checkpoint_save_graph_def,
    )


def _saver_hooks(hooks: Sequence[Any]) -> list[Any]:
    return [hook for hook in hooks if isinstance(hook, v1.train.CheckpointSaverHook)]


def _listen(saver_hook: Any, listener: Any) -> None:
    # The user may have made the hook, and it takes no listeners after that.
    if listener not in saver_hook._listeners:
        saver_hook._listeners.append(listener)


def _watching_hooks(spec: EstimatorSpec, config: RunConfig) -> list[Any]:
    hooks = [v1.train.NanTensorHook(spec.loss)]
    if config.log_step_count_steps is not None:
        logged = {"loss": spec.loss, "step": v1.train.get_global_step()}
        hooks.append(v1.train.LoggingTensorHook(logged, every_n_iter=config.log_step_count_steps))
    return hooks


def _counting_hooks(scaffold: Any, config: RunConfig) -> list[Any]:
    hooks: list[Any] = []
    if config.log_step_count_steps:
        hooks.append(v1.train.StepCounterHook(config.log_step_count_steps, output_dir=config.model_dir))
    if config.save_summary_steps:
        hooks.append(
            v1.train.SummarySaverHook(config.save_summary_steps, scaffold=scaffold, output_dir=config.model_dir)
        )
    return hooks
