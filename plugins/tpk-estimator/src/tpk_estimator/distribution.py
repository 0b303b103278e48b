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

_MODULES = (tf.distribute, v1.distribute)
_OF_ONE_PROCESS = tuple(kind for module in _MODULES for kind in (module.MirroredStrategy, module.OneDeviceStrategy))
_OF_SEVERAL = (tf.distribute.MultiWorkerMirroredStrategy, v1.distribute.experimental.MultiWorkerMirroredStrategy)


def devices_of(strategy: Any) -> list[str] | None:
    """Return the devices of a strategy in one process; None to take all GPUs of a process.

    Raises:
        ValueError: if it is not a strategy that trains synchronously, or one of its GPUs does not exist.
    """
    if strategy is None or isinstance(strategy, _OF_SEVERAL):
        return None
    _check(strategy)
    specs = [tf.DeviceSpec.from_string(device) for device in strategy.extended.worker_devices]
    return [f"/{spec.device_type.lower()}:{spec.device_index}" for spec in specs]


def build_replicas(
    model: Model, input_fn: Callable[..., Any], strategy: Any, processes: Any = None
) -> tuple[Inputs, EstimatorSpec]:
    """Add a replica of the model for each device to the default graph, for a training.

    Gradients are averaged, or summed, as the loss is over the examples of a batch; the loss of a step likewise.

    Args:
        model: the model.
        input_fn: returns a dataset, from which the replicas take batches in turn.
        strategy: a strategy of one process, such as `tf.distribute.MirroredStrategy`.
        processes: the `MultiProcessStrategy` of a training in several processes.

    Raises:
        ValueError: if the strategy is for several processes, or the ``input_fn`` does not return a dataset.
    """
    _check(strategy)
    world_size, rank = (1, 0) if processes is None else (processes.world_size, processes.rank)
    context = tf.distribute.InputContext(world_size, rank, world_size * strategy.num_replicas_in_sync)
    # Optimizers divide the loss by the number of replicas only for an Estimator; there is no public way to say so.
    with strategy.scope(), getattr(strategy, "_scale_loss_for_estimator_enabled", nullcontext)():
        tf.compat.v1.set_random_seed(model.config.tf_random_seed)
        params = model.params_for(ModeKeys.TRAIN)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "To make it possible to preserve tf.data options")  # of TensorFlow's own
            iterator = strategy.make_input_fn_iterator(lambda _: _dataset(model, input_fn, params, context))
        create_global_step(model.config)
        batch = iterator.get_next()
        features, labels = batch if isinstance(batch, tuple) else (batch, None)
        replicas = strategy.extended.call_for_each_replica(
            model.call_model_fn, args=(features, labels, ModeKeys.TRAIN, params)
        )
        specs = strategy.experimental_local_results(replicas)
        loss = tf.add_n([spec.loss for spec in specs])
        if processes is not None:
            loss = processes.sum_over_processes(loss)
        is_scaled = len(specs) == 1 or getattr(v1.get_default_graph(), "_is_loss_scaled_by_optimizer", False)
        if is_scaled and v1.distribute.get_loss_reduction() == tf.distribute.ReduceOp.MEAN:
            loss /= len(specs) * world_size
    spec = attrs.evolve(specs[0], loss=loss, train_op=tf.group(*[spec.train_op for spec in specs]))
    taken = [strategy.experimental_local_results(each) for each in tf.nest.flatten((features, labels))]
    return Inputs(taken, iterator=iterator), spec


def _check(strategy: Any) -> None:
    if not isinstance(strategy, _OF_ONE_PROCESS):
        raise ValueError(
            f"train_distribute of RunConfig must be a MirroredStrategy or a OneDeviceStrategy, but is {strategy!r}. "
            "For several processes, describe the cluster by TF_CONFIG."
        )
    gpus = len(tf.config.list_logical_devices("GPU"))
    for device in map(tf.DeviceSpec.from_string, strategy.extended.worker_devices):
        if device.device_type == "GPU" and device.device_index >= gpus:  # TensorFlow would wait for it forever.
            raise ValueError(
                f"train_distribute of RunConfig is for /gpu:{device.device_index}, but the number of GPUs here is "
                f"{gpus}. Leave out the devices of the strategy to use all that there are."
            )


def _dataset(model: Model, input_fn: Callable[..., Any], params: Any, context: Any) -> Any:
    given = model.arguments(input_fn, mode=ModeKeys.TRAIN, params=params, input_context=context)
    result = input_fn(**given)
    if not isinstance(result, tf.data.Dataset):
        raise ValueError(
            f"with train_distribute, an input_fn must return a tf.data.Dataset, but it returned {result!r}."
        )
    return result
