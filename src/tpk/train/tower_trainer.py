"""Trainers whose model is a tower function: a strategy replicates it, and inference towers share its variables."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import attrs
import tensorflow as tf

from tpk.argument_checks import check_flags, check_one_of
from tpk.errors import InputError, PluginError, TowerError, TrainerStateError
from tpk.graph.objective import Objective
from tpk.graph.optimizers.loss_scale import with_loss_scale
from tpk.graph.signature import check_signature
from tpk.graph.tower_options import PRECISIONS, check_xla, compiled_by_xla, in_precision
from tpk.input_source.base import InputSource
from tpk.input_source.queue import QueueInput
from tpk.input_source.staging import StagingInput
from tpk.plugin.creation import also_spelled
from tpk.predict.online import OnlinePredictor, device_for, predictor_of
from tpk.tf_internals import building_for_xla, is_closed
from tpk.tower.context import PredictTowerContext
from tpk.tower.handle import TowerHandle, TowerHandles
from tpk.tower.tower_func import TowerFunc
from tpk.train.agreement import check_data_agreement
from tpk.train.trainer import Trainer

SETUP_SPELLINGS = {
    "inputs_desc": "input_signature",
    "input": "input_source",
    "get_cost_fn": "get_cost",
    "get_opt_fn": "get_optimizer",
}
"""The arguments of ``setup_graph`` by their names in tensorpack."""


class TowerTrainer(Trainer):
    """A trainer whose model is a `TowerFunc`.

    A subclass sets `tower_func`, and builds each training tower under a `TrainTowerContext`.

    Args:
        strategy: how a step is replicated: an instance, a class, a name, or `tpk.use(name, **options)`.
        precision: the dtype in which towers compute: ``"float32"``, ``"bfloat16"``, or ``"float16"``, which scales the
            cost. Variables stay ``float32``; see `tpk.graph.tower_options` and `tpk.graph.optimizers.loss_scale`.
        xla: whether towers and their gradients are compiled by XLA; see `tpk.graph.tower_options`.
        steps_per_run: the number of steps in one run of the session; see `tpk.session.many_steps`.

    Raises:
        ConfigError: if the precision is unknown, this TensorFlow has no XLA, or `steps_per_run` is not positive.
    """

    def __init__(
        self, strategy: Any = "single", precision: str = "float32", xla: bool = False, steps_per_run: int = 1
    ) -> None:
        super().__init__()
        self.loop.set_steps_per_run(steps_per_run)
        check_one_of(self, PRECISIONS, precision=precision)
        self.precision = precision
        check_flags(self, xla=xla)
        self.xla = xla
        if xla:
            check_xla()
        self._strategy = strategy
        self._tower_func: TowerFunc | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Options of the trainer that must be the same in all processes, as plain data for ``config.json``."""
        return {"precision": self.precision, "xla": self.xla, "steps_per_run": self.loop.steps_per_run}

    @property
    def tower_func(self) -> TowerFunc:
        """The tower function of the model.

        Raises:
            TrainerStateError: if it is not set yet.
        """
        if self._tower_func is None:
            raise TrainerStateError(
                f"this {type(self).__name__} has no tower function yet. Call setup_graph() first, or set tower_func."
            )
        return self._tower_func

    @tower_func.setter
    def tower_func(self, tower_func: TowerFunc) -> None:
        self._tower_func = tower_func

    @property
    def towers(self) -> TowerHandles:
        """The towers built so far; `towers.main` is the first training tower."""
        return TowerHandles() if self._tower_func is None else self._tower_func.towers

    @property
    def inputs(self) -> list[Any]:
        """The input tensors of the main training tower."""
        return self._main_tower().inputs

    def make_tower_func(self, func: Callable[..., Any], input_signature: Sequence[Any]) -> TowerFunc:
        """Return `func` as a tower function in the precision of this trainer, compiled by XLA if `xla` is set.

        Args:
            func: takes the input tensors, and returns the cost, or a dict of costs.
            input_signature: a `tf.TensorSpec` for each input.

        Raises:
            InputError, TowerError: if an argument is invalid.
        """
        if callable(func):
            func = in_precision(func, self.precision)
            func = compiled_by_xla(func) if self.xla else func
        return TowerFunc(func, input_signature)

    def setup_graph(self, *args: Any, **kwargs: Any) -> None:
        """Build the training towers and the train op; a subclass defines how, and with which arguments."""
        raise NotImplementedError(f"{type(self).__name__} has no setup_graph")

    def build_towers(
        self,
        input_signature: Sequence[Any],
        input_source: InputSource,
        func: Callable[..., Any],
        objectives: Sequence[Objective],
        groups: Sequence[Sequence[int]] = ((0,),),
    ) -> list[Any]:
        """Build the training towers and their train ops in the trainer's graph with its strategy.

        Args:
            input_signature: a `tf.TensorSpec(shape, dtype, name)` for each input of the model.
            input_source: provides the data.
            func: takes the input tensors, and returns the cost, or a dict of costs.
            objectives: the objectives to minimize.
            groups: the indices of the objectives that each train op minimizes; see `Strategy.build`.

        Returns:
            The train op of each group; an empty list in a process that only serves others.

        Raises:
            TrainerStateError: if towers were built before.
            InputError, TowerError, ConfigError: if an argument is invalid.
        """
        if self._tower_func is not None:
            raise TrainerStateError(f"the graph of this {type(self).__name__} is set up already. Create a new trainer.")
        signature = check_signature(input_signature)
        if not isinstance(input_source, InputSource):
            raise InputError(
                f"the input source is {input_source!r}; expected a tpk.InputSource. Wrap an iterable of datapoints in "
                "tpk.QueueInput or tpk.FeedInput."
            )
        self.resolve_plugins()
        self.join()
        if self.strategy.is_server:
            return []
        with self.phases.enter("setup_graph"):
            source = self.input_source = self._prepare_input(input_source)
            with self.graph.as_default():
                callbacks = source.setup(signature)
                self.tower_func = self.make_tower_func(func, signature)
                # XLA compiles for one device.
                self.loop.is_compiled = self.xla and self.strategy.num_replicas == self.strategy.world_size == 1
                with building_for_xla() if self.loop.is_compiled and self.loop.steps_per_run > 1 else nullcontext():
                    ops = self.strategy.build(self.tower_func, source.get_input_tensors, objectives, groups)
            if not isinstance(ops, Sequence) or len(ops) != len(groups):
                raise PluginError(
                    f"{type(self.strategy).__name__}.build returned {ops!r}; expected a list of train ops, one for "
                    f"each of the {len(groups)} groups of objectives"
                )
            self.register_callback([*callbacks, *self.strategy.callbacks()])
        return list(ops)

    def _prepare_input(self, source: InputSource) -> InputSource:
        """Let the strategy prepare the input source, which must be the same in all processes."""
        if self.strategy.world_size > 1:
            check_data_agreement(self, source)
            # The shares of data that each process shuffles differently would overlap.
            seed = self.strategy.process_group.broadcast_object("the seed of the data", secrets.randbits(31))
            if self.graph.seed is None:
                source.seed(seed)
        prepared = self.strategy.prepare_input(source)
        prepared.check_has_data()
        return prepared

    def scale_loss(self, objective: Objective) -> Objective:
        """Return the objective with a dynamic loss scale if the precision needs one, else as it is."""
        if self.precision != "float16":
            return objective
        name = f"{objective.name}/LossScale" if objective.name else "LossScale"
        return attrs.evolve(objective, get_optimizer=lambda: with_loss_scale(objective.get_optimizer(), name))

    def default_input(self, dataflow: Iterable[Any]) -> InputSource:
        """Return the input source for a plain dataflow.

        It is a `QueueInput`, inside a `StagingInput` if the strategy has towers on GPUs, so that datapoints are copied
        to them ahead of their step. To train without it, create the `QueueInput` yourself.
        """
        self.resolve_plugins()
        source = QueueInput(dataflow)
        return StagingInput(source) if self.strategy.stages_input else source

    @also_spelled({"tower": "device"})
    def get_predictor(
        self,
        input_names: Sequence[str],
        output_names: Sequence[str] | Mapping[str, str],
        device: str | int | None = None,
    ) -> OnlinePredictor:
        """Return a predictor that uses the current values of the training's variables in each call.

        The first call with a `device` builds an inference tower there. So call it before the graph is finalized, for
        example in a callback's `setup_graph`.

        Args:
            input_names: names of inputs in the signature, or of other tensors in the tower.
            output_names: names of tensors in the tower; or a mapping of keys to such names, for results that are dicts
                with these keys.
            device: a device string; the index of a training tower, for its device; -1 or ``"cpu"`` for the CPU; None to
                let TensorFlow place the ops.

        Raises:
            TrainerStateError: if the training is over; the message says how to predict with a checkpoint.
            TowerError: if the graph is already finalized, or the tower has no such tensors.
            InputError: if the outputs depend on an input that is not named.
            ConfigError: if the device does not exist, or names are not given as a list.
        """
        self._main_tower()
        self._check_not_over("get_predictor()")
        place = device_for(device, self.towers.training())
        name = "PredictTower" + "".join(filter(str.isalnum, place or ""))
        if name not in [tower.ns_name for tower in self.towers]:
            self.build_inference_tower(name, device=place)
        return predictor_of(self.towers[name], input_names, output_names, lambda: self._sess)

    def get_predictors(
        self, input_names: Sequence[str], output_names: Sequence[str] | Mapping[str, str], n: int
    ) -> list[OnlinePredictor]:
        """Return `n` predictors, placed on the devices of the training towers in turn; see `get_predictor`.

        Example:
            ```python
            predictors = trainer.get_predictors(["image"], ["probabilities"], 4)  # in setup_graph
            batched = tpk.MultiThreadAsyncPredictor(predictors, max_batch=16)
            ```
        """
        self._main_tower()
        count = len(self.towers.training())
        return [self.get_predictor(input_names, output_names, index % count) for index in range(n)]

    def build_inference_tower(
        self,
        ns_name: str,
        inputs: Sequence[Any] | None = None,
        device: str | None = None,
        vs_name: str | None = None,
    ) -> TowerHandle:
        """Build an inference tower that shares the variables of a training tower.

        Args:
            ns_name: its name scope, which must be new.
            inputs: its input tensors; by default new placeholders.
            device: a device string; by default TensorFlow places the ops.
            vs_name: the variable scope of the training tower; by default, the scope of the main one.

        Raises:
            TrainerStateError: if the training is over.
            TowerError: if the graph is already finalized, or a tower has the same name.
        """
        self._main_tower()
        self._check_not_over("build_inference_tower()")
        if self.graph.finalized:
            raise TowerError(
                f"the inference tower {ns_name!r} comes too late: the graph is finalized. Build it before train(), or "
                "in a callback's setup_graph."
            )
        if ns_name in [tower.ns_name for tower in self.towers]:
            raise TowerError(f"there is already a tower {ns_name!r}. Give the new one another name.")
        with (
            self.graph.as_default(),
            nullcontext() if device is None else tf.device(device),
            self.strategy.predict_context(ns_name)
            if vs_name is None
            else PredictTowerContext(ns_name=ns_name, vs_name=vs_name),
        ):
            self.tower_func(*(self.tower_func.placeholders() if inputs is None else inputs))
        tower: TowerHandle = self.towers[-1]
        return tower

    @property
    def is_over(self) -> bool:
        """Whether the training is over: its session was closed."""
        return self._sess is not None and is_closed(self._sess)

    def _check_not_over(self, what: str) -> None:
        if self.is_over:
            where = "<run directory>" if self.run_dir is None else str(self.run_dir)
            raise TrainerStateError(
                f"{what} comes too late: the training is over, and its session closed. Predict with what it saved: "
                f"tpk.OfflinePredictor(tpk.PredictConfig(model=..., session_init={where!r}, output_names=[...]))."
            )

    def _main_tower(self) -> TowerHandle:
        if self.towers.main is None:
            raise TrainerStateError(f"this {type(self).__name__} has no training tower yet. Call setup_graph() first.")
        return self.towers.main


class SingleCostTrainer(TowerTrainer):
    """Trains a model with one cost and one optimizer, on the devices and processes of its strategy.

    Example:
        ```python
        trainer = tpk.SingleCostTrainer(strategy="single")
        trainer.setup_graph(model.get_input_signature(), tpk.QueueInput(flow), model.build_graph, model.get_optimizer)
        trainer.train_with_defaults(callbacks=["ModelSaver"], steps_per_epoch=100, max_epoch=10)
        ```
    """

    @also_spelled(SETUP_SPELLINGS)
    def setup_graph(
        self,
        input_signature: Sequence[Any],
        input_source: InputSource,
        get_cost: Callable[..., Any],
        get_optimizer: Callable[[], Any],
    ) -> None:
        """Build the training towers and the train op in the trainer's graph.

        Args:
            input_signature: a `tf.TensorSpec(shape, dtype, name)` for each input of the model.
            input_source: provides the data; see `tpk.input_source`.
            get_cost: the tower function: takes the input tensors, returns the cost.
            get_optimizer: returns a `tf.compat.v1.train.Optimizer`.

        Raises:
            TrainerStateError: if the graph was set up before.
            InputError, TowerError, ConfigError: if an argument is invalid.
        """
        objective = self.scale_loss(Objective(get_optimizer))
        for train_op in self.build_towers(input_signature, input_source, get_cost, [objective]):
            self.train_op = train_op
