"""Initial values of variables: from checkpoints, files, and dictionaries of arrays."""

from __future__ import annotations

import abc
import itertools
import logging
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import attrs

from tpk.checkpoint.reader import CheckpointReader, find_checkpoint
from tpk.checkpoint.restore import Match, match, restore_matches, some_of
from tpk.checkpoint.stored_values import DictValues, NpzReader, StoredValues
from tpk.errors import CheckpointError
from tpk.plugin.recorded_options import RecordsOptions
from tpk.tower.tower_func import variables_beside_model

logger = logging.getLogger(__name__)


class SessionInit(RecordsOptions, abc.ABC):
    """Assigns values to variables of a new session; the other variables keep their initial values."""

    @abc.abstractmethod
    def run(self, sess: Any) -> None:
        """Assign the values in the session `sess`, whose graph may be finalized."""


def _names(names: Collection[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise CheckpointError(f"ignore={names!r}: expected a collection of names. Write ignore=[{names!r}].")
    return frozenset(names)


@attrs.define(eq=False, repr=False, kw_only=True)
class RestoreByName(SessionInit):
    """Base of classes that restore values by name from one source. A table of all names is logged.

    Values are cast between floating-point dtypes; between other dtypes, only if the variable's dtype can represent
    every value of the stored one. The parts of a partitioned variable (`tf.compat.v1.fixed_size_partitioner`, for
    example) are restored from the value that is stored under the name of the whole.

    Args:
        prefix: each stored name belongs to the variable ``<prefix>/<name>``; variables outside of that scope keep their
            initial values.
        ignore: names to ignore, as in the graph or as stored, with or without ``:0``.
        ignore_mismatch: reshape a value of another shape if it has as many elements as the variable, and otherwise
            ignore it with a warning. If False, another shape is an error.
        must_match: whether it is an error if no name matches. If False, the log warns, and all variables keep their
            initial values.
        weights_only: restore only the variables that the tower function created (weights, moving statistics), and not
            ``global_step``, ``learning_rate`` and the state of optimizers. The log names the ignored variables.
    """

    prefix: str | None = None
    ignore: frozenset[str] = attrs.field(default=(), converter=_names)
    ignore_mismatch: bool = False
    must_match: bool = True
    weights_only: bool = False

    @abc.abstractmethod
    def open(self) -> AbstractContextManager[StoredValues]:
        """Return a context manager that opens the values for reading."""

    def match(self, graph: Any, values: StoredValues) -> Match:
        """Match `values` with the variables of `graph`."""
        left_alone = variables_beside_model(graph) if self.weights_only else set()
        if names := left_alone & set(values):
            text = "only the weights are restored from %s; %d other variables are ignored: %s"
            logger.info(text, values.source, len(names), some_of(names))
        return match(
            graph,
            values,
            prefix=self.prefix,
            ignore=self.ignore | left_alone,
            ignore_mismatch=self.ignore_mismatch,
            must_match=self.must_match,
        )

    def run(self, sess: Any) -> None:
        """Assign the values.

        Raises:
            CheckpointError: if no name matches and `must_match` is set, shapes or dtypes do not fit (the message lists
                all of them), or a file is damaged.
        """
        _run_together(sess, [self])


@attrs.define(eq=False, repr=False)
class DictRestore(RestoreByName):
    """Restores variables from a mapping of names to arrays.

    Attributes:
        values: arrays by variable name, with or without ``:0``.
        prefix: see `SaverRestore`.
        ignore: see `SaverRestore`.
        ignore_mismatch: reshape or ignore values of another shape, as `SaverRestoreRelaxed` does.
        must_match: see `SaverRestore`.

    Raises:
        CheckpointError: if a name is not a string, or occurs twice.

    Example:
        ```python
        trainer.train(..., session_init=tpk.DictRestore({"conv0/W": weights, "conv0/b": np.zeros(32)}))
        ```
    """

    values: DictValues = attrs.field(converter=DictValues)
    ignore_mismatch: bool = False
    weights_only: bool = attrs.field(default=False, init=False)

    def open(self) -> AbstractContextManager[StoredValues]:
        """Return the values."""
        return nullcontext(self.values)


@attrs.define(eq=False, repr=False)
class NpzRestore(RestoreByName):
    """Restores variables from an ``.npz`` file. Arrays are read one at a time.

    Attributes:
        path: the file, written by `numpy.savez` or ``tpk checkpoint to-npz``.
        prefix: see `SaverRestore`.
        ignore: see `SaverRestore`.
        ignore_mismatch: reshape or ignore values of another shape, as `SaverRestoreRelaxed` does.
        must_match: see `SaverRestore`.
        weights_only: see `SaverRestore`.

    Raises:
        CheckpointError: if the file is missing, damaged, or not an ``.npz`` file.

    Example:
        ```python
        trainer.train(..., session_init=tpk.NpzRestore("ImageNet-R50.npz", ignore=["global_step"]))
        ```
    """

    path: str | os.PathLike[str]
    ignore_mismatch: bool = False

    def __attrs_post_init__(self) -> None:
        """Fail now, and not after the graph has been built."""
        with NpzReader(self.path):
            pass

    def open(self) -> AbstractContextManager[StoredValues]:
        """Open the file."""
        return NpzReader(self.path)


@attrs.define(eq=False, repr=False)
class SaverRestore(RestoreByName):
    """Restores variables from a checkpoint of `tf.compat.v1.train.Saver`, written by tpk or another program.

    It restores everything, including ``global_step``, ``learning_rate`` and the state of optimizers. In contrast, a
    path given as `session_init` is a warm start, which restores only the weights.

    Attributes:
        path: as for `tpk.checkpoint.find_checkpoint`: the prefix of a checkpoint, such as ``run/model-900``, or one of
            its files; the directory of a run, for its newest complete checkpoint; or ``run/min-validation_cost``, for
            the best one of the `MinSaver` with that name.
        prefix: each name in the checkpoint belongs to the variable ``<prefix>/<name>``; variables outside of that scope
            keep their initial values.
        ignore: names to ignore, as in the graph or as in the checkpoint, with or without ``:0``.
        must_match: whether it is an error if no name matches. If False, the log warns, and all variables keep their
            initial values; for scripts that try a checkpoint which may be of another model.
        weights_only: restore only the variables that the tower function created (weights, moving statistics), and not
            ``global_step``, ``learning_rate`` and the state of optimizers.

    Raises:
        CheckpointError: if the checkpoint does not exist.

    Example:
        ```python
        trainer.train(..., session_init=tpk.SaverRestore("runs/pretrained", prefix="backbone", weights_only=True))
        ```
    """

    path: str = attrs.field(converter=find_checkpoint)
    prefix: str | None = None
    ignore: frozenset[str] = attrs.field(default=(), converter=_names)
    ignore_mismatch: bool = attrs.field(default=False, init=False)

    def open(self) -> AbstractContextManager[StoredValues]:
        """Read the index of the checkpoint."""
        values = CheckpointReader(self.path)
        if values.is_object_based:
            raise _no_names(values)
        return nullcontext(values)


@attrs.define(eq=False, repr=False)
class SaverRestoreRelaxed(SaverRestore):
    """Like `SaverRestore`, but accepts values of other shapes.

    A value with as many elements as its variable is reshaped. Any other value that does not fit is ignored with a
    warning.
    """

    ignore_mismatch: bool = attrs.field(default=True, init=False)


class ChainInit(SessionInit):
    """Restores variables from several sources in order; later ones take precedence. One table of all names is logged.

    Args:
        inits: the sources, each as for `as_session_init`; None is ignored.

    Raises:
        CheckpointError: if one of them is invalid.

    Example:
        ```python
        trainer.train(..., session_init=tpk.ChainInit(["backbone.npz", tpk.SaverRestore("runs/head", prefix="head")]))
        ```
    """

    def __init__(self, inits: Iterable[Any]) -> None:
        given = [as_session_init(each) for each in inits]
        self.inits: list[SessionInit] = []
        for each in given:
            if isinstance(each, ChainInit):
                self.inits += each.inits
            elif each is not None:
                self.inits.append(each)

    def run(self, sess: Any) -> None:
        """Assign the values.

        Raises:
            CheckpointError: if one of them cannot be restored. Consecutive sources of values by name are checked
                together before any value is assigned.
        """
        for are_by_name, group in itertools.groupby(self.inits, lambda each: isinstance(each, RestoreByName)):
            members = list(group)
            if are_by_name:
                _run_together(sess, members)
            else:
                for each in members:
                    each.run(sess)


class SmartInit(ChainInit):
    """Restores variables from any kind of source.

    Args:
        obj: the path of a checkpoint (prefix, file or directory) or of an ``.npz`` file, a mapping of names to
            arrays, a `SessionInit`, a list of those, or None or ``""`` for nothing.
        ignore_mismatch: reshape a value of another shape if it has as many elements as the variable, and otherwise
            ignore it with a warning. If False, another shape is an error. It does not change a `SessionInit` in `obj`.
        must_match: whether it is an error if no name matches, see `SaverRestore`. It does not change a `SessionInit`.
        weights_only: restore only the weights from a path, as for fine-tuning; see `SaverRestore`.

    Raises:
        CheckpointError: if `obj` is something else, or does not exist.

    Example:
        ```python
        trainer.train(..., session_init=tpk.SmartInit(args.load, ignore_mismatch=True, weights_only=True))
        ```
    """

    def __init__(
        self, obj: Any, *, ignore_mismatch: bool = False, must_match: bool = True, weights_only: bool = False
    ) -> None:
        options = {"ignore_mismatch": ignore_mismatch, "must_match": must_match, "weights_only": weights_only}
        if isinstance(obj, list | tuple):
            super().__init__(SmartInit(each, **options) for each in obj)
        else:
            given = None if isinstance(obj, str) and not obj else obj
            super().__init__([as_session_init(given, **options)])


def as_session_init(
    value: Any, ignore_mismatch: bool = False, must_match: bool = True, weights_only: bool = False
) -> SessionInit | None:
    """Return the `SessionInit` that `value` means.

    Args:
        value: a `SessionInit`, a path of a checkpoint or of an ``.npz`` file, a mapping of names to arrays, a list of
            those (see `ChainInit`), or None.
        ignore_mismatch: accept values of another shape, see `SmartInit`.
        must_match: whether it is an error if no name matches, see `SaverRestore`.
        weights_only: restore only the weights from paths, see `SaverRestore`.

    Raises:
        CheckpointError: if it is something else.
    """
    if value is None or isinstance(value, SessionInit):
        return value
    if isinstance(value, Mapping):
        return DictRestore(value, ignore_mismatch, must_match=must_match)
    if isinstance(value, str | os.PathLike):
        if os.fspath(value).endswith(".npz"):
            return NpzRestore(value, ignore_mismatch, must_match=must_match, weights_only=weights_only)
        saver_restore = SaverRestoreRelaxed if ignore_mismatch else SaverRestore
        return saver_restore(value, must_match=must_match, weights_only=weights_only)
    if isinstance(value, list | tuple):
        return ChainInit(as_session_init(each, weights_only=weights_only) for each in value)
    raise CheckpointError(
        f"session_init is {value!r}, a {type(value).__name__}; expected a SessionInit, the path of a checkpoint or "
        "of an .npz file, a mapping of variable names to arrays, or a list of those."
    )


def _run_together(sess: Any, inits: Iterable[Any]) -> None:
    with ExitStack() as stack:
        restore_matches(sess, [each.match(sess.graph, stack.enter_context(each.open())) for each in inits])


def _no_names(values: CheckpointReader) -> CheckpointError:
    keys = values.keys_by_variable_name()
    examples = ", ".join(f"{name!r} is under {key!r}" for name, key in sorted(keys.items())[:3])
    return CheckpointError(
        f"{values.source} was written by tf.train.Checkpoint, which names values by the path of Python objects and "
        f"not by variables{f' ({examples}, …)' if examples else ''}. Give the names yourself: "
        f"values = tpk.CheckpointReader({values.source!r}); "
        "tpk.DictRestore({name: values[key] for name, key in values.keys_by_variable_name().items()}). "
        "Change the names that are different in the graph."
    )
