"""The data of an evaluation: one pass after another over an input source, beside the training."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from tpk.checkpoint.encoding import encode
from tpk.dataflow.base import check_iterable, flow_length
from tpk.dataflow.transforms.batch import left_out
from tpk.errors import CheckpointError, ConfigError, InputError, TowerError, add_note
from tpk.input_source.base import FlowInput, InputSource, ProxyInput
from tpk.input_source.batch_queue import BatchQueueInput
from tpk.input_source.feed import FeedInput
from tpk.input_source.tensor import TensorInput
from tpk.plugin import HookManager
from tpk.session.hooked import HookedSession

logger = logging.getLogger(__name__)

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
        self._innermost = _innermost(self.source)
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
        self._warn_of_what_is_left_out(signature)
        if is_shared and shard:
            try:
                self.source.shard(trainer.strategy.process_group.rank, trainer.strategy.process_group.world_size)
            except ConfigError as error:
                add_note(error, "or give the InferenceRunner shard_data=False: each process evaluates all it is given")
                raise
        callbacks = self.source.setup(signature)
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
        step_hooks = self._hooks.compile_step()
        self._before_run = step_hooks.before_run
        self._session = HookedSession(
            trainer.sess,
            step_hooks,
            translate=lambda error: model(error) or self._hooks.translate_error(error),
        )

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
        if self.source.size is None and isinstance(self._innermost, TensorInput):
            raise ConfigError(
                f"an evaluation would never end: {type(self._innermost).__name__} makes tensors without end. Give it "
                "a size, how many make a pass: TensorInput(..., size=100)."
            )

    def _warn_of_what_is_left_out(self, signature: Sequence[Any]) -> None:
        source, position = self._innermost, self.source.position
        count = 0 if position is None else left_out(position.flow)
        remedy = "give BatchData remainder=True"
        if isinstance(source, BatchQueueInput):
            if any(tf.compat.dimension_value(spec.shape[0]) is not None for spec in signature):
                count = (flow_length(source.flow) or 0) % source.batch_size
            remedy = "let the inputs' first dimension be None"
        if count:
            logger.warning(
                "an evaluation leaves out the last %d datapoints of %s, which make no whole batch; to have them in it, "
                "%s",
                count,
                self._kind,
                remedy,
            )


class FailuresOfModel:
    """Tells what only looks like the end of the data: an op of the model that is out of some range.

    Args:
        tower_names: the name scopes of the towers.
    """

    def __init__(self, tower_names: Iterable[str]) -> None:
        self._prefixes = tuple(f"node {name}/" for name in tower_names)

    def __call__(self, error: Exception) -> Exception | None:
        """Return what to raise in place of `error`, or None if the model has no part in it."""
        if not isinstance(error, tf.errors.OutOfRangeError):
            return None
        if not any(prefix in error.message for prefix in self._prefixes):
            return None
        return TowerError(
            f"an evaluation failed in the model, and not because its data ended: {error.message}. Of the training "
            "tower, the same would end the training."
        )


def _innermost(source: InputSource) -> InputSource:
    while isinstance(source, ProxyInput):
        source = source.source
    return source


def _needs_replay(position: Any) -> bool:
    """Whether somewhere in a position the datapoints were counted, because the data does not tell its own."""
    if isinstance(position, Mapping):
        return "history" in position or any(map(_needs_replay, position.values()))
    return isinstance(position, list | tuple) and any(map(_needs_replay, position))
