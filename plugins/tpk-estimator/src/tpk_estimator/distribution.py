"""A model on the devices of a `tf.distribute.Strategy`: each replica takes its own batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import attrs
import tensorflow as tf

from tpk_estimator.model import Inputs, Model, create_global_step
from tpk_estimator.spec import EstimatorSpec, ModeKeys

v1 = tf.compat.v1


def build_replicas(model: Model, input_fn: Callable[..., Any], strategy: Any) -> tuple[Inputs, EstimatorSpec]:
    """Add a replica of the model for each device to the default graph, for a training.

    Gradients are averaged, or summed, as the loss is over the examples of a batch; the loss of a step likewise.

    Args:
        model: the model.
        input_fn: returns a dataset, from which the replicas take batches in turn.
        strategy: a strategy of one process, such as `tf.distribute.MirroredStrategy`.

    Raises:
        ValueError: if the strategy is for several processes, or the ``input_fn`` does not return a dataset.
    """
    if not isinstance(strategy, tf.distribute.MirroredStrategy | tf.distribute.OneDeviceStrategy):
        raise ValueError(
            f"train_distribute of RunConfig must be a MirroredStrategy or a OneDeviceStrategy, but is {strategy!r}. "
            "For several processes, describe the cluster by TF_CONFIG."
        )
    # Optimizers divide the loss by the number of replicas only for an Estimator; there is no public way to say so.
    with strategy.scope(), getattr(strategy, "_scale_loss_for_estimator_enabled", nullcontext)():
        tf.compat.v1.set_random_seed(model.config.tf_random_seed)
        params = model.params_for(ModeKeys.TRAIN)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "To make it possible to preserve tf.data options")  # of TensorFlow's own
            iterator = strategy.make_input_fn_iterator(lambda context: _dataset(model, input_fn, params))
        create_global_step(model.config)
        batch = iterator.get_next()
        features, labels = batch if isinstance(batch, tuple) else (batch, None)
        replicas = strategy.extended.call_for_each_replica(
            model.call_model_fn, args=(features, labels, ModeKeys.TRAIN, params)
        )
        specs = strategy.experimental_local_results(replicas)
        loss = tf.add_n([spec.loss for spec in specs])
        is_scaled = getattr(v1.get_default_graph(), "_is_loss_scaled_by_optimizer", False)
        if is_scaled and v1.distribute.get_loss_reduction() == tf.distribute.ReduceOp.MEAN:
            loss /= len(specs)
    spec = attrs.evolve(specs[0], loss=loss, train_op=tf.group(*[spec.train_op for spec in specs]))
    taken = [strategy.experimental_local_results(each) for each in tf.nest.flatten((features, labels))]
    return Inputs(taken, iterator=_Initializable(iterator)), spec


def _dataset(model: Model, input_fn: Callable[..., Any], params: Any) -> Any:
    result = input_fn(**model.arguments(input_fn, mode=ModeKeys.TRAIN, params=params))
    if not isinstance(result, tf.data.Dataset):
        raise ValueError(
            f"with train_distribute, an input_fn must return a tf.data.Dataset, but it returned {result!r}."
        )
    return result


class _Initializable:
    """The iterator over the batches of all replicas, like one over a dataset."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    @property
    def initializer(self) -> Any:
        return self._iterator.initialize()
