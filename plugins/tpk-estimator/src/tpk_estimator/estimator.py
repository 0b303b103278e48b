"""`Estimator`: trains, evaluates, predicts with and exports a model, and keeps its files in a directory."""

from __future__ import annotations

import copy
import logging
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpk_estimator.cluster import device_function
from tpk_estimator.collective import train_collectively
from tpk_estimator.distribution import build_replicas
from tpk_estimator.evaluation import StopAfterSteps, evaluate_spec, write_results
from tpk_estimator.model import Model
from tpk_estimator.prediction import examples_of, predict_batches, select
from tpk_estimator.resume import step_of_latest
from tpk_estimator.run_config import RunConfig
from tpk_estimator.saved_model import export_saved_model
from tpk_estimator.spec import EstimatorSpec, ModeKeys
from tpk_estimator.training import train_spec
from tpk_estimator.warm_start import as_warm_start_settings

logger = logging.getLogger(__name__)
v1 = tf.compat.v1


class Estimator:
    """Trains, evaluates, predicts with and exports the model of a ``model_fn``.

    Every call builds a graph of its own: it calls an ``input_fn``, then the ``model_fn``, and gets the values of the
    variables from the latest checkpoint in `model_dir`.

    Args:
        model_fn: a function of ``features``, and of ``labels``, ``mode``, ``params`` and ``config`` if it has arguments
            of these names. It returns an `EstimatorSpec`.
        model_dir: the directory of checkpoints and event files; by default that of `config`, or a temporary one.
        config: the settings.
        params: a dict, or an object such as `HParams`. The ``model_fn`` and every ``input_fn`` with an argument
            ``params`` get a copy.
        warm_start_from: the checkpoint, the directory or the SavedModel with the initial values of all trainable
            variables, or `WarmStartSettings`.

    Attributes:
        model: the ``model_fn`` with its parameters, which builds the graph of a mode.

    Raises:
        ValueError: if `model_fn` has arguments of other names, or `config` names another directory than `model_dir`.

    Example:
        ```python
        def model_fn(features, labels, mode):
            loss = tf.reduce_mean((tpk.layers.dense(features, 1) - labels) ** 2)
            step = tf.compat.v1.train.get_global_step()
            train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
            return tpk_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

        tpk_estimator.Estimator(model_fn, "runs/line").train(input_fn, steps=100)
        ```
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        self._config = _complete_config(config, model_dir)
        self.model = Model(model_fn, copy.deepcopy(params), self._config)
        self._warm_start = as_warm_start_settings(warm_start_from)

    @property
    def model_dir(self) -> str:
        """The directory of checkpoints and event files."""
        return str(self._config.model_dir)

    @property
    def config(self) -> RunConfig:
        """A copy of the settings."""
        return copy.copy(self._config)

    @property
    def params(self) -> Any:
        """A copy of the parameters."""
        return copy.deepcopy(self.model.params or {})

    @property
    def model_fn(self) -> Callable[..., EstimatorSpec]:
        """The model function, as a function of ``features``, ``labels``, ``mode`` and ``config``."""

        def public_model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> EstimatorSpec:
            return self.model.call_model_fn(features, labels, mode)

        return public_model_fn

    def latest_checkpoint(self) -> str | None:
        """Return the path of the latest checkpoint in `model_dir`; None if there is none."""
        path: str | None = tf.train.latest_checkpoint(self.model_dir)
        return path

    def get_variable_names(self) -> list[str]:
        """Return the names of the variables in the latest checkpoint.

        Raises:
            ValueError: if there is no checkpoint.
        """
        return [name for name, _ in tf.train.list_variables(self._checkpoint())]

    def get_variable_value(self, name: str) -> Any:
        """Return the value of a variable in the latest checkpoint.

        Raises:
            ValueError: if there is no checkpoint.
        """
        return tf.train.load_variable(self._checkpoint(), name)

    def eval_dir(self, name: str | None = None) -> str:
        """Return the directory of the event files of evaluations with this name."""
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> Estimator:
        """Train, from the latest checkpoint in `model_dir` on.

        A training that was killed continues with the element of the input that would have been next, and ends with the
        same bits. Otherwise, each training starts its input again. If a parameter server is lost, the training starts
        again from the latest checkpoint: it builds its graph again, and calls ``begin`` of the hooks again.

        Args:
            input_fn: returns a `tf.data.Dataset` of pairs ``(features, labels)``, or the tensors themselves.
            hooks: session hooks.
            steps: the number of steps to add; None to train until the input ends.
            max_steps: the global step to stop at.
            saving_listeners: `tf.compat.v1.train.CheckpointSaverListener` objects.

        Returns:
            This estimator.

        Raises:
            ValueError: if both `steps` and `max_steps` are given, or one of them is not positive.
            TypeError: if `hooks` or `saving_listeners` are something else.
        """
        hooks = _checked("hooks", hooks, v1.train.SessionRunHook)
        listeners = _checked("saving_listeners", saving_listeners, v1.train.CheckpointSaverListener)
        if steps is not None and max_steps is not None:
            raise ValueError(f"steps={steps} and max_steps={max_steps} exclude each other: give one of them.")
        _check_positive(steps=steps, max_steps=max_steps)
        left = steps
        if max_steps is not None:
            left = max_steps - (step_of_latest(self.model_dir) or 0)
            if left <= 0:
                logger.info("the latest checkpoint is at step %d or later, so nothing is trained", max_steps)
                return self
        if steps is not None or max_steps is not None:
            hooks.append(v1.train.StopAtStepHook(steps, max_steps))
        while True:
            try:
                loss = self._train(input_fn, left, hooks, listeners)
                break
            except (tf.errors.AbortedError, tf.errors.UnavailableError) as error:
                if self._config.task.is_collective:
                    raise
                logger.warning("the session was lost, so training starts again from its latest checkpoint: %s", error)
        logger.info("Loss for final step: %s.", loss)
        return self

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate the model.

        Args:
            input_fn: as for `train`.
            steps: the number of batches; None for all of the input.
            hooks: session hooks.
            checkpoint_path: the checkpoint; by default the latest. Without one, variables have their initial values.
            name: of the evaluation: its event file is in ``eval_<name>``.

        Returns:
            The metrics of the ``model_fn`` by name, the mean ``loss`` over the batches, and ``global_step``.

        Raises:
            ValueError: if `steps` is not positive.
        """
        hooks = _checked("hooks", hooks, v1.train.SessionRunHook)
        _check_positive(steps=steps)
        if steps is not None:
            hooks.append(StopAfterSteps(steps))
        checkpoint_path = checkpoint_path or self.latest_checkpoint()
        with tf.Graph().as_default():
            inputs, spec = self.model.build(input_fn, ModeKeys.EVAL)
            self._warm_start_without(checkpoint_path)
            results = evaluate_spec(
                spec,
                [*inputs.hooks, *hooks, *spec.evaluation_hooks],
                checkpoint_path,
                self._config.evaluation_master,
                self._config.session_config,
            )
            write_results(self.eval_dir(name), results, checkpoint_path)
        return results

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Collection[str] | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yield the predictions of the model for each example.

        Args:
            input_fn: as for `train`; labels are ignored.
            predict_keys: the keys of the predictions to compute, by default all.
            hooks: session hooks.
            checkpoint_path: the checkpoint; by default the latest. Without one, variables have their initial values.
            yield_single_examples: False to yield whole batches.

        Raises:
            ValueError: if the predictions have none of the keys, or are for different numbers of examples.
        """
        hooks = _checked("hooks", hooks, v1.train.SessionRunHook)
        checkpoint_path = checkpoint_path or self.latest_checkpoint()
        with tf.Graph().as_default():
            inputs, spec = self.model.build(input_fn, ModeKeys.PREDICT)
            self._warm_start_without(checkpoint_path)
            if not inputs.has_end:
                logger.warning("the input has no end, since it is neither a dataset nor a queue: so predict has none")
            creator = v1.train.ChiefSessionCreator(
                spec.scaffold,
                self._config.master,
                self._config.session_config,
                checkpoint_filename_with_path=checkpoint_path,
            )
            predictions = select(spec.predictions, predict_keys)
            for batch in predict_batches(predictions, creator, [*inputs.hooks, *hooks, *spec.prediction_hooks]):
                if yield_single_examples:
                    yield from examples_of(batch)
                else:
                    yield batch

    def export_saved_model(
        self,
        export_dir_base: Any,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Export the model as a SavedModel, in a new directory that is named after the time.

        Args:
            export_dir_base: the directory of the new one.
            serving_input_receiver_fn: returns an `export.ServingInputReceiver`.
            assets_extra: files to copy, by their paths in ``assets.extra``.
            as_text: whether to write the graph as text.
            checkpoint_path: the checkpoint; by default the latest, or that of the warm start.
            experimental_mode: the mode in which the ``model_fn`` is called.

        Returns:
            The path of the new directory.

        Raises:
            ValueError: if there is no checkpoint, or no function.
        """
        if serving_input_receiver_fn is None:
            raise ValueError("export_saved_model needs a serving_input_receiver_fn, which returns the input tensors.")
        return self.experimental_export_all_saved_models(
            export_dir_base, {experimental_mode: serving_input_receiver_fn}, assets_extra, as_text, checkpoint_path
        )

    def experimental_export_all_saved_models(
        self,
        export_dir_base: Any,
        input_receiver_fn_map: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> bytes:
        """Export the graphs of several modes as one SavedModel, as `export_saved_model` does.

        Args:
            export_dir_base: the directory of the new one.
            input_receiver_fn_map: by mode, a function that returns an `export.ServingInputReceiver`.
            assets_extra: files to copy, by their paths in ``assets.extra``.
            as_text: whether to write the graphs as text.
            checkpoint_path: the checkpoint; by default the latest, or that of the warm start.
        """
        path = checkpoint_path or self.latest_checkpoint()
        if path is None and self._warm_start is not None:
            path = self._warm_start.checkpoint
        return export_saved_model(
            self.model,
            input_receiver_fn_map,
            export_dir_base,
            path or self._checkpoint(),
            assets_extra=assets_extra,
            as_text=as_text,
        )

    def export_savedmodel(
        self,
        export_dir_base: Any,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> bytes:
        """Call `export_saved_model`, by the name that it had in older versions of TensorFlow 1.

        Attributes of ops that have their default value are left out, whatever `strip_default_attrs` is.
        """
        return self.export_saved_model(
            export_dir_base, serving_input_receiver_fn, assets_extra, as_text, checkpoint_path
        )

    def _train(self, input_fn: Callable[..., Any], steps: int | None, hooks: list[Any], listeners: list[Any]) -> Any:
        """Train in a new graph and a new session; return the loss of the last step."""
        strategy, is_collective = self._config.train_distribute, self._config.task.is_collective
        if isinstance(strategy, v1.distribute.experimental.ParameterServerStrategy):
            strategy = None  # The cluster says where the variables are.
        device = None if strategy or is_collective else device_function(self._config)
        with tf.Graph().as_default() as graph, graph.device(device):
            if is_collective:
                return train_collectively(
                    self.model, input_fn, hooks, listeners, steps, self._warm_start_unless_trained
                )
            if strategy is None:
                inputs, spec = self.model.build(input_fn, ModeKeys.TRAIN)
            else:
                inputs, spec = build_replicas(self.model, input_fn, strategy)
            self._warm_start_unless_trained()
            return train_spec(spec, inputs, self._config, hooks, listeners)

    def _checkpoint(self) -> str:
        path = self.latest_checkpoint()
        if path is None:
            raise ValueError(f"there is no checkpoint in {self.model_dir!r}: train the model first.")
        return path

    def _warm_start_unless_trained(self) -> None:
        self._warm_start_without(self.latest_checkpoint())

    def _warm_start_without(self, checkpoint_path: str | None) -> None:
        if self._warm_start is not None and not checkpoint_path:
            self._warm_start.apply()


def _complete_config(config: RunConfig | None, model_dir: Any) -> RunConfig:
    """Return the settings with a directory and a session config."""
    config = RunConfig() if config is None else config
    if not isinstance(config, RunConfig):
        raise ValueError(f"config must be a RunConfig, but got {config!r}.")
    path = None if model_dir is None else os.fspath(model_dir)
    if path is not None and config.model_dir not in (None, path):
        raise ValueError(f"model_dir is {path!r}, but that of the RunConfig is {config.model_dir!r}: give it once.")
    path = path or config.model_dir
    if path is None:
        path = tempfile.mkdtemp()
        logger.warning("no model_dir is given, so the files go to the temporary directory %s", path)
    return config.replace(model_dir=path, session_config=config.session_config or _default_session_config(config))


def _default_session_config(config: RunConfig) -> Any:
    session_config = v1.ConfigProto(allow_soft_placement=True)
    rewrites = session_config.graph_options.rewrite_options
    rewrites.meta_optimizer_iterations = rewrites.ONE
    if config.num_ps_replicas and config.task_type != "ps":
        # Otherwise a session would wait for the other workers, which may have ended.
        session_config.device_filters[:] = ["/job:ps", f"/job:{config.task_type}/task:{config.task_id}"]
    return session_config


def _checked(what: str, values: Sequence[Any] | None, kind: type) -> list[Any]:
    for value in values or ():
        if not isinstance(value, kind):
            raise TypeError(f"{what} must contain {kind.__name__} objects, but got {value!r}.")
    return list(values or ())


def _check_positive(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value <= 0:
            raise ValueError(f"{name} must be positive, but is {value}.")
