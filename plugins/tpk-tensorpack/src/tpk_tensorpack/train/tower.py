"""Trainers of models defined by a tower function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

import tpk
from tpk.errors import InputError, TowerError, TrainerStateError
from tpk.graph import ProxyOptimizer, compiled_by_xla, resolve_devices
from tpk.plugin import also_spelled, get_catalog
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.input_source import QueueInput, StagingInput
from tpk_tensorpack.predict.base import OnlinePredictor
from tpk_tensorpack.tfutils.tower import TowerFunc, get_current_tower_context
from tpk_tensorpack.train import older
from tpk_tensorpack.train.base import Trainer
from tpk_tensorpack.train.config import TrainConfig
from tpk_tensorpack.utils import logger

__all__ = ["SingleCostTrainer", "TowerTrainer"]


@older.takes_config
class TowerTrainer(Trainer, tpk.TowerTrainer):
    """A trainer with a tower function; see `tpk.TowerTrainer`.

    A subclass sets `tower_func`, and builds each of its training towers under a `TowerContext`.

    Attributes:
        devices: the GPU numbers of the towers, if it trains on several.
    """

    devices: Sequence[int] = ()

    def __init__(self) -> None:
        super().__init__()
        # tensorpack's trainers know their devices from the start.
        self._strategy = get_catalog().resolve("strategy", self._strategy)
        self._predictors: list[OnlinePredictor] = []

    @property
    def input_signature(self) -> list[Any]:
        """The `tf.TensorSpec`s of the inputs."""
        return list(self.tower_func.input_signature)

    inputs_desc = input_signature
    """The former name of `input_signature`."""

    def set_tower_func(self, tower_func: TowerFunc) -> None:
        """Set `tower_func`; trainers of tensorpack 0.7 and 0.8 call it."""
        self.tower_func = tower_func

    def make_tower_func(self, func: Callable[..., Any], input_signature: Sequence[Any]) -> TowerFunc:
        """Return `func` as a `TowerFunc`; a `TowerFunc` is returned unchanged."""
        return func if isinstance(func, TowerFunc) else TowerFunc(func, input_signature)

    @also_spelled({"tower": "device"})
    def get_predictor(  # type: ignore[override]
        self, input_names: Sequence[str], output_names: Sequence[str], device: int = 0
    ) -> OnlinePredictor:
        """Return a function of arrays that uses the current variables of the training run.

        The first call for a device builds an inference tower there, so call it in a callback's ``_setup_graph``.

        Args:
            input_names: names of inputs or of other tensors in the tower.
            output_names: names of tensors in the tower.
            device: a GPU number, or -1 for the CPU. Without GPUs, the device of the training tower with that number.

        Raises:
            TrainerStateError: the training towers have not been built, or the training run is over.
            TowerError: the graph is already finalized, or a tensor is missing in the tower.
            ConfigError: there are GPUs, but none with this number.
        """
        self._main_tower()
        self._check_not_over("get_predictor()")
        if self.config is not None:
            device = self.config.predict_tower[device % len(self.config.predict_tower)]
        name = f"tower-pred-{device}" if device >= 0 else "tower-pred-cpu"
        if name not in [tower.ns_name for tower in self.towers]:
            training = self._tower_on(device)
            vs_name = None if training is None else training.vs_name
            self.build_inference_tower(name, device=self._device_of_predictor(device), vs_name=vs_name)
        tower = self.towers[name]
        sess = self.sess if self.phases.has("initialize") else None
        predictor = OnlinePredictor(tower.get_tensors(input_names), tower.get_tensors(output_names), sess=sess)
        self._predictors.append(predictor)
        return predictor

    def get_predictors(  # type: ignore[override]
        self, input_names: Sequence[str], output_names: Sequence[str], n: int
    ) -> list[OnlinePredictor]:
        """Return `n` predictors, on the configured GPUs in turn; see `get_predictor`.

        Args:
            input_names: names of inputs or of other tensors in the tower.
            output_names: names of tensors in the tower.
            n: the number of predictors.
        """
        places = range(n) if self.config is not None else [k % max(1, len(self.devices)) for k in range(n)]
        return [self.get_predictor(input_names, output_names, place) for place in places]

    @property
    def vs_name_for_predictor(self) -> str:
        """The variable scope of the first tower, used by predictors."""
        return str(self.strategy.predict_context("").vs_name)

    def _model_of(self, config: TrainConfig) -> Any:
        if config.model is None:
            raise CheckError(f"{type(self).__name__}: the TrainConfig has no model. Pass model=")
        return config.model

    def _data_of(self, config: TrainConfig) -> Any:
        data = config.dataflow if config.data is None else config.data
        if data is None:
            raise CheckError(f"{type(self).__name__}: the TrainConfig has no dataflow. Pass dataflow=")
        return data

    def initialize(self, session_creator: Any = None, session_init: Any = None) -> None:
        """Create the session and initialize the variables; see `tpk.Trainer.initialize`."""
        super().initialize(session_creator, session_init)
        for predictor in self._predictors:
            predictor.sess = self.sess

    def _device_of_predictor(self, device: int) -> str | None:
        if device < 0:
            return "/cpu:0"
        if tf.config.list_physical_devices("GPU"):
            return resolve_devices(f"/gpu:{device}")[0]
        training = self._tower_on(device)
        return None if training is None else training.output.device or None

    def _tower_on(self, device: int) -> Any:
        """Return the training tower on a device, or None."""
        return dict(zip(self.devices, self.towers.training(), strict=False)).get(device)


class SingleCostTrainer(TowerTrainer, tpk.SingleCostTrainer):
    """Train a model with one cost and one optimizer.

    A subclass may override `_setup_graph`, which defines a step, or `_make_get_grad_fn`, which computes the gradients
    of a tower.

    Attributes:
        COLOCATE_GRADIENTS_WITH_OPS, GATE_GRADIENTS, AGGREGATION_METHOD: options of `tf.gradients` for gradients of
            `_make_get_grad_fn`.
        XLA_COMPILE: whether to compile towers with XLA.
        default_input: the class of the input source for a data flow.

    Example:
        ```python
        class MyTrainer(SingleCostTrainer):
            def _setup_graph(self, input, get_cost_fn, get_opt_fn):
                with TowerContext("", is_training=True):
                    gradients = self._make_get_grad_fn(input, get_cost_fn, get_opt_fn)()
                    self.train_op = get_opt_fn().apply_gradients(gradients, name="train_op")
                return []
        ```
    """

    COLOCATE_GRADIENTS_WITH_OPS = True
    GATE_GRADIENTS = False
    AGGREGATION_METHOD = tf.AggregationMethod.DEFAULT
    XLA_COMPILE = False
    default_input: Any = QueueInput

    @also_spelled({"inputs_desc": "input_signature"})
    def setup_graph(  # type: ignore[override]
        self,
        input_signature: Sequence[Any],
        input: tpk.InputSource,
        get_cost_fn: Callable[..., Any],
        get_opt_fn: Callable[[], Any],
    ) -> None:
        """Build the towers and the train op.

        Args:
            input_signature: a `tf.TensorSpec` for each input of the model.
            input: the input source.
            get_cost_fn: takes the input tensors and returns the cost.
            get_opt_fn: returns the optimizer; called once.

        Raises:
            TrainerStateError: the graph has already been set up.
            InputError, TowerError, ConfigError: an argument is invalid.
        """
        if self._tower_func is not None:
            raise TrainerStateError(f"the graph of this {type(self).__name__} is already set up. Create a new trainer.")
        if self.XLA_COMPILE:
            get_cost_fn = compiled_by_xla(get_cost_fn)
        tower_func = self.make_tower_func(get_cost_fn, input_signature)
        if not isinstance(input, tpk.InputSource):
            raise InputError(
                f"{type(self).__name__}: the input is {input!r}; expected an InputSource, e.g. QueueInput(df)"
            )
        self.resolve_plugins()
        self.join()
        if self.strategy.is_server:
            return
        with self.phases.enter("setup_graph"), self.graph.as_default():
            self.tower_func = tower_func
            source = self.input_source = self._prepare_input(input)
            self.register_callback(self._setup_input(tower_func.input_signature, source))
            self.register_callback(self._setup_graph(source, tower_func, functools.cache(get_opt_fn)) or [])

    def setup_model(self, config: TrainConfig) -> None:
        """Call `setup_graph` with the model and data of a configuration.

        Args:
            config: the configuration.

        Raises:
            ConfigError: the configuration has no model or no data.
        """
        optimizer = config.optimizer
        self.setup_graph(
            self._model_of(config).get_input_signature(),
            apply_default_prefetch(self._data_of(config), self),
            config.model.build_graph,
            config.model.get_optimizer if optimizer is None else lambda: optimizer,
        )

    def _setup(self) -> None:
        self.setup_model(self.config)

    def _prepare_input(self, source: tpk.InputSource) -> tpk.InputSource:
        """Adapt the input source to the devices and processes."""
        prepared = self.strategy.prepare_input(source)
        prepared.check_has_data()
        return prepared

    def _setup_input(self, input_signature: Sequence[Any], input: tpk.InputSource) -> list[Any]:
        """Set up the input source and return its callbacks."""
        return list(input.setup(input_signature))

    def _setup_graph(
        self, input: tpk.InputSource, get_cost_fn: TowerFunc, get_opt_fn: Callable[[], Any]
    ) -> Sequence[Any] | None:
        """Build the towers, set `train_op`, and return callbacks."""
        get_inputs, build_tower = input.get_input_tensors, get_cost_fn
        if type(self)._make_get_grad_fn is not SingleCostTrainer._make_get_grad_fn:
            own = _OwnGradients(self, input, get_cost_fn, get_opt_fn)
            build_tower, get_opt_fn = own.build_tower, own.get_optimizer
        (self.train_op,) = self.strategy.build(build_tower, get_inputs, [tpk.Objective(get_opt_fn)])
        return self.strategy.callbacks()

    def _make_get_grad_fn(
        self, input: tpk.InputSource, get_cost_fn: TowerFunc, get_opt_fn: Callable[[], Any]
    ) -> Callable[[], Any]:
        """Return a function that builds a tower and returns its pairs of gradient and variable.

        It is called in a `TowerContext`, and returns None in an inference tower. The gradients of an override are still
        reduced and applied by the trainer's strategy.
        """

        def get_gradients() -> Any:
            tower = get_current_tower_context()
            if tower is None:
                raise TowerError("the gradients of a tower must be built within a TowerContext")
            cost = get_cost_fn(*input.get_input_tensors())
            if not tower.is_training:
                return None
            cost = tpk.Objective(get_opt_fn).cost_in(cost)  # checks it
            get_variables = tower.get_collection_in_tower if tower.has_own_variables else tf.compat.v1.get_collection
            pairs = get_opt_fn().compute_gradients(
                cost,
                var_list=get_variables(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES),
                gate_gradients=self.GATE_GRADIENTS,
                colocate_gradients_with_ops=self.COLOCATE_GRADIENTS_WITH_OPS,
                aggregation_method=self.AGGREGATION_METHOD,
            )
            return [(gradient, variable) for gradient, variable in pairs if gradient is not None]

        return get_gradients


class _OwnGradients:
    """Lets a strategy reduce and apply the gradients that a custom trainer computes while it builds a tower."""

    def __init__(
        self, trainer: SingleCostTrainer, input: tpk.InputSource, tower_func: TowerFunc, get_opt_fn: Callable[[], Any]
    ) -> None:
        self._tower_func = tower_func
        self._get_opt_fn = get_opt_fn
        self._of_costs: dict[str, list[tuple[Any, Any]]] = {}
        # The strategy has already taken the inputs of the tower.
        self._inputs: list[Any] = []
        taken = tpk.TensorInput(lambda: self._inputs)
        taken.setup(input.signature)
        self._get_gradients = trainer._make_get_grad_fn(taken, tower_func, get_opt_fn)

    def build_tower(self, *inputs: Any) -> Any:
        """Build a tower with these inputs, keep its gradients, and return its cost."""
        self._inputs = list(inputs)
        count = len(self._tower_func.towers)
        gradients = self._get_gradients()
        built = self._tower_func.towers[count:]
        if len(built) != 1:
            raise TowerError(
                f"the result of _make_get_grad_fn called get_cost_fn {len(built)} times; expected once for each tower"
            )
        cost = tpk.Objective(self._get_opt_fn).cost_in(built[0].output)  # checks it
        self._of_costs[cost.name] = list(gradients)
        return cost

    def get_optimizer(self) -> Any:
        """Return the optimizer, which finds these gradients."""
        return _Computed(self._get_opt_fn(), self._of_costs)


class _Computed(ProxyOptimizer):
    """An optimizer for gradients that have already been computed."""

    def __init__(self, opt: Any, of_costs: dict[str, list[tuple[Any, Any]]]) -> None:
        super().__init__(opt)
        self._of_costs = of_costs

    def compute_gradients(self, loss: Any, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the gradients of a cost."""
        return self._of_costs[loss.name]


def apply_default_prefetch(input_source_or_dataflow: Any, trainer: SingleCostTrainer) -> tpk.InputSource:
    """Return the input source for training on the given data.

    A data flow is put into a queue, or fed if that is the trainer's default. With several towers, the data is staged on
    their devices.

    Args:
        input_source_or_dataflow: a data flow, or an input source.
        trainer: the trainer.
    """
    source = input_source_or_dataflow
    if not isinstance(source, tpk.InputSource):
        source = trainer.default_input(source)
        logger.info("The data flow is read by a %s.", type(source).__name__)
    is_staged = source.is_fed or isinstance(source, tpk.StagingInput | tpk.DummyConstantInput)
    if len(trainer.devices) > 1 and not is_staged:
        source = StagingInput(source)
        logger.info("The input of the towers is staged by a StagingInput.")
    return source
