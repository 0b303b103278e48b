"""Evaluation during training: an inference tower beside the training towers, run over a data set of its own."""

from __future__ import annotations

import itertools
import logging
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.callbacks.inference.inferencers import Inferencer
from tpk.callbacks.triggers import ProxyCallback
from tpk.checkpoint.encoding import encode
from tpk.dataflow.base import check_iterable
from tpk.errors import CheckpointError, ConfigError, InputError, PeerError, TowerError, add_note, in_one_line
from tpk.graph.devices import Devices, physical_of_logical_gpus, resolve_devices
from tpk.input_source.base import FlowInput, InputSource
from tpk.input_source.feed import FeedInput
from tpk.input_source.tensor import TensorInput
from tpk.plugin import Callback, HookManager
from tpk.plugin.creation import also_spelled
from tpk.plugin.step import StepHooks
from tpk.plugin.trainer import StrategyProtocol
from tpk.session.hooked import HookedSession
from tpk.tower.handle import TowerHandle
from tpk.tower.tower_func import TowerFunc

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

DEFAULT_TOWER_NAME = "InferenceTower"


class InferenceRunner(Callback):
    """Runs the model over a data set at the end of each epoch, and reports what the inferencers make of it.

    The model is built once more as an inference tower, which shares the variables of the training. For other times,
    wrap it in a `PeriodicTrigger`; to evaluate the moving averages of the weights, in `WithAveragedWeights`.

    Several runners evaluate several data sets; the statistics of each need names of their own, as the `prefix` of most
    inferencers gives them.

    In a training of several processes each of them evaluates its share of the data, and the statistics are those of all
    of it; see `Inferencer`. To evaluate in the chief alone, set `chief_only` of the runner to true.

    Args:
        input: the data: any iterable of datapoints, which can be iterated again and again, or an `InputSource`. One
            pass over it is made each time, to its end, whether or not it has a length.
        infs: one or more `Inferencer`s.
        tower_name: the name scope of the tower; by default ``InferenceTower``, and ``InferenceTower2`` and so on for
            further runners.
        tower_func: a `tpk.TowerFunc` that builds the tower, whose signature is that of the data; by default that of the
            trainer. It shares the variables of the training by their names. A trainer without towers needs one.
        device: the device of the tower; by default TensorFlow places the ops.
        sanity_batches: on how many batches everything is tried before the training starts, so that what is wrong is
            found then and not after an epoch; nothing of that is reported.
        shard_data: whether each of several processes takes its share of the data; otherwise all that it is given, and
            the statistics are those of what the processes have together.

    Attributes:
        max_batches: at how many batches a pass is broken off, in each process; None for whole passes. `DebugRun` sets
            it.

    Raises:
        ConfigError: if there is no inferencer, the data is empty, has no end, or can be iterated only once, or
            `tower_func` is none; when the training is set up, if neither the trainer nor the runner has a tower
            function, or two statistics have the same name.

    Example:
        ```python
        callbacks = [
            tpk.InferenceRunner(validation, [tpk.ScalarStats("cost"), tpk.ClassificationError()], sanity_batches=2),
            tpk.InferenceRunner(test, tpk.ClassificationError(summary_name="test_error")),
            tpk.InferenceRunner(pairs, tpk.ScalarStats("distance"), tower_func=tpk.TowerFunc(compare, pair_signature)),
        ]
        ```
    """

    chief_only = False

    def __init__(
        self,
        input: InputSource | Iterable[Any],
        infs: Inferencer | Sequence[Inferencer],
        tower_name: str | None = None,
        tower_func: TowerFunc | None = None,
        device: str | None = None,
        *,
        sanity_batches: int = 0,
        shard_data: bool = True,
    ) -> None:
        self._inferencers = _as_list(infs)
        for inferencer in self._inferencers:
            if not isinstance(inferencer, Inferencer):
                raise ConfigError(
                    f"InferenceRunner takes Inferencers, such as tpk.ScalarStats('cost'), and not {inferencer!r}."
                )
        if not self._inferencers:
            raise ConfigError("InferenceRunner was given no Inferencer, so it would report nothing.")
        if isinstance(sanity_batches, bool) or not isinstance(sanity_batches, int) or sanity_batches < 0:
            raise ConfigError(f"InferenceRunner(sanity_batches={sanity_batches!r}): expected a number of batches.")
        if tower_func is not None and not isinstance(tower_func, TowerFunc):
            raise ConfigError(
                f"{type(self).__name__}(tower_func={tower_func!r}): expected a tpk.TowerFunc. Write "
                "tpk.TowerFunc(function, input_signature), with a tf.TensorSpec for each input."
            )
        self._data = EvaluationData(input)
        self._tower_func = tower_func
        self._tower_name = tower_name
        self._device = device
        self._sanity_batches = sanity_batches
        self.max_batches: int | None = None
        self._shard_data = shard_data
        self._is_shared = False
        self._fetches: Any = None
        self._towers: list[TowerHandle] = []
        self._statistics: set[str] = set()

    def setup_graph(self, trainer: Any) -> None:
        """Build what evaluates.

        Raises:
            ConfigError: if there is no tower function, two statistics have the same name, or the statistics of several
                processes cannot be merged.
        """
        if self._tower_func is None and not trainer.towers.training():
            raise ConfigError(
                f"{type(self).__name__} builds a tower, but {type(trainer).__name__} has no tower function. "
                "Give the runner one: tower_func=tpk.TowerFunc(function, input_signature)."
            )
        self._is_shared = trainer.strategy.process_group.world_size > 1 and not self.chief_only
        for inferencer in self._inferencers:
            inferencer.trainer = trainer
            if self._is_shared and not inferencer.can_merge():
                raise ConfigError(
                    f"{type(inferencer).__name__} does not say how the statistics of "
                    f"{trainer.strategy.process_group.world_size} processes become one. Define its methods "
                    "state() and merge(states), as tpk.Inferencer documents "
                    "them, or evaluate in the chief alone: set chief_only of the InferenceRunner to True."
                )
        tower_func = self._tower_func or trainer.tower_func
        self._data.setup(trainer, tower_func.input_signature, self._is_shared, self._shard_data)
        self._build(trainer)
        names = [name for inferencer in self._inferencers for name in inferencer.statistics]
        self._claim(names)
        self._data.complete_graph(trainer)
        size = self._data.source.size
        batches = "batch" if size == 1 else "batches"
        logger.info(
            "%s: a pass is %s in %s",
            self._label,
            "all that the data has, whose length is unknown," if size is None else f"{size} {batches}",
            ", ".join(tower.ns_name for tower in self._towers),
        )

    def before_train(self, trainer: Any) -> None:
        """Start the data, and try the evaluation on the first batches, if that is wanted."""
        self._start(trainer)
        if self._sanity_batches:
            with _random_state_kept():
                try:
                    self._evaluate(self._sanity_batches)
                except Exception as error:
                    add_note(error, f"raised in the sanity pass of {self._label}, before the training starts")
                    raise
            logger.info("%s: the sanity pass over at most %d batches went well", self._label, self._sanity_batches)

    def trigger(self, trainer: TrainerProtocol) -> None:
        """Make one pass over the data, and report the statistics.

        Raises:
            InputError: if the data is empty, or has another length than it says.
            PeerError: if the evaluation of another process failed.
        """
        # In each process: the monitors of all but the chief keep the history only, for callbacks that decide by it.
        for name, value in self._evaluate(self.max_batches).items():
            trainer.monitors.put_scalar(name, value)

    def after_train(self, trainer: Any) -> None:
        """Stop the data.

        Raises:
            BaseException: the first failure of a callback of the data.
        """
        self._data.stop(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Return which pass over the data comes next, as far as that makes a difference."""
        return self._data.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._data.load_state_dict(state)

    # What a subclass overrides, to evaluate in another way.

    def _build(self, trainer: Any) -> None:
        """Build the tower, on the data."""
        inputs = self._data.get_input_tensors()
        tower = self._build_tower(trainer, self._free_name(trainer), inputs, self._device)
        # A batch has to be taken even if nothing that is fetched depends on it.
        self._fetches = (tf.group(*inputs), tower)

    def _start(self, trainer: Any) -> None:
        """Start the data."""
        self._data.start(trainer, [tower.ns_name for tower in self._towers])

    def _results(self, limit: int | None) -> Iterator[Any]:
        """Make a pass; each item is what the inferencers get of a batch."""
        for _, results in self._data.results(self._fetches, limit):
            yield results

    def _build_tower(self, trainer: Any, name: str, inputs: Sequence[Any] | None, device: str | None) -> Any:
        """Build an inference tower, and return what the inferencers fetch of it."""
        if self._tower_func is None:
            tower = trainer.build_inference_tower(name, inputs, device=device)
        else:
            if name in [each.ns_name for each in _towers_of(trainer)]:
                raise ConfigError(f"there is a tower {name!r} already. Give {self._label} another tower_name.")
            on_device = nullcontext() if device is None else tf.device(device)
            with on_device, trainer.strategy.predict_context(name):
                self._tower_func(*(self._tower_func.placeholders() if inputs is None else inputs))
            tower = self._tower_func.towers[-1]
        self._towers.append(tower)
        with tf.device(device), tf.name_scope(f"{name}/evaluation/"):
            return tuple(_fetches_of(inferencer, tower) for inferencer in self._inferencers)

    def _free_name(self, trainer: Any) -> str:
        """The name that was chosen, or the first default one that no tower has."""
        if self._tower_name is not None:
            return self._tower_name
        taken = [f"{tower.ns_name}/" for tower in _towers_of(trainer)]
        names = itertools.chain(
            [DEFAULT_TOWER_NAME], (f"{DEFAULT_TOWER_NAME}{number}" for number in itertools.count(2))
        )
        return next(name for name in names if not any(each.startswith(f"{name}/") for each in taken))

    @property
    def _label(self) -> str:
        """What it is called in messages, also where something else stands in for it."""
        kind = type(self).__name__
        name = self.plugin_name
        return name if name.startswith(kind) else f"{kind} in {name}"

    # How a pass goes.

    def _evaluate(self, limit: int | None) -> dict[str, float]:
        """Make a pass, of at most `limit` batches, and return the statistics."""
        count = self._evaluate_together(limit) if self._is_shared else self._evaluate_share(limit)
        if not count:
            raise InputError(
                f"the data of {self._label} delivered nothing, not even a first batch. If there are fewer datapoints "
                "than make a batch, keep them: BatchData(..., remainder=True)."
            )
        reported = [pair for inferencer in self._inferencers for pair in inferencer.after_inference().items()]
        self._claim([name for name, _ in reported])
        return dict(reported)

    def _evaluate_share(self, limit: int | None) -> int:
        """Let the inferencers have what this process has of the data; return how many batches that was."""
        for inferencer in self._inferencers:
            inferencer.before_inference()
        takers = [inferencer.on_fetches for inferencer in self._inferencers]
        count = 0
        for results in self._results(limit):
            for take, own in zip(takers, results):  # noqa: B905 - equal; hot
                take(own)
            count += 1
        return count

    def _evaluate_together(self, limit: int | None) -> int:
        """Do that in all processes, and let the inferencers have what all of them have found."""
        process_group = self.trainer.strategy.process_group
        count, failure = 0, None
        states: list[Any] = []
        try:
            count = self._evaluate_share(limit)
            states = [inferencer.state() for inferencer in self._inferencers]
        except Exception as error:  # The others wait for this process: it has to tell them.
            failure = error
        kinds = ", ".join(type(inferencer).__name__ for inferencer in self._inferencers)
        try:
            shares = process_group.gather_object(
                f"an evaluation by {kinds}", (count, states, in_one_line(failure) if failure else None)
            )
        finally:
            if failure is not None:
                raise failure
        failed = [f"rank {rank}: {what}" for rank, (_, _, what) in enumerate(shares) if what is not None]
        if failed:
            raise PeerError(
                f"the evaluation by {self._label} failed in another process, whose log tells more. {'; '.join(failed)}"
            )
        of_ranks = [states for _, states, _ in shares]
        for inferencer, own in zip(self._inferencers, zip(*of_ranks, strict=True), strict=True):
            inferencer.merge(own)
        return sum(count for count, _, _ in shares)

    def _claim(self, names: Sequence[str]) -> None:
        """Make sure that nobody else reports statistics of these names.

        Raises:
            ConfigError: if somebody does.
        """
        twice = {name for name in names if names.count(name) > 1}
        whose = f"two inferencers of {self._label}"
        for other in _runners(self.trainer):
            if not twice and other is not self:
                twice, whose = other._statistics & set(names), f"{other._label} and {self._label}"
        if twice:
            raise ConfigError(
                f"{whose} both report {', '.join(map(repr, sorted(twice)))}. Give the statistics of one of them other "
                'names: ScalarStats(..., prefix="test"), ClassificationError(summary_name="test_error").'
            )
        self._statistics.update(names)


def _fetches_of(inferencer: Inferencer, tower: TowerHandle) -> Any:
    try:
        return inferencer.get_fetches(tower)
    except TowerError as error:
        raise TowerError(f"{type(inferencer).__name__}: {error}") from error


def _towers_of(trainer: Any) -> list[TowerHandle]:
    """Find the towers of a trainer and of its runners, some of which are both's."""
    return [*trainer.towers, *(tower for runner in _runners(trainer) for tower in runner._towers)]


def _runners(trainer: Any) -> Iterator[InferenceRunner]:
    """Find the runners of a trainer, whatever stands in for them."""
    for plugin in trainer.hooks.plugins.values():
        while isinstance(plugin, ProxyCallback):
            plugin = plugin.cb
        if isinstance(plugin, InferenceRunner):
            yield plugin


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Let what happens within the context draw from the global generators without a trace."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _as_list(infs: Any) -> list[Inferencer]:
    # A text can be iterated, too.
    return list(infs) if isinstance(infs, Iterable) and not isinstance(infs, Inferencer | str) else [infs]


_SAID_FROM = 2**14
"""From how many batches on the log says that a pass of unknown length goes on."""


class EvaluationData:
    """Makes passes over a source with a session of its own, in which only the hooks of the source take part.

    A pass ends at the end of the data; a source that would repeat its data does not do so here. Of a source that has no
    end, but a size, a pass is that many batches.

    Args:
        input: any iterable of datapoints, or an `InputSource`.

    Attributes:
        source: the input source.

    Raises:
        ConfigError: if nothing can be evaluated on it: it is empty, has no end, or can be iterated only once.
    """

    def __init__(self, input: InputSource | Iterable[Any]) -> None:
        if not isinstance(input, InputSource):
            check_iterable(input, "an evaluation")
            if isinstance(input, Iterator):
                raise ConfigError(
                    f"an evaluation iterates its data anew in each pass, but {input!r} is a one-shot iterator. Give "
                    "DataFromGenerator the function that makes it, or a list."
                )
        self.source = input if isinstance(input, InputSource) else FeedInput(input, infinite=False)
        self._has_end = self.source.end_after_each_pass()
        self._check_size()
        # The callbacks of the data have hooks of their own: they run with the steps of the evaluation.
        self._hooks = HookManager()
        self._before_run: Sequence[Callable[[Any], Any]] = ()
        self._session: HookedSession | None = None
        self._is_at_the_beginning = True
        self._is_between_passes = False

    def setup(self, trainer: Any, signature: Sequence[Any], is_shared: bool, shard: bool) -> None:
        """Set the source up, in the graph.

        Args:
            trainer: the trainer.
            signature: a `tf.TensorSpec` for each component.
            is_shared: whether all processes of the training take part.
            shard: whether each of them then takes its share of the data.
        """
        seed = trainer.graph.seed
        if is_shared:
            # Shares of what is shuffled differently in each process would overlap.
            seed = trainer.strategy.process_group.broadcast_object(
                "the seed of the data of an evaluation", secrets.randbits(31) if seed is None else seed
            )
        if seed is not None:
            self.source.seed(int(seed) % 2**31)
        if is_shared and shard:
            try:
                self.source.shard(trainer.strategy.process_group.rank, trainer.strategy.process_group.world_size)
            except ConfigError as error:
                add_note(error, "or give the InferenceRunner shard_data=False: each process evaluates all it is given")
                raise
        callbacks = self.source.setup(signature)
        if self.source.left_out:
            logger.warning(
                "an evaluation leaves out the last %d datapoints of %s, which make no whole batch. To include them, "
                "give BatchData remainder=True, or make the first dimension of the inputs of a BatchQueueInput None.",
                self.source.left_out,
                self._kind,
            )
        if not is_shared:  # A share may be empty.
            self._check_size()
        self._hooks.register_all(callbacks)
        for callback in callbacks:
            callback.trainer = trainer

    def get_input_tensors(self) -> list[Any]:
        """Return the tensors of a batch, in the order of the signature."""
        return self.source.get_input_tensors()

    def complete_graph(self, trainer: Any) -> None:
        """Let the callbacks of the source add to the graph, once the towers are there."""
        self._hooks.hook.setup_graph(trainer=trainer)

    def start(self, trainer: Any, tower_names: Iterable[str]) -> None:
        """Start the data; called in `before_train`.

        Args:
            trainer: the trainer, with its session.
            tower_names: the name scopes of the towers that run along when batches are taken.

        Raises:
            ConfigError: if it has no end.
        """
        self._hooks.hook.before_train(trainer=trainer)
        model = FailuresOfModel(tower_names)
        step_hooks = attrs.evolve(
            self._hooks.compile_step(),
            translate_error=lambda error: model(error) or self._hooks.translate_error(error),
        )
        self._before_run = step_hooks.before_run
        self._session = HookedSession(trainer.sess, step_hooks)

    def stop(self, trainer: Any) -> None:
        """Stop the data; called in `after_train`.

        Raises:
            BaseException: the first failure of a callback of the data.
        """
        for failure in self._hooks.after_train(trainer):
            raise failure

    def results(self, fetches: Any, limit: int | None = None) -> Iterator[Any]:
        """Make a pass; each item is what a run of `fetches`, which must depend on the input tensors, has given.

        Args:
            fetches: as for `Session.run`.
            limit: after how many batches to break off.

        Raises:
            InputError: as `batches` does.
        """
        assert self._session is not None
        return self._batches(partial(self._session.run, fetches), limit)

    def batches(self, inputs: Any, limit: int | None = None) -> Iterator[Sequence[Any]]:
        """Make a pass; each item is a batch, as arrays in the order of the signature.

        Args:
            inputs: copies of the input tensors, in their order.
            limit: after how many batches to break off.

        Raises:
            InputError: if the data has a length, and it is not that.
        """
        assert self._session is not None
        if isinstance(self.source, FeedInput):
            return self._batches(self._fed, limit)
        return self._batches(partial(self._session.run, inputs), limit)

    def _fed(self) -> Sequence[Any]:
        """What would be fed to a run: the batch, without a run that would only hand it back."""
        (feed,) = self._before_run
        arrays: Sequence[Any] = feed(None).feed_dict.take()
        return arrays

    def _batches(self, take: Callable[[], Any], limit: int | None) -> Iterator[Any]:
        """Make a pass; each item is what `take` has returned, which takes the next batch.

        Args:
            take: raises `tf.errors.OutOfRangeError` at the end of the data.
            limit: after how many batches to break off.
        """
        if not self._is_at_the_beginning:
            self.source.reset_state()
        self._is_at_the_beginning = self._is_between_passes = False
        size, count = self.source.size, 0
        last = limit if self._has_end or limit is not None else size
        while count != last:
            try:
                result = take()
            except tf.errors.OutOfRangeError as end:
                # Were it to leave here, the loop would take it for the end of the training's own data.
                if size is not None and count < size:
                    raise self._wrong_size(f"ended after {count}") from end
                self._is_between_passes = True
                return
            count += 1
            if size is not None and count > size:
                raise self._wrong_size("goes on after these")
            if size is None and count >= _SAID_FROM and count & (count - 1) == 0:
                logger.warning(
                    "an evaluation has had %d batches so far; its data, %s, has no length. If it has no end either, "
                    "limit it: FixedSizeData(flow, size, keep_state=False).",
                    count,
                    self._kind,
                )
            yield result

    def state_dict(self) -> dict[str, Any]:
        """Return which pass comes next, for data that is another one in each pass, such as shuffled data.

        It is empty before the first pass, and for data of which nobody but an iteration through all that was delivered
        would find the place again: for an evaluation that is too dear.
        """
        if not self._is_between_passes or self.source.position is None:
            return {}
        position = self.source.position.state_dict()
        if _needs_replay(position):
            return {}
        try:
            encode(position)
        except CheckpointError:  # What a loader of others keeps must not prevent checkpoints of the training.
            return {}
        return {"position": position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned; the next pass is the one that would have come next."""
        if "position" in state and self.source.position is not None:
            self.source.position.load_state_dict(state["position"])
            self._is_at_the_beginning, self._is_between_passes = False, True

    @property
    def _kind(self) -> str:
        """What the data is, for messages."""
        kind = type(self.source).__name__
        return f"{kind} of {type(self.source.flow).__name__}" if isinstance(self.source, FlowInput) else kind

    def _wrong_size(self, what: str) -> InputError:
        return InputError(
            f"the data of an evaluation, {self._kind}, says that it has {self.source.size} datapoints, but {what}. "
            "Give it the length that it really has, or none."
        )

    def _check_size(self) -> None:
        if self.source.size == 0:
            raise ConfigError(
                f"an evaluation needs data, but {self._kind} has length 0. If there are fewer datapoints than make a "
                "batch, keep them: BatchData(..., remainder=True)."
            )
        if self.source.size is None and isinstance(self.source.innermost, TensorInput):
            raise ConfigError(
                f"an evaluation would never end: {type(self.source.innermost).__name__} makes tensors without end. "
                "Give it a size, how many make a pass: TensorInput(..., size=100)."
            )


class FailuresOfModel:
    """Tells what only looks like the end of the data: an op of the model that is out of some range.

    Args:
        tower_names: the name scopes of the towers.
    """

    def __init__(self, tower_names: Iterable[str]) -> None:
        self._prefixes = tuple(f"node {name}/" for name in tower_names)

    def __call__(self, error: BaseException) -> BaseException | None:
        """Return what to raise in place of `error`, or None if the model has no part in it."""
        if not isinstance(error, tf.errors.OutOfRangeError):
            return None
        if not any(prefix in error.message for prefix in self._prefixes):
            return None
        return TowerError(
            f"an evaluation failed in the model, and not because its data ended: {error.message}. Of the training "
            "tower, the same would end the training."
        )


def _needs_replay(position: Any) -> bool:
    """Whether somewhere in a position the datapoints were counted, because the data does not tell its own."""
    if isinstance(position, Mapping):
        return "history" in position or any(map(_needs_replay, position.values()))
    return isinstance(position, list | tuple) and any(map(_needs_replay, position))


@also_spelled({"gpus": "devices"})
class DataParallelInferenceRunner(InferenceRunner):
    """An `InferenceRunner` with a tower on each of several devices, which evaluate different batches at the same time.

    The statistics are those of an `InferenceRunner`: every batch is evaluated once, and the inferencers get the results
    in the order of the batches. When fewer batches than towers are left, the first towers take them.

    The data is taken on the CPU, and fed to the towers. The towers share the variables of the main training tower.

    Args:
        input: the data, as for `InferenceRunner`.
        infs: one or more `Inferencer`s.
        devices: a count, indices, or device strings; by default those of the training's strategy, or all GPUs. A count
            or indices mean GPUs where there are any, else logical CPU devices, of which the session has as many as the
            strategy asks for.
        tower_name: what the name scopes of the towers begin with, a number follows; as for `InferenceRunner`.
        tower_func: as for `InferenceRunner`.
        sanity_batches: as for `InferenceRunner`.
        shard_data: as for `InferenceRunner`.

    Raises:
        ConfigError: as `InferenceRunner` does; if the devices are none of what is expected.

    Example:
        ```python
        tpk.DataParallelInferenceRunner(validation, tpk.ClassificationError(), devices=4)
        ```
    """

    def __init__(
        self,
        input: InputSource | Iterable[Any],
        infs: Inferencer | Sequence[Inferencer],
        devices: Devices = None,
        tower_name: str | None = None,
        tower_func: TowerFunc | None = None,
        *,
        sanity_batches: int = 0,
        shard_data: bool = True,
    ) -> None:
        super().__init__(input, infs, tower_name, tower_func, sanity_batches=sanity_batches, shard_data=shard_data)
        self._devices = None if devices is None else resolve_devices(devices)
        self._take: tuple[Any, ...] = ()
        # For each number of towers what is fetched, and fed.
        self._rounds: list[tuple[Any, list[Any]]] = []
        self._towers_session: HookedSession | None = None

    def _build(self, trainer: Any) -> None:
        """Build a tower on each device."""
        with tf.device("/cpu:0"):
            # Of what is fed, only a copy can be fetched by a compiled run.
            self._take = tuple(tf.identity(tensor) for tensor in self._data.get_input_tensors())
        devices = self._devices or _devices_of(trainer.strategy)
        name = self._free_name(trainer)
        fetches, placeholders = [], []
        for index, device in enumerate(devices):
            fetches.append(self._build_tower(trainer, f"{name}/{index}", None, device))
            placeholders.extend(self._towers[-1].inputs)
            self._rounds.append((tuple(fetches), list(placeholders)))

    def _start(self, trainer: Any) -> None:
        """Start the data."""
        super()._start(trainer)
        model = FailuresOfModel([tower.ns_name for tower in self._towers])
        self._towers_session = HookedSession(trainer.sess, StepHooks(translate_error=model))

    def _results(self, limit: int | None) -> Iterator[Any]:
        """Make a pass, by rounds of as many batches as there are towers."""
        assert self._towers_session is not None
        batches = self._data.batches(self._take, limit)
        while taken := list(islice(batches, len(self._rounds))):
            fetches, placeholders = self._rounds[len(taken) - 1]
            arrays = [array for batch in taken for array in batch]
            yield from self._towers_session.run(fetches, dict(zip(placeholders, arrays, strict=True)))


def _devices_of(strategy: StrategyProtocol) -> Sequence[str]:
    """Those on which it trains; where it does not tell them, all GPUs, or as many CPU devices as it has towers."""
    return strategy.devices or resolve_devices(len(physical_of_logical_gpus()) or strategy.num_replicas)
