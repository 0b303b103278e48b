"""`tf.contrib.tpu`: TPUEstimator on CPUs and GPUs, as with ``use_tpu=False``."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk_estimator.estimator import Estimator
from tpk_estimator.model import Model, argument_names
from tpk_estimator.run_config import RunConfig as _RunConfig
from tpk_estimator.spec import EstimatorSpec, ModeKeys

v1 = tf.compat.v1

bfloat16_scope = v1.tpu.bfloat16_scope

_WRITERS = "_SUMMARY_WRITER_V2"
"""TensorFlow's collection of the ops that initialize writers of `tf.summary`."""


class InputPipelineConfig:
    """How a TPU would get its input; without effect here."""

    PER_SHARD_V1 = 1
    PER_HOST_V1 = 2
    PER_HOST_V2 = 3
    BROADCAST = 4
    SLICED = 5


@attrs.frozen
class TPUConfig:
    """The settings of a TPU. Here, only `iterations_per_loop` has an effect: on how often rates are logged."""

    iterations_per_loop: int = attrs.field(default=2, validator=attrs.validators.gt(0))
    num_shards: int | None = None
    num_cores_per_replica: int | None = None
    per_host_input_for_training: Any = True
    tpu_job_name: str | None = None
    initial_infeed_sleep_secs: int | None = None
    input_partition_dims: Any = None
    eval_training_input_configuration: int = InputPipelineConfig.PER_HOST_V1
    experimental_host_call_every_n_steps: int = 1
    experimental_allow_per_host_v2_parallel_get_next: bool = False
    experimental_feed_hook: Any = None


class RunConfig(_RunConfig):
    """The settings of a `TPUEstimator`.

    Args:
        tpu_config: the settings of the TPU.
        evaluation_master: the server for evaluations; empty for this process.
        master: the server for trainings and predictions; empty for this process.
        cluster: a cluster resolver, which names `master`.
        options: those of `tpk_estimator.RunConfig`.

    Raises:
        ValueError: if both `master` and `cluster` are given.
    """

    def __init__(
        self,
        tpu_config: TPUConfig | None = None,
        evaluation_master: str | None = None,
        master: str | None = None,
        cluster: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if master is not None and cluster is not None:
            raise ValueError("master and cluster of a RunConfig exclude each other: give one of them.")
        self.tpu_config = tpu_config or TPUConfig()
        self.cluster = cluster
        self._master = cluster.master() if cluster is not None else master
        self._evaluation_master = evaluation_master

    @property
    def master(self) -> str:
        """The server for trainings and predictions; empty for this process."""
        return super().master if self._master is None else self._master

    @property
    def evaluation_master(self) -> str:
        """The server for evaluations; empty for this process."""
        return super().evaluation_master if self._evaluation_master is None else self._evaluation_master


def _check_call(spec: Any, attribute: Any, call: Any) -> None:
    is_call = isinstance(call, tuple | list) and len(call) == 2 and callable(call[0])
    if call is not None and not (is_call and isinstance(call[1], tuple | list | Mapping)):
        raise TypeError(f"{attribute.name} must be a pair of a function and its tensors, but is {call!r}.")


@attrs.frozen(eq=False)
class TPUEstimatorSpec:
    """The ops of a model in one mode, which a ``model_fn`` of a `TPUEstimator` returns.

    Args:
        mode: one of `ModeKeys`.
        predictions: as in an `EstimatorSpec`.
        loss: as in an `EstimatorSpec`.
        train_op: as in an `EstimatorSpec`.
        eval_metrics: a function that returns metrics by name, and its tensors, in a list or a dict by argument.
        export_outputs: as in an `EstimatorSpec`.
        scaffold_fn: a function that returns the scaffold.
        host_call: a function whose result each step runs, and its tensors.
        training_hooks: as in an `EstimatorSpec`.
        evaluation_hooks: as in an `EstimatorSpec`.
        prediction_hooks: as in an `EstimatorSpec`.

    Raises:
        TypeError: if `eval_metrics` or `host_call` is not such a pair.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metrics: Any = attrs.field(default=None, validator=_check_call)
    export_outputs: Any = None
    scaffold_fn: Callable[[], Any] | None = None
    host_call: Any = attrs.field(default=None, validator=_check_call)
    training_hooks: Sequence[Any] | None = None
    evaluation_hooks: Sequence[Any] | None = None
    prediction_hooks: Sequence[Any] | None = None

    def _replace(self, **changes: Any) -> TPUEstimatorSpec:
        """Return a spec with other values in some fields, as the method of a named tuple does."""
        return attrs.evolve(self, **changes)

    def as_estimator_spec(self) -> EstimatorSpec:
        """Return the `EstimatorSpec` with the same ops."""
        metrics = None if self.eval_metrics is None else _call(*self.eval_metrics)
        hooks = () if self.host_call is None else (_RunHostCall(_call(*self.host_call)),)
        return EstimatorSpec(
            mode=self.mode,
            predictions=self.predictions,
            loss=self.loss,
            train_op=self.train_op,
            eval_metric_ops=metrics,
            export_outputs=self.export_outputs,
            training_hooks=(*(self.training_hooks or ()), *hooks),
            scaffold=None if self.scaffold_fn is None else self.scaffold_fn(),
            evaluation_hooks=(*(self.evaluation_hooks or ()), *hooks),
            prediction_hooks=(*(self.prediction_hooks or ()), *hooks),
        )


class TPUEstimator(Estimator):
    """An `Estimator` for programs that can also use TPUs; here, they run on CPUs and GPUs.

    The functions find the batch size of the mode as ``params["batch_size"]``, and ``params["use_tpu"]`` is False.

    Args:
        model_fn: as for `Estimator`; it may also return a `TPUEstimatorSpec`.
        model_dir: as for `Estimator`.
        config: the settings.
        params: as for `Estimator`, without ``batch_size``.
        use_tpu: must be False.
        train_batch_size: the batch size in trainings.
        eval_batch_size: the batch size in evaluations.
        predict_batch_size: the batch size in predictions.
        batch_axis: without effect.
        eval_on_tpu: without effect.
        export_to_tpu: without effect: exports are for CPUs and GPUs.
        export_to_cpu: without effect.
        warm_start_from: as for `Estimator`.

    Raises:
        ValueError: if `use_tpu` is not False, or `params` contain ``batch_size``.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: RunConfig | None = None,
        params: Any = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Any = None,
        eval_on_tpu: bool = True,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
        warm_start_from: Any = None,
    ) -> None:
        if use_tpu:
            raise ValueError("TPUEstimator runs on CPUs and GPUs here: pass use_tpu=False.")
        if not isinstance(config, RunConfig):
            raise ValueError(f"config of a TPUEstimator must be a tpk_estimator.tpu.RunConfig, but is {config!r}.")
        if "batch_size" in (params or {}):
            raise ValueError("params must not contain 'batch_size': pass train_batch_size, eval_batch_size, ...")
        if "params" not in argument_names(model_fn):
            raise ValueError("the model_fn of a TPUEstimator needs an argument params, which contains the batch size.")
        # The hook of `_TPUModel` logs the rate instead.
        super().__init__(model_fn, model_dir, config.replace(log_step_count_steps=None), params, warm_start_from)
        sizes = {
            ModeKeys.TRAIN: train_batch_size,
            ModeKeys.EVAL: eval_batch_size,
            ModeKeys.PREDICT: predict_batch_size,
        }
        log_steps = config.log_step_count_steps
        every_n_steps = log_steps and math.ceil(log_steps / config.tpu_config.iterations_per_loop)
        self.model = _TPUModel(model_fn, self.model.params, self._config, sizes, every_n_steps)


@attrs.frozen(eq=False)
class _TPUModel(Model):
    """A model function that gets batch sizes, and may return a `TPUEstimatorSpec`."""

    batch_sizes: Mapping[str, int | None]
    log_every_n_steps: int | None

    def params_for(self, mode: str) -> Any:
        size = self.batch_sizes[mode]
        given = {"use_tpu": False, **({} if size is None else {"batch_size": size})}
        params = copy.deepcopy(self.params or {})
        if isinstance(params, Mapping):
            return {**params, **given}
        for name, value in given.items():
            add = params.set_hparam if name in params else params.add_hparam
            add(name, value)
        return params

    def call_input_fn(self, input_fn: Callable[..., Any], mode: str, params: Any) -> Any:
        if "params" not in argument_names(input_fn):
            raise ValueError("an input_fn for a TPUEstimator needs an argument params, which contains the batch size.")
        return super().call_input_fn(input_fn, mode, params)

    def as_spec(self, result: Any) -> Any:
        spec = result.as_estimator_spec() if isinstance(result, TPUEstimatorSpec) else result
        size = self.batch_sizes[ModeKeys.TRAIN]
        if not isinstance(spec, EstimatorSpec) or not self.log_every_n_steps or not size:
            return spec
        directory = self.config.model_dir if self.config.save_summary_steps else None
        hook = _LogRates(size, self.log_every_n_steps, directory)
        return attrs.evolve(spec, training_hooks=(*spec.training_hooks, hook))


class CrossShardOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Averages gradients over the shards of a TPU; here there is one shard.

    Args:
        opt: the optimizer that applies the gradients.
        reduction: without effect.
        name: without effect.
        group_assignment: without effect.
    """

    def __init__(
        self, opt: Any, reduction: Any = None, name: str = "CrossShardOptimizer", group_assignment: Any = None
    ) -> None:
        super().__init__(False, name)
        self._optimizer = opt

    def compute_gradients(self, *args: Any, **options: Any) -> Any:
        """Compute gradients."""
        return self._optimizer.compute_gradients(*args, **options)

    def apply_gradients(self, *args: Any, **options: Any) -> Any:
        """Apply gradients."""
        return self._optimizer.apply_gradients(*args, **options)

    def get_slot(self, *args: Any) -> Any:
        """Return a slot of the optimizer."""
        return self._optimizer.get_slot(*args)

    def get_slot_names(self) -> Any:
        """Return the names of the optimizer's slots."""
        return self._optimizer.get_slot_names()

    def variables(self) -> Any:
        """Return the variables of the optimizer."""
        return self._optimizer.variables()


def _call(function: Callable[..., Any], tensors: Any) -> Any:
    return function(**tensors) if isinstance(tensors, Mapping) else function(*tensors)


class _RunHostCall(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Runs a host call with each step, and opens and flushes the writers of `tf.summary` that it uses."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def begin(self) -> None:
        self._initializers = v1.get_collection(_WRITERS)
        self._flushes = [tf.raw_ops.FlushSummaryWriter(writer=op.inputs[0]) for op in self._initializers]

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._initializers)

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs(self._result)

    def end(self, session: Any) -> None:
        session.run(self._flushes)


class _LogRates(tf.compat.v1.train.StepCounterHook):  # type: ignore[misc]
    """Logs and writes the rates of steps and of examples."""

    def __init__(self, batch_size: int, every_n_steps: int, output_dir: str | None) -> None:
        writer = None if output_dir is None else v1.summary.FileWriterCache.get(output_dir)
        super().__init__(every_n_steps, output_dir=output_dir, summary_writer=writer)
        self._batch_size = batch_size
        self._writer = writer

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        super()._log_and_record(elapsed_steps, elapsed_time, global_step)
        rate = self._batch_size * elapsed_steps / elapsed_time
        tf.compat.v1.logging.info("examples/sec: %g", rate)
        if self._writer is not None:
            value = v1.Summary.Value(tag="examples/sec", simple_value=rate)
            self._writer.add_summary(v1.Summary(value=[value]), global_step)
