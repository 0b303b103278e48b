"""Synchronous training in several processes, on the strategy ``collective`` of tpk-distributed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import tensorflow as tf

import tpk
from tpk.checkpoint import SessionInit
from tpk_estimator.distribution import build_replicas, devices_of
from tpk_estimator.model import Model
from tpk_estimator.training import training_callbacks
from tpk_estimator.training_callbacks import StepResults

v1 = tf.compat.v1


def train_collectively(
    model: Model,
    input_fn: Callable[..., Any],
    hooks: Sequence[Any],
    saving_listeners: Sequence[Any],
    steps: int | None,
    initialize: Callable[[], None],
) -> Any:
    """Train in the default graph, in the cluster that ``TF_CONFIG`` describes; each process calls this.

    Args:
        model: the model, which is built when the processes have met.
        input_fn: returns the dataset of this process, from which its devices take batches in turn.
        hooks: the session hooks of the caller.
        saving_listeners: called by the chief before and after each checkpoint.
        steps: the number of steps; None to train until a hook or the end of the input stops it.
        initialize: called when the model is built, to change the initial values of variables.

    Returns:
        The loss of the last step, over all processes; None if there was no step.
    """
    trainer = _Trainer(model.config)

    def build() -> None:
        inputs, spec = build_replicas(model, input_fn, trainer.mirrored_strategy(), trainer.strategy)
        initialize()
        results, chief_callbacks, callbacks, _ = training_callbacks(spec, inputs, model.config, hooks, saving_listeners)
        trainer.train_op, trainer.scaffold, trainer.results = results.train_op, spec.scaffold, results
        for callback in chief_callbacks:
            callback.chief_only = True
        trainer.register_callback([results, *chief_callbacks, *callbacks])

    trainer.train(
        build=build,
        session_config=model.config.session_config,
        steps_per_epoch=steps or sys.maxsize,
        max_epoch=1,
    )
    return trainer.results.loss


class _Trainer(tpk.TowerTrainer):
    """Trains a model that is built in `train`, with the initial values that its scaffold gives it."""

    scaffold: Any
    results: StepResults

    def __init__(self, config: Any) -> None:
        # Each process has its own input, as with Estimator.
        super().__init__(tpk.use("collective", devices=devices_of(config.train_distribute), shard_data=False))
        self._model_dir = config.model_dir

    def mirrored_strategy(self) -> Any:
        """Return the strategy that replicates the model on the devices of this process."""
        strategy: Any = self.strategy
        devices = [f"{strategy.cluster.device}{device}" for device in strategy.devices]
        return tf.distribute.MirroredStrategy(devices, _OverProcesses(strategy, devices[0]))

    def initialize(self, session_creator: Any = None, session_init: Any = None) -> None:
        super().initialize(session_creator, _FromScaffold(self.scaffold, self._model_dir))

    @tpk.hookimpl(tryfirst=True)
    def before_train(self, trainer: tpk.Trainer) -> None:
        """Initialize what only this process has."""
        if self.scaffold.local_init_op is not None:
            self.sess.run(self.scaffold.local_init_op)


class _OverProcesses(tf.distribute.ReductionToOneDevice):  # type: ignore[misc]
    """Reduces gradients over the devices of this process, and then over all processes."""

    def __init__(self, strategy: Any, device: str) -> None:
        super().__init__()
        self._strategy = strategy
        self._device = device

    def batch_reduce(self, reduce_op: Any, value_destination_pairs: Any, options: Any = None) -> list[Any]:
        here = [(value, self._device) for value, _ in value_destination_pairs]
        local_results = tf.distribute.get_strategy().experimental_local_results
        reduced = [local_results(each)[0] for each in super().batch_reduce(reduce_op, here, options)]
        of_all = self._strategy.reduce_over_processes(reduced)
        if v1.distribute.get_loss_reduction() == tf.distribute.ReduceOp.SUM:
            of_all = [tf.math.scalar_mul(float(self._strategy.world_size), mean) for mean in of_all]
        destinations = [destination for _, destination in value_destination_pairs]
        return [self.broadcast(*pair) for pair in zip(of_all, destinations, strict=True)]


@attrs.frozen
class _FromScaffold(SessionInit):
    """Initializes the variables of the chief as a `ChiefSessionCreator` does; the other processes get them from it."""

    scaffold: Any
    model_dir: str

    def run(self, sess: Any) -> None:
        self.scaffold.finalize()
        path = tf.train.latest_checkpoint(self.model_dir)
        if path is not None:
            self.scaffold.saver.restore(sess, path)
            return
        sess.run(self.scaffold.init_op, self.scaffold.init_feed_dict)
        if self.scaffold.init_fn is not None:
            self.scaffold.init_fn(sess)
