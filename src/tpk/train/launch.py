"""From a description of a run to the run."""

from __future__ import annotations

import inspect
import random
from contextlib import nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.errors import ConfigError, UnknownPluginError
from tpk.graph.determinism import check_updates_are_ordered, deterministic_ops
from tpk.input_source.base import InputSource
from tpk.plugin import Use, get_catalog
from tpk.train.config import TrainConfig
from tpk.train.tower_trainer import SingleCostTrainer


def launch_train_with_config(config: TrainConfig, trainer: Any = "SimpleTrainer") -> None:
    """Train as `config` says.

    Args:
        config: the run.
        trainer: who trains: a `SingleCostTrainer`, a class, the name of a trainer or ``"module:attr"``, the name of a
            **strategy**, or `tpk.use(name, **options)` of either.

    Raises:
        ConfigError: if something in the config is missing or contradictory.
        PluginError: if something that it names cannot be used.

    Example:
        ```python
        tpk.launch_train_with_config(config, "SimpleTrainer")
        tpk.launch_train_with_config(config, tpk.use("single", devices=["/cpu:0"]))
        ```
    """
    runner = resolve_trainer(trainer)
    if runner.serve():
        return
    runner.hooks.hook.tpk_configure(config=config)
    # Not `config.dataflow or ()`: a flow need not know its length, and an array has no truth.
    dataflow = () if config.dataflow is None else config.dataflow
    source = config.data if config.data is not None else runner.default_input(dataflow)
    if config.seed is not None:
        _seed_everything(config.seed, runner, source)
    with deterministic_ops() if config.deterministic else nullcontext():
        _train(config, runner, source)


def _train(config: TrainConfig, runner: SingleCostTrainer, source: InputSource) -> None:
    model = config.model
    runner.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
    steps = _steps_per_epoch(config, runner)
    if config.deterministic:
        _check_determinism(runner)
    runner.train_with_defaults(
        callbacks=config.callbacks,
        extra_callbacks=config.extra_callbacks,
        monitors=config.monitors,
        session_creator=config.session_creator,
        session_config=config.session_config,
        session_init=config.session_init,
        steps_per_epoch=steps,
        starting_epoch=config.starting_epoch,
        max_epoch=config.max_epoch,
        run_dir=config.run_dir,
        resume=config.resume,
        config=config,
        describe={**runner.describe(), **config.describe(), "steps_per_epoch": steps},
    )


def _steps_per_epoch(config: TrainConfig, runner: SingleCostTrainer) -> int:
    """Return how many steps an epoch has; by default the length of the data, in the process that has the least."""
    if config.steps_per_epoch is not None:
        return config.steps_per_epoch
    sizes = runner.process_group.gather_object(
        "the lengths of the data", runner.input_source and runner.input_source.size
    )
    if not all(sizes):
        raise ConfigError(
            f"the data ({type(runner.input_source).__name__}) does not know its length, so an epoch has no natural "
            "end. Give TrainConfig(steps_per_epoch=...)."
        )
    return int(min(sizes))


def _seed_everything(seed: int, runner: SingleCostTrainer, source: InputSource) -> None:
    with runner.graph.as_default():
        tf.compat.v1.set_random_seed(seed)
    source.seed(seed)
    # What data code draws differs between processes; in the first one it is what it would be alone.
    own = seed + runner.process_group.rank
    random.seed(own)
    np.random.seed(own % 2**32)


def _check_determinism(runner: SingleCostTrainer) -> None:
    if not runner.strategy.is_reproducible:
        raise ConfigError(
            f"{type(runner.strategy).__name__} cannot be deterministic: its towers do not wait for each other. Use "
            "'replicated' or 'parameter_server', or leave TrainConfig(deterministic=True) out."
        )
    check_updates_are_ordered(runner.train_ops)


def resolve_trainer(trainer: Any) -> SingleCostTrainer:
    """Return the trainer that `trainer` means; the name of a strategy means a `SingleCostTrainer` with it.

    Raises:
        PluginError: if it means none.
        ConfigError: if it is no `SingleCostTrainer`.
    """
    if isinstance(trainer, str | Use) and _names_strategy(trainer if isinstance(trainer, str) else trainer.name):
        return SingleCostTrainer(strategy=trainer)
    resolved = get_catalog().resolve("trainer", trainer)
    if not isinstance(resolved, SingleCostTrainer) or inspect.isclass(resolved):
        raise ConfigError(
            f"a TrainConfig describes a single-cost model, and {resolved!r} is no SingleCostTrainer. "
            "Call its own train() instead."
        )
    return resolved


def _names_strategy(name: str) -> bool:
    if ":" in name:
        return False
    known = get_catalog().entries()
    trainers = {entry.name for entry in known if entry.kind == "trainer"}
    strategies = {entry.name for entry in known if entry.kind == "strategy"}
    if name not in trainers | strategies:
        raise UnknownPluginError(
            f"no trainer or strategy is called {name!r}. Trainers: {', '.join(sorted(trainers))}. "
            f"Strategies: {', '.join(sorted(strategies))}."
        )
    return name not in trainers
