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
from tpk_estimator.training_callbacks import SaveCheckpoints, StepResults, WriteSummaries

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
    results, chief_callbacks, callbacks, saver = training_callbacks(spec, inputs, config, hooks, saving_listeners)
    # Asynchronous workers have no state that could be continued exactly.
    is_resumable = saver and not config.num_ps_replicas
    resume_point = ResumePoint(inputs, spec.train_op, config.model_dir) if is_resumable else None
    if resume_point:
        _listen(saver, resume_point.listener)
        chief_callbacks = [resume_point, *chief_callbacks]
    trainer = tpk.Trainer()
    trainer.train_op = results.train_op
    trainer.train(
        callbacks=[results, *(chief_callbacks if config.is_chief else []), *callbacks],
        session_creator=session_creator(spec.scaffold, config),
        steps_per_epoch=sys.maxsize,
        max_epoch=1,
        run_dir=resume_point.folder if resume_point else None,
    )
    if resume_point:
        resume_point.forget()
    if results.loss is None:
        logger.warning("the training made no steps: its input may be empty")
    return results.loss


def training_callbacks(
    spec: EstimatorSpec, inputs: Inputs, config: RunConfig, hooks: Sequence[Any], saving_listeners: Sequence[Any]
) -> tuple[StepResults, list[Any], list[Any], Any]:
    """Return the callbacks of a training: the first of all, the chief's, every process's; and the hook that saves.

    The arguments are those of `train_spec`.

    Raises:
        ValueError: if there are listeners, but nothing saves checkpoints.
    """
    _add_loss_summary(spec.loss)
    _add_saver(spec.scaffold, config)
    results = StepResults(spec.train_op, spec.loss)
    worker_hooks = [*inputs.hooks, *hooks, *_watching_hooks(spec, config), *spec.training_hooks]
    saving: list[tpk.Callback] = []
    savers = _saver_hooks([*worker_hooks, *spec.training_chief_hooks])
    if not savers and (config.save_checkpoints_secs or config.save_checkpoints_steps):
        savers = [_saver_hook(spec.scaffold, config)]
        # Other workers also make steps, which only the hook itself can see.
        every = None if config.num_ps_replicas else config.save_checkpoints_steps
        saving = [SaveCheckpoints(savers[0], results, every)]
    if saving_listeners and not savers:
        raise ValueError(
            "saving_listeners are given, but nothing saves checkpoints: give RunConfig save_checkpoints_steps or "
            "save_checkpoints_secs."
        )
    for listener in saving_listeners:
        _listen(savers[0], listener)
    chief_callbacks: list[tpk.Callback] = [
        *saving,
        *map(tpk.HookToCallback, [*spec.training_chief_hooks, *_counting_hooks(config)]),
    ]
    if config.save_summary_steps:
        summaries = WriteSummaries(results, config.save_summary_steps, str(config.model_dir), spec.scaffold)
        chief_callbacks.append(summaries)
    return results, chief_callbacks, list(map(tpk.HookToCallback, worker_hooks)), savers[0] if savers else None


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


def _counting_hooks(config: RunConfig) -> list[Any]:
    steps = config.log_step_count_steps
    return [v1.train.StepCounterHook(steps, output_dir=config.model_dir)] if steps else []
