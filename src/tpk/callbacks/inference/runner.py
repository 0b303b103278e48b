"""Evaluation during training: inference towers next to the training towers, run over other data."""

from __future__ import annotations

import itertools
import logging
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import numpy as np
import tensorflow as tf

import tpk
from tpk.argument_checks import check_at_least
from tpk.callbacks.inference.inferencers import Inferencer
from tpk.callbacks.triggers import callbacks_of
from tpk.checkpoint.encoding import encode
from tpk.dataflow.base import check_iterable
from tpk.errors import CheckpointError, ConfigError, InputError, PeerError, TowerError, in_one_line, noting
from tpk.graph.devices import Devices, physical_of_logical_gpus, resolve_devices
from tpk.input_source.base import FlowInput, InputSource
from tpk.input_source.feed import FeedInput
from tpk.input_source.hooks import SourceHooks
from tpk.input_source.tensor import TensorInput
from tpk.plugin import Callback
from tpk.plugin.creation import also_spelled
from tpk.plugin.step import StepHooks
from tpk.session.hooked import HookedSession
from tpk.tower.handle import TowerHandle
from tpk.tower.tower_func import TowerFunc

logger = logging.getLogger(__name__)

DEFAULT_TOWER_NAME = "InferenceTower"


class InferenceRunner(Callback):
    """Runs the model over a data set at the end of each epoch, and reports the statistics of its inferencers.

    It builds an inference tower, which shares the variables of the training towers. To evaluate at other times, wrap it
    in a `PeriodicTrigger`; to evaluate the moving averages of the weights, in `WithAveragedWeights`.

    Several runners can evaluate several data sets if their statistics have different names; most inferencers have a
    `prefix` for this.

    With several `devices`, there is a tower on each, and the towers evaluate different batches at the same time: the
    data is read on the CPU and fed to them. Every batch is still evaluated once, and the inferencers get the results in
    the order of the batches, so the statistics are the same.

    In a run of several processes, each process evaluates its share of the data, and the statistics cover all data; see
    `Inferencer`. To evaluate only in the chief, set the attribute `chief_only` of the runner to True.

    Args:
        input: the data: any iterable of datapoints that can be iterated repeatedly, or an `InputSource`. Each
            evaluation is one pass to the end of the data, whether or not it has a length.
        infs: one or more `Inferencer`s.
        tower_name: the name scope of the tower; by default ``InferenceTower``, and ``InferenceTower2`` and so on for
            further runners. Several towers are ``<tower_name>/0``, ``<tower_name>/1`` and so on.
        tower_func: a `tpk.TowerFunc` that builds the tower and has the signature of the data; by default the tower
            function of the trainer. It shares the variables of the training towers by name. Required for a trainer
            without towers.
        devices: the device of the tower, or several: a count, indices, or device strings. A count or indices mean GPUs
            if there are any, otherwise logical CPU devices, of which the session has as many as the strategy needs. By
            default there is one tower, and TensorFlow chooses its device.
        sanity_batches: the number of batches to evaluate before training starts, so that errors are found then and not
            after an epoch. Their statistics are not reported.
        shard_data: whether each of several processes takes its share of the data. Otherwise each evaluates all of the
            data it is given, and the statistics cover the data of all processes.

    Attributes:
        statistics: the names of the statistics that it reports; after the first pass, all of them.

    Raises:
        ConfigError: if an argument is invalid, or the data is empty, endless, or can be iterated only once; when the
            graph is set up, if neither the trainer nor the runner has a tower function, or two statistics have the same
            name.

    Example:
        ```python
        callbacks = [
            tpk.InferenceRunner(validation, [tpk.ScalarStats("cost"), tpk.ClassificationError()], sanity_batches=2),
            tpk.InferenceRunner(test, tpk.ClassificationError(summary_name="test_error"), devices=[0, 1]),
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
        devices: Devices = None,
        *,
        sanity_batches: int = 0,
        shard_data: bool = True,
    ) -> None:
        check_at_least(self, 0, sanity_batches=sanity_batches)
        self._inferencers: list[Inferencer] = list(infs) if isinstance(infs, Iterable) else [infs]
        if not self._inferencers or not all(isinstance(each, Inferencer) for each in self._inferencers):
            raise ConfigError(f"InferenceRunner takes Inferencers, such as tpk.ScalarStats('cost'), and not {infs!r}.")
        if tower_func is not None and not isinstance(tower_func, TowerFunc):
            raise ConfigError(
                f"{type(self).__name__}(tower_func={tower_func!r}): expected a tpk.TowerFunc. Write "
                "tpk.TowerFunc(function, input_signature), with a tf.TensorSpec for each input."
            )
        self._data = EvaluationData(input)
        self._tower_func = tower_func
        self._tower_name = tower_name
        self._devices = None if devices is None else resolve_devices(devices)
        self._sanity_batches = sanity_batches
        self._max_batches: int | None = None
        self._shard_data = shard_data
        self._is_shared = False
        self._towers: list[TowerHandle] = []
        # The fetches of a run: from one tower; or from each of several towers, for which `_batch` is fetched first.
        self._fetches: Any = None
        self._batch: Sequence[Any] | None = None
        self._towers_session: HookedSession
        self.statistics: set[str] = set()

    def setup_graph(self, trainer: Any) -> None:
        """Build the towers.

        Raises:
            ConfigError: if the tower function is missing, two statistics have the same name, or the statistics of
                several processes cannot be merged.
        """
        if self._tower_func is None and not trainer.towers.training():
            raise ConfigError(
                f"{type(self).__name__} builds a tower, but {type(trainer).__name__} has no tower function. "
                "Give the runner one: tower_func=tpk.TowerFunc(function, input_signature)."
            )
        world_size = trainer.strategy.process_group.world_size
        self._is_shared = world_size > 1 and not self.chief_only
        for inferencer in self._inferencers:
            inferencer.trainer = trainer
            if self._is_shared and not inferencer.can_merge():
                raise ConfigError(
                    f"{type(inferencer).__name__} does not say how the statistics of {world_size} processes become "
                    "one. Define its methods state() and merge(states), as tpk.Inferencer documents them, or evaluate "
                    "in the chief alone: set chief_only of the InferenceRunner to True."
                )
        self._tower_func = self._tower_func or trainer.tower_func
        self._data.setup(trainer, self._tower_func.input_signature, self._is_shared, self._shard_data)
        self._build(trainer)
        self._claim([name for inferencer in self._inferencers for name in inferencer.statistics])
        self._data.complete_graph()
        size = self._data.source.size
        batches = "1 batch" if size == 1 else f"{size} batches"
        data = "all data (its length is unknown; it must end)" if size is None else batches
        logger.info("%s: evaluates %s in %s", self._label, data, ", ".join(tower.ns_name for tower in self._towers))

    def before_train(self, trainer: Any) -> None:
        """Start the data, and evaluate the first batches if `sanity_batches` says so."""
        self._data.start(trainer, self._failure_of_model)
        self._towers_session = HookedSession(trainer.sess, StepHooks(translate_error=self._failure_of_model))
        if self._sanity_batches:
            note = f"raised in the sanity check of {self._label}, before training starts"
            with _random_state_kept(), noting(note):
                self.evaluate(self._sanity_batches)
            logger.info("%s: the sanity check passed (at most %d batches)", self._label, self._sanity_batches)

    def trigger(self, trainer: tpk.Trainer) -> None:
        """Make one pass over the data, and report the statistics.

        Raises:
            InputError: if the data is empty, or its length is wrong.
            PeerError: if the evaluation in another process failed.
        """
        # In every process: outside the chief, monitors only keep the history, for callbacks that follow a statistic.
        for name, value in self.evaluate(self._max_batches).items():
            trainer.monitors.put_scalar(name, value)

    def limit(self, batches: int) -> None:
        """Let each process evaluate at most this number of batches in a pass."""
        self._max_batches = batches

    def after_train(self, trainer: Any) -> None:
        """Stop the data.

        Raises:
            BaseException: the first failure of a callback of the data.
        """
        self._data.stop()

    def state_dict(self) -> dict[str, Any]:
        """Return which pass over the data comes next, if passes differ."""
        return self._data.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._data.load_state_dict(state)

    # Building the towers

    def _build(self, trainer: Any) -> None:
        """Build a tower on the data, or several to be fed."""
        inputs = self._data.source.get_input_tensors()
        name = self._free_name(trainer)
        devices = self._choose_devices(trainer.strategy)
        if len(devices) == 1:
            # Every run must take a batch, even if nothing that it fetches depends on the data.
            self._fetches = (tf.group(*inputs), self._build_tower(trainer, name, inputs, devices[0]))
            return
        with tf.device("/cpu:0"):
            # A compiled run cannot fetch a fed tensor, only a copy.
            self._batch = tuple(map(tf.identity, inputs))
        self._fetches = tuple(
            self._build_tower(trainer, f"{name}/{index}", None, device) for index, device in enumerate(devices)
        )

    def _choose_devices(self, strategy: tpk.Strategy) -> Sequence[str | None]:
        return self._devices or [None]

    def _build_tower(self, trainer: Any, name: str, inputs: Sequence[Any] | None, device: str | None) -> Any:
        """Build an inference tower, with placeholders by default; return what the inferencers fetch from it."""
        if name in [tower.ns_name for tower in _towers_of(trainer)]:
            raise ConfigError(f"there is a tower {name!r} already. Give {self._label} another tower_name.")
        assert self._tower_func is not None
        with tf.device(device), trainer.strategy.predict_context(name):
            self._tower_func(*(self._tower_func.placeholders() if inputs is None else inputs))
        tower = self._tower_func.towers[-1]
        self._towers.append(tower)
        with tf.device(device), tf.name_scope(f"{name}/evaluation/"):
            return tuple(_fetches_of(inferencer, tower) for inferencer in self._inferencers)

    def _free_name(self, trainer: Any) -> str:
        """Return the given name, or the first default name that no tower has."""
        if self._tower_name is not None:
            return self._tower_name
        taken = {tower.ns_name.partition("/")[0] for tower in _towers_of(trainer)}
        numbered = (f"{DEFAULT_TOWER_NAME}{number}" for number in itertools.count(2))
        return next(name for name in itertools.chain([DEFAULT_TOWER_NAME], numbered) if name not in taken)

    @property
    def _label(self) -> str:
        """Its name in messages, even if a proxy is registered for it."""
        kind, name = type(self).__name__, self.plugin_name
        return name if name.startswith(kind) else f"{kind} in {name}"

    # Evaluating

    def evaluate(self, limit: int | None = None) -> dict[str, float]:
        """Make a pass of at most `limit` batches, and return the statistics without reporting them.

        Raises:
            InputError: if the data is empty, or its length is wrong.
            PeerError: if the evaluation in another process failed.
        """
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
        """Pass the results for this process's share of the data to the inferencers; return the number of batches."""
        for inferencer in self._inferencers:
            inferencer.before_inference()
        takers = [inferencer.on_fetches for inferencer in self._inferencers]
        count = 0
        for results in self._results(limit):
            for take, own in zip(takers, results):  # noqa: B905 - equal; hot
                take(own)
            count += 1
        return count

    def _results(self, limit: int | None) -> Iterator[Any]:
        """Make a pass; each item has the results of one batch for the inferencers."""
        if self._batch is None:
            for _, results in self._data.results(self._fetches, limit):
                yield results
            return
        batches = self._data.batches(self._batch, limit)
        while taken := list(itertools.islice(batches, len(self._towers))):
            feeds = {
                placeholder: array
                for tower, batch in zip(self._towers, taken, strict=False)
                for placeholder, array in zip(tower.inputs, batch, strict=True)
            }
            yield from self._towers_session.run(self._fetches[: len(taken)], feeds)

    def _evaluate_together(self, limit: int | None) -> int:
        """Evaluate the shares of all processes, and merge the states of the inferencers."""
        count, failure = 0, None
        states: list[Any] = []
        try:
            count = self._evaluate_share(limit)
            states = [inferencer.state() for inferencer in self._inferencers]
        except Exception as error:  # The other processes wait for this one: it has to tell them.
            failure = error
        # The name of this runner may differ between processes, because some callbacks are in the chief only.
        kinds = ", ".join(type(inferencer).__name__ for inferencer in self._inferencers)
        try:
            shares = self.trainer.strategy.process_group.gather_object(
                f"an evaluation by {kinds}", (count, states, in_one_line(failure) if failure else None)
            )
        finally:
            if failure is not None:
                raise failure
        failed = [f"rank {rank}: {reason}" for rank, (_, _, reason) in enumerate(shares) if reason is not None]
        if failed:
            raise PeerError(
                f"the evaluation by {self._label} failed in another process, whose log tells more. {'; '.join(failed)}"
            )
        of_ranks = [states for _, states, _ in shares]
        for inferencer, own in zip(self._inferencers, zip(*of_ranks, strict=True), strict=True):
            inferencer.merge(own)
        return sum(count for count, _, _ in shares)

    def _claim(self, names: Sequence[str]) -> None:
        """Claim names of statistics for this runner.

        Raises:
            ConfigError: if another inferencer or runner reports one of them.
        """
        others = [other for other in _runners_of(self.trainer) if other is not self]
        taken = {name: f"{other._label} and {self._label}" for other in others for name in other.statistics}
        for name in names:
            if name in taken or names.count(name) > 1:
                whose = taken.get(name, f"two inferencers of {self._label}")
                raise ConfigError(
                    f"{whose} both report {name!r}. Give the statistics of one of them other names: "
                    'ScalarStats(..., prefix="test"), ClassificationError(summary_name="test_error").'
                )
            self.trainer.monitors.set_direction(name)
        self.statistics.update(names)

    def _failure_of_model(self, error: BaseException) -> TowerError | None:
        """Return the error to raise if an op of the model is out of range, which is not the end of the data."""
        names = [tower.ns_name for tower in self._towers]
        if isinstance(error, tf.errors.OutOfRangeError) and any(f"node {name}/" in error.message for name in names):
            return TowerError(
                f"an evaluation failed in the model, and not because its data ended: {error.message}. In the training "
                "tower, the same error would end the training."
            )
        return None


@also_spelled({"gpus": "devices"})
class DataParallelInferenceRunner(InferenceRunner):
    """An `InferenceRunner` with another default for `devices`: the devices of the strategy, or else all GPUs.

    Example:
        ```python
        tpk.DataParallelInferenceRunner(validation, tpk.ClassificationError())
        ```
    """

    def _choose_devices(self, strategy: tpk.Strategy) -> Sequence[str | None]:
        # A strategy without devices has one device for each replica.
        default = strategy.devices or resolve_devices(len(physical_of_logical_gpus()) or strategy.num_replicas)
        return self._devices or default


def _fetches_of(inferencer: Inferencer, tower: TowerHandle) -> Any:
    try:
        return inferencer.get_fetches(tower)
    except TowerError as error:
        raise TowerError(f"{type(inferencer).__name__}: {error}") from error


def _towers_of(trainer: Any) -> list[TowerHandle]:
    """Return the towers of a trainer and of its runners, some of them twice."""
    return [*trainer.towers, *(tower for runner in _runners_of(trainer) for tower in runner._towers)]


def _runners_of(trainer: tpk.Trainer) -> list[InferenceRunner]:
    return callbacks_of(trainer.hooks.plugins.values(), InferenceRunner)


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Restore the state of the global random generators at the end of the context."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


class EvaluationData:
    """Makes passes over an input source, in a session in which only the hooks of the source take part.

    A pass ends at the end of the data, even if the source would repeat it in a training run. If the source has no end,
    but a size, a pass has this number of batches.

    Args:
        input: any iterable of datapoints, or an `InputSource`.

    Attributes:
        source: the input source.

    Raises:
        ConfigError: if the data is empty, endless, or can be iterated only once.
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
        # The callbacks of the source run with the steps of the evaluation, not of the training.
        self._hooks: SourceHooks
        self._before_run: Sequence[Callable[[Any], Any]] = ()
        self._session: HookedSession
        self._place: Literal["start", "within", "end"] = "start"  # In the current pass; "start" only in the first one.

    def setup(self, trainer: Any, signature: Sequence[Any], is_shared: bool, shard: bool) -> None:
        """Set up the source, in the graph.

        Args:
            trainer: the trainer.
            signature: a `tf.TensorSpec` for each component.
            is_shared: whether all processes take part.
            shard: whether each of them takes its share of the data.
        """
        seed = trainer.graph.seed
        if is_shared:
            # If each process shuffled differently, their shares would overlap.
            seed = trainer.strategy.process_group.broadcast_object(
                "the seed of the data of an evaluation", secrets.randbits(31) if seed is None else seed
            )
        if seed is not None:
            self.source.seed(int(seed) % 2**31)
        if is_shared and shard:
            remedy = "or give the InferenceRunner shard_data=False: each process evaluates all it is given"
            with noting(remedy, ConfigError):
                self.source.shard(trainer.strategy.process_group.rank, trainer.strategy.process_group.world_size)
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
        self._hooks = SourceHooks(callbacks, trainer)

    def complete_graph(self) -> None:
        """Let the callbacks of the source add ops to the graph, after the towers are built."""
        self._hooks.call("setup_graph")

    def start(self, trainer: Any, translate_error: Callable[[BaseException], BaseException | None]) -> None:
        """Start the data; called in `before_train`.

        Args:
            trainer: the trainer, with its session.
            translate_error: returns the error to raise instead of the error of a run, or None.
        """
        self._hooks.call("before_train")
        step_hooks = self._hooks.compile_step(translate_error)
        self._before_run = step_hooks.before_run
        self._session = HookedSession(trainer.sess, step_hooks)

    def stop(self) -> None:
        """Stop the data; called in `after_train`.

        Raises:
            BaseException: the failure of a callback of the data.
        """
        self._hooks.after_train()

    def results(self, fetches: Any, limit: int | None = None) -> Iterator[Any]:
        """Make a pass; each item is the result of a run of `fetches`, which must depend on the input tensors.

        Args:
            fetches: as for `Session.run`.
            limit: the maximum number of batches.

        Raises:
            InputError: if the data has a length, and it is wrong.
        """
        return self._batches(partial(self._session.run, fetches), limit)

    def batches(self, inputs: Any, limit: int | None = None) -> Iterator[Sequence[Any]]:
        """Make a pass; each item is a batch, as arrays in the order of the signature.

        Args:
            inputs: copies of the input tensors, in their order.
            limit: the maximum number of batches.

        Raises:
            InputError: if the data has a length, and it is wrong.
        """
        if isinstance(self.source, FeedInput):
            return self._batches(self._fed, limit)
        return self._batches(partial(self._session.run, inputs), limit)

    def _fed(self) -> Sequence[Any]:
        """Return the batch that would be fed to a run, without a run that would only return it."""
        (feed,) = self._before_run
        return tuple(feed(None).feed_dict.take())

    def _batches(self, take: Callable[[], Any], limit: int | None) -> Iterator[Any]:
        """Make a pass; each item is a result of `take`, which raises `tf.errors.OutOfRangeError` after the last one."""
        if self._place != "start":
            self.source.reset_state()
        self._place = "within"
        size, count = self.source.size, 0
        last = limit if self._has_end or limit is not None else size
        while count != last:
            try:
                result = take()
            except tf.errors.OutOfRangeError as end:
                # Outside, this error would mean that the data of the training run has ended.
                if size is not None and count < size:
                    raise self._wrong_size(f"ended after {count}") from end
                self._place = "end"
                return
            count += 1
            if size is not None and count > size:
                raise self._wrong_size("goes on after these")
            yield result

    def state_dict(self) -> dict[str, Any]:
        """Return which pass comes next, for data that differs from pass to pass, such as shuffled data.

        It is empty before the first pass, and for data whose position could only be restored by iterating through
        everything that was delivered, which would take too long.
        """
        if self._place != "end" or self.source.position is None:
            return {}
        position = self.source.position.state_dict()
        if _needs_replay(position):
            return {}
        try:
            encode(position)
        except CheckpointError:  # The state of a foreign loader must not prevent checkpoints of the training run.
            return {}
        return {"position": position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        if "position" in state and self.source.position is not None:
            self.source.position.load_state_dict(state["position"])
            self._place = "end"

    @property
    def _kind(self) -> str:
        """A description of the data for messages."""
        kind = type(self.source).__name__
        return f"{kind} of {type(self.source.flow).__name__}" if isinstance(self.source, FlowInput) else kind

    def _wrong_size(self, what: str) -> InputError:
        return InputError(
            f"the data of an evaluation, {self._kind}, says that it has {self.source.size} datapoints, but {what}. "
            "Give it its true length, or none."
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
                "Give it a size, the number of batches in a pass: TensorInput(..., size=100)."
            )


def _needs_replay(position: Any) -> bool:
    """Return whether a position anywhere counts datapoints, because the data does not know its own position."""
    if isinstance(position, Mapping):
        return "history" in position or any(map(_needs_replay, position.values()))
    return isinstance(position, list | tuple) and any(map(_needs_replay, position))
