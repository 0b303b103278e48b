"""Configuration of a run, for `launch_train_with_config`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from attrs import validators

from tpk.argument_checks import check_flags, check_one_of
from tpk.dataflow.base import check_iterable
from tpk.errors import ConfigError
from tpk.input_source.base import InputSource
from tpk.other_libraries import OPTIONS
from tpk.plugin.creation import Use, also_spelled
from tpk.plugin.run_settings import FOREVER
from tpk.session.creator import as_session_creator
from tpk.train.epoch import as_count
from tpk.train.model_desc import ModelDesc
from tpk.train.run.run_directory import RESUME

Plugins = Sequence[Any]


def _count(name: str, minimum: int, default: int | None = None) -> Any:
    """Return an attribute that is a whole number, or None if that is the default."""

    def convert(value: Any) -> int | None:
        return None if value is default is None else as_count(f"TrainConfig({name}={value!r})", value, minimum)

    return attrs.field(default=default, converter=convert)


def _as_callbacks(value: Plugins | None) -> Plugins:
    return () if value is None else value


def _check_creator(config: TrainConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, Use):
        as_session_creator(value)


def _check_list(config: TrainConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"TrainConfig({attribute.name}={value!r}): expected a list, e.g. [{value!r}].")


def _is_named(attribute: attrs.Attribute[Any], value: Any) -> bool:
    """Return whether a value is given as ``"module:attr"``, to be created when the run starts.

    Raises:
        ConfigError: if it is another string.
    """
    name = value.name if isinstance(value, Use) else value
    if not isinstance(name, str):
        return False
    if ":" not in name:
        raise ConfigError(
            f"TrainConfig({attribute.name}={value!r}): expected 'module:attr', such as 'my_model:Model', or "
            "tpk.use('module:attr', option=value)."
        )
    return True


def _check_model(config: TrainConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, ModelDesc) or _is_named(attribute, value):
        return
    if isinstance(value, type) and issubclass(value, ModelDesc):
        remedy = f"Write model={value.__name__}(), an instance of the class"
    elif type(value).__module__.partition(".")[0] in ("keras", "tf_keras"):
        remedy = "Call a Keras model in the build_graph of a ModelDesc; see tpk_keras.KerasModel"
    else:
        remedy = "Derive a class from tpk.ModelDesc, with the methods inputs, build_graph and optimizer"
    raise ConfigError(f"TrainConfig(model={value!r}): expected a tpk.ModelDesc. {remedy}.")


def _check_dataflow(config: TrainConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    if _is_named(attribute, value):
        return
    if isinstance(value, InputSource):
        raise ConfigError(f"TrainConfig(dataflow=...): a {type(value).__name__} is an input source. Write data=... .")
    check_iterable(value, "TrainConfig(dataflow=...)")


def _check_data(config: TrainConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not (isinstance(value, InputSource) or _is_named(attribute, value)):
        raise ConfigError(
            f"TrainConfig(data=...): expected a tpk.InputSource, not a {type(value).__name__}. Write dataflow=... for "
            "an iterable of datapoints, or data=tpk.QueueInput(...)."
        )


def _check_path(config: TrainConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, str | os.PathLike | None):
        raise ConfigError(f"TrainConfig: {attribute.name} must be a path, not {value!r}")


@also_spelled(**OPTIONS)
@attrs.define(kw_only=True)
class TrainConfig:
    """How a single-cost model is trained.

    Wherever a plugin is expected, it may be an instance, a class, a name, ``"module:attr"``, or
    `tpk.use("name", **options)`. The model and the data may be given as ``"module:attr"`` or `tpk.use` of that: a class
    or a function is called with the options each time a run starts. Such a run can be repeated from the ``config.toml``
    that it writes; see `read_run_file`.

    Attributes:
        model: the model.
        dataflow: any iterable of datapoints. The trainer chooses its input source.
        data: an `InputSource`, instead of `dataflow`.
        callbacks: called during the training; None for none.
        extra_callbacks: called after `callbacks`; None for the defaults: `MovingAverageSummary`, `EpochMeans`,
            `LearningRateMonitor`, `ThroughputTracker`, `ProgressBar`, `MergeAllSummaries`, `RunUpdateOps`, and the
            callbacks that plugins add.
        monitors: receive the statistics; None for the defaults: `TFEventWriter`, `JSONWriter`, `ScalarPrinter`.
        extra_monitors: added to `monitors` or the defaults.
        session_creator: creates the session: a `SessionCreator`, or one of TensorFlow's, such as
            `tf.compat.v1.train.ChiefSessionCreator`; None for a new session.
        session_config: `tf.compat.v1.ConfigProto` of that new session.
        session_init: initial values of variables: a `SessionInit`, a mapping of names to arrays, or the path of a
            checkpoint, from which only the weights are restored, and not ``learning_rate``, ``global_step`` and the
            state of optimizers (`SaverRestore(path)` restores everything).
        starting_epoch: the number of the first epoch.
        steps_per_epoch: the number of steps in an epoch, with any strategy; None for one pass over the data, which is
            its length divided by the number of towers. The log says how many steps that is. 0: epochs of callbacks
            only.
        max_epoch: the number of the last epoch; without it, the run goes on until it is stopped.
        steps_per_run: the number of steps in one run of the session, for small models whose steps cost less than a
            call of TensorFlow; see `tpk.session.many_steps`. None leaves it to the trainer.
        overfit_batches: train only on this many first batches of the data, as a test: a correct model memorizes them.
            This is the number for all processes together, so it must be at least the number of processes. Evaluations
            have their own data. (Without a config, use ``tpk.CacheData(tpk.FixedSizeData(flow, k))``.)
        run_dir: the directory for the files of the run; None for ``runs/<script>/<timestamp>``.
        resume: ``"auto"`` resumes from the newest complete checkpoint in `run_dir`, if any; ``"must"`` requires one;
            ``"never"`` requires a `run_dir` without a run.
        seed: the random seed of the graph, of the data unless it has its own, and of the global generators of Python
            and NumPy. Two runs with the same seed give the same bits; `tpk.graph.determinism` lists the exceptions.
            None for a different seed in each run. A flow object that was iterated before continues from there, so
            give each run its own.
        deterministic: whether TensorFlow must use deterministic kernels, and an update whose order is random is an
            error; see `tpk.graph.determinism`. It needs a seed.

    Raises:
        ConfigError: if a value is invalid, or an option has its name from another system (this is also a `TypeError`).
            The message names the option, and what to write.

    Example:
        ```python
        config = tpk.TrainConfig(model=Linear(), dataflow=batches, callbacks=["ModelSaver"], max_epoch=5)
        tpk.launch_train_with_config(config, "SimpleTrainer")
        ```
    """

    model: ModelDesc | str | Use = attrs.field(validator=_check_model)
    dataflow: Iterable[Any] | Use | None = attrs.field(default=None, validator=validators.optional(_check_dataflow))
    data: InputSource | str | Use | None = attrs.field(default=None, validator=validators.optional(_check_data))
    callbacks: Plugins = attrs.field(default=(), converter=_as_callbacks, validator=_check_list)
    extra_callbacks: Plugins | None = attrs.field(default=None, validator=validators.optional(_check_list))
    monitors: Plugins | None = attrs.field(default=None, validator=validators.optional(_check_list))
    extra_monitors: Plugins = attrs.field(default=(), validator=_check_list)
    session_creator: Any = attrs.field(default=None, validator=_check_creator)
    session_config: Any = None
    session_init: Any = None
    starting_epoch: int = _count("starting_epoch", 1, default=1)
    steps_per_epoch: int | None = _count("steps_per_epoch", 0)
    max_epoch: int = _count("max_epoch", 0, default=FOREVER)
    steps_per_run: int | None = _count("steps_per_run", 1)
    overfit_batches: int | None = _count("overfit_batches", 1)
    run_dir: str | os.PathLike[str] | None = attrs.field(default=None, validator=_check_path)
    resume: str = attrs.field(
        default="never", validator=lambda config, _, value: check_one_of(config, RESUME, resume=value)
    )
    seed: int | None = _count("seed", 0)
    deterministic: bool = attrs.field(
        default=False, validator=lambda config, _, value: check_flags(config, deterministic=value)
    )

    def __attrs_post_init__(self) -> None:
        if (self.data is None) == (self.dataflow is None):
            raise ConfigError(
                "TrainConfig needs either dataflow (any iterable of datapoints) or data (a tpk.InputSource); "
                f"got {'both' if self.data is not None else 'neither'}."
            )

    def describe(self) -> dict[str, Any]:
        """Return the options that the trainer does not know, for ``config.json``."""
        names = ("model", "session_creator", "run_dir", "resume", "seed", "deterministic", "overfit_batches")
        return {name: getattr(self, name) for name in names}
