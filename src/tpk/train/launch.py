"""Launching: from a description of a run to the run, and from a name to a trainer."""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from functools import partial
from typing import Any

import attrs

from tpk.errors import ConfigError, PluginError, short_tracebacks
from tpk.other_libraries import OPTIONS
from tpk.plugin.catalog import get_catalog, unknown_plugin
from tpk.plugin.creation import Use, also_spelled
from tpk.train.run_file.write import run_data, run_file_text
from tpk.train.tower_trainer import SingleCostTrainer, TowerTrainer
from tpk.train.train_config import TrainConfig
from tpk.train.trainer import Trainer, default_callbacks

_TRAINER_OPTIONS = ("precision", "xla", "steps_per_run")
"""The options of a `SingleCostTrainer` in addition to its strategy."""

_NOT_OF_TRAIN = ("model", "dataflow", "data", "overfit_batches", "steps_per_run", "extra_callbacks")
"""The options of a config that are not passed to `Trainer.train_with_defaults` as they are."""

imported_for: ContextVar[str] = ContextVar("imported_for", default="")
"""The run file whose modules are imported at the moment; empty if none is."""


@short_tracebacks
@also_spelled(
    **{name: text for name, text in OPTIONS.items() if name != "trainer"},
    **{field.name: f"write tpk.TrainConfig({field.name}=...)." for field in attrs.fields(TrainConfig)},
)
def launch_train_with_config(config: TrainConfig, trainer: Any = "SimpleTrainer") -> TowerTrainer:
    """Train a model as described by `config`, and return the trainer.

    All names are resolved before the first op is built, and before any other process is met.

    Args:
        config: the run.
        trainer: the trainer, as for `make_trainer`: a `TowerTrainer` whose ``setup_graph`` takes the four parts of a
            config (input signature, input source, a function that returns the cost, one that returns the optimizer),
            such as any `SingleCostTrainer`.

    Returns:
        The trainer after the training: its `history` has the statistics, its `run_dir` the checkpoints.

    Raises:
        ConfigError: if something in the config is missing or contradictory, or the trainer needs other arguments.
        PluginError: if something that it names cannot be used.

    Example:
        ```python
        trainer = tpk.launch_train_with_config(config, "SimpleTrainer")
        trainer.history.plot("cost")
        tpk.launch_train_with_config(config, tpk.use("single", devices=["/cpu:0"]))
        ```

        In a notebook, make the trainer first, so that you have its history after an interruption, too.

        ```python
        trainer = tpk.make_trainer("SimpleTrainer")
        tpk.launch_train_with_config(config, trainer)
        ```
    """
    if not isinstance(config, TrainConfig):
        raise ConfigError(
            f"launch_train_with_config got a {type(config).__name__} instead of a tpk.TrainConfig. Write "
            "tpk.launch_train_with_config(tpk.TrainConfig(model=..., dataflow=...), 'SimpleTrainer')."
        )
    if imported_for.get():
        raise ConfigError(
            f"this module would train while it is imported, because {imported_for.get()} names an object in it. Put "
            "the call that trains under `if __name__ == '__main__':`."
        )
    data = run_data(config, trainer)  # Before plugins change it: they will do so again when the run is repeated.
    runner = _check_can_run(make_trainer(trainer))
    runner.hooks.autoload()
    config = _made(config)
    runner.hooks.hook.tpk_configure(config=config)
    extra = default_callbacks(runner.hooks, config) if config.extra_callbacks is None else config.extra_callbacks
    if config.steps_per_run is not None:
        runner.loop.set_steps_per_run(config.steps_per_run)
    runner.train_with_defaults(
        build=partial(_build, config, runner),
        extra_callbacks=extra,
        run_file=run_file_text(data),
        describe=config.describe(),
        **attrs.asdict(config, recurse=False, filter=attrs.filters.exclude(*_NOT_OF_TRAIN)),
    )
    return runner


def make_trainer(trainer: Any, /, **options: Any) -> Trainer:
    """Return a trainer by its name or class.

    Args:
        trainer: the name of a trainer (``tpk plugins --kind trainer`` lists them), ``"module:attr"``, a class, or
            `tpk.use(name, **options)`; the name of a **strategy**, for a `SingleCostTrainer` with this strategy; or a
            trainer, which is returned unchanged.
        options: the keyword arguments of the trainer; with the name of a strategy, those of the strategy and
            `precision`, `xla` and `steps_per_run`.

    Raises:
        PluginError: if it is not a trainer, or cannot be used.

    Example:
        ```python
        trainer = tpk.make_trainer("MultiObjectiveTrainer", strategy="replicated")
        trainer.setup_graph(signature, source, build_graph, objectives)
        trainer.train_with_defaults(steps_per_epoch=100, max_epoch=10)
        ```
    """
    if isinstance(trainer, str | Use):
        named = Use(trainer) if isinstance(trainer, str) else trainer
        trainer = attrs.evolve(named, options={**named.options, **options})
        strategy = strategy_of(trainer)
        if strategy is not None:
            own = {name: value for name, value in trainer.options.items() if name not in strategy.options}
            return SingleCostTrainer(strategy, **own)
    elif options and inspect.isclass(trainer):
        trainer = trainer(**options)
    elif options:
        raise PluginError(f"{trainer!r} is already a trainer, and takes no options: {options}")
    made = get_catalog().resolve("trainer", trainer)
    if not isinstance(made, Trainer):
        raise PluginError(f"{made!r} is not a trainer: expected a tpk.Trainer, or its class or name.")
    return made


def _check_can_run(trainer: Trainer) -> TowerTrainer:
    """Return the trainer after checking that a config has all arguments of its `setup_graph`.

    Raises:
        ConfigError: if not; the message has the arguments.
    """
    kind = type(trainer).__name__
    if not isinstance(trainer, TowerTrainer) or type(trainer).setup_graph is TowerTrainer.setup_graph:
        raise ConfigError(
            f"a TrainConfig describes a single-cost model, but {kind} has no setup_graph for one. Create it with "
            "tpk.make_trainer(...), and call its train()."
        )
    signature = inspect.signature(trainer.setup_graph)
    try:
        signature.bind(input_signature=None, input_source=None, get_cost=None, get_optimizer=None)
    except TypeError as error:
        raise ConfigError(
            f"a TrainConfig describes a single-cost model, but {kind} needs more: {kind}.setup_graph{signature}. "
            "Create it with tpk.make_trainer(...), call setup_graph, and then train()."
        ) from error
    return trainer


def _made(config: TrainConfig) -> TrainConfig:
    """Return a config with its names replaced by objects, except the names of plugins."""
    made = {}
    for name in ("model", "dataflow", "data", "session_creator", "session_init"):
        value = getattr(config, name)
        if isinstance(value, str) and name != "session_init":  # There, a string is the path of a checkpoint.
            value = Use(value)
        if isinstance(value, Use):
            made[name] = get_catalog().make(value)
    return attrs.evolve(config, **made) if made else config


def _build(config: TrainConfig, runner: TowerTrainer) -> None:
    """Build the graph of a config, from its model and its data."""
    model: Any = config.model
    # Not `config.dataflow or ()`: a flow may not know its length, and an array has no truth value.
    dataflow: Any = () if config.dataflow is None else config.dataflow
    source: Any = config.data if config.data is not None else runner.default_input(dataflow)
    if config.overfit_batches is not None:
        source.keep_first(config.overfit_batches)
    if config.seed is not None:
        source.seed(config.seed)
    runner.setup_graph(
        input_signature=model.get_input_signature(),
        input_source=source,
        get_cost=model.build_graph,
        get_optimizer=model.get_optimizer,
    )


def strategy_of(trainer: Use) -> Use | None:
    """Return the strategy whose name is given for a trainer, without the options of the trainer; None for a trainer.

    Raises:
        UnknownPluginError: if the name is neither that of a trainer nor that of a strategy.
    """
    if ":" in trainer.name:
        return None
    entries = get_catalog().entries()
    kinds = {entry.kind for entry in entries if entry.name == trainer.name}
    if not kinds & {"trainer", "strategy"}:
        raise unknown_plugin(("trainer", "strategy"), trainer.name, entries)
    if "trainer" in kinds:
        return None
    options = {name: value for name, value in trainer.options.items() if name not in _TRAINER_OPTIONS}
    return attrs.evolve(trainer, options=options)
