"""Initial values of variables, from checkpoints, files and dictionaries of arrays."""

from __future__ import annotations

import abc
import itertools
import logging
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

from tpk.checkpoint.reader import CheckpointReader, find_checkpoint
from tpk.checkpoint.restore import Match, match, restore_matches, some_of
from tpk.checkpoint.stored_values import DictValues, NpzReader, StoredValues
from tpk.errors import CheckpointError
from tpk.plugin.description import RecordsOptions
from tpk.tower.tower_func import variables_beside_model

if TYPE_CHECKING:
    from tpk.tower.keras.model import KerasModel

logger = logging.getLogger(__name__)


class SessionInit(RecordsOptions, abc.ABC):
    """Gives variables of a new session their values; what it does not name keeps its initial value."""

    @abc.abstractmethod
    def run(self, sess: Any) -> None:
        """Give the values, in the session `sess`, whose graph may be finalized."""


class RestoreByName(SessionInit):
    """Base of what takes values by name from one place; a table of what became of each name goes to the log.

    Between floating-point dtypes values are cast; between others only where the variable's dtype has every value of
    the stored one. A variable that `tf.compat.v1.fixed_size_partitioner` and the like have cut into parts gets its
    part of the value that is stored under the name of the whole.

    Args:
        prefix: each stored name stands for the variable ``<prefix>/<name>``; what the graph has outside of that
            scope keeps its initial value.
        ignore: names that are left out, as in the graph or as stored, with or without ``:0``.
        ignore_mismatch: a value of another shape than its variable is reshaped if it has as many elements, and left
            out with a warning if not; otherwise it is an error.
        must_match: whether it is an error if no name fits; otherwise the log warns of it, and all variables keep their
            initial values.
        weights_only: take the variables of the model: what the tower function created (weights, moving statistics),
            and neither ``global_step`` nor ``learning_rate``, nor the state of optimizers. The log names what is left
            alone.
    """

    _ignore_mismatch = False

    def __init__(
        self,
        *,
        prefix: str | None = None,
        ignore: Collection[str] = (),
        ignore_mismatch: bool = False,
        must_match: bool = True,
        weights_only: bool = False,
    ) -> None:
        if isinstance(ignore, str):
            raise CheckpointError(f"ignore={ignore!r}: expected a collection of names. Write ignore=[{ignore!r}].")
        self._prefix = prefix
        self._ignore = frozenset(ignore)
        self._ignore_mismatch = ignore_mismatch or self._ignore_mismatch
        self._must_match = must_match
        self._weights_only = weights_only

    @abc.abstractmethod
    def open(self) -> AbstractContextManager[StoredValues]:
        """Return a context in which the values can be read."""

    def match(self, graph: Any, values: StoredValues) -> Match:
        """Return which of `values` go to which variables of `graph`."""
        left_alone = variables_beside_model(graph) if self._weights_only else set()
        if names := left_alone & set(values):
            text = "only the weights are taken from %s, and %d other variables are left alone: %s"
            logger.info(text, values.source, len(names), some_of(names))
        return match(
            graph,
            values,
            prefix=self._prefix,
            ignore=self._ignore | left_alone,
            ignore_mismatch=self._ignore_mismatch,
            must_match=self._must_match,
        )

    def run(self, sess: Any) -> None:
        """Assign the values.

        Raises:
            CheckpointError: if no name fits, unless none need fit; or shapes or dtypes do not (all of them are in the
                message); or a file is damaged.
        """
        _run_together(sess, [self])


class DictRestore(RestoreByName):
    """Takes values from a mapping of names to arrays.

    Args:
        values: arrays by variable name, with or without ``:0``.
        prefix: see `SaverRestore`.
        ignore: see `SaverRestore`.
        ignore_mismatch: reshape or leave out values of another shape, as `SaverRestoreRelaxed` does.
        must_match: see `SaverRestore`.

    Raises:
        CheckpointError: a name is not a string, or is there twice.

    Example:
        ```python
        trainer.train(..., session_init=tpk.DictRestore({"conv0/W": weights, "conv0/b": np.zeros(32)}))
        ```
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        ignore_mismatch: bool = False,
        *,
        prefix: str | None = None,
        ignore: Collection[str] = (),
        must_match: bool = True,
    ) -> None:
        super().__init__(prefix=prefix, ignore=ignore, ignore_mismatch=ignore_mismatch, must_match=must_match)
        self._values = DictValues(values)

    def open(self) -> AbstractContextManager[StoredValues]:
        """Return the values."""
        return nullcontext(self._values)


class NpzRestore(RestoreByName):
    """Takes values from an ``.npz`` file, each read only when its variable gets it.

    Args:
        path: the file, of `numpy.savez` or ``tpk checkpoint to-npz``.
        prefix: see `SaverRestore`.
        ignore: see `SaverRestore`.
        ignore_mismatch: reshape or leave out values of another shape, as `SaverRestoreRelaxed` does.
        must_match: see `SaverRestore`.
        weights_only: see `SaverRestore`.

    Raises:
        CheckpointError: if there is no such file, it is no ``.npz`` file, or damaged.

    Example:
        ```python
        trainer.train(..., session_init=tpk.NpzRestore("ImageNet-R50.npz", ignore=["global_step"]))
        ```
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        ignore_mismatch: bool = False,
        *,
        prefix: str | None = None,
        ignore: Collection[str] = (),
        must_match: bool = True,
        weights_only: bool = False,
    ) -> None:
        super().__init__(
            prefix=prefix,
            ignore=ignore,
            ignore_mismatch=ignore_mismatch,
            must_match=must_match,
            weights_only=weights_only,
        )
        self._path = path
        # A wrong path is told now, and not when the graph has been built.
        with NpzReader(path):
            pass

    def open(self) -> AbstractContextManager[StoredValues]:
        """Open the file."""
        return NpzReader(self._path)


class SaverRestore(RestoreByName):
    """Takes values from a checkpoint of `tf.compat.v1.train.Saver`, tpk's own or another program's.

    It restores everything, including ``global_step``, ``learning_rate`` and the state of optimizers. A path given as
    `session_init` is a warm start: it restores the weights only.

    Args:
        path: which checkpoint, as `tpk.checkpoint.find_checkpoint` takes it: its prefix, such as ``run/model-900``, or
            one of its files; the directory of a run, for the newest that is complete; or ``run/min-validation_cost``,
            for the best that a `MinSaver` of that name has.
        prefix: each name in the checkpoint stands for the variable ``<prefix>/<name>``; what the graph has outside
            of that scope keeps its initial value.
        ignore: names that are left out, as in the graph or as in the checkpoint, with or without ``:0``.
        must_match: whether it is an error if no name fits; with False the log warns of it, and all variables keep their
            initial values, as for a script that tries a checkpoint which may be one of another model.
        weights_only: whether it takes only what the tower function created (weights, moving statistics), and neither
            ``global_step`` nor ``learning_rate``, nor the state of optimizers.

    Raises:
        CheckpointError: if there is no checkpoint.

    Example:
        ```python
        trainer.train(..., session_init=tpk.SaverRestore("runs/pretrained", prefix="backbone", weights_only=True))
        ```
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        prefix: str | None = None,
        ignore: Collection[str] = (),
        *,
        must_match: bool = True,
        weights_only: bool = False,
    ) -> None:
        super().__init__(prefix=prefix, ignore=ignore, must_match=must_match, weights_only=weights_only)
        self._checkpoint = find_checkpoint(path)

    def open(self) -> AbstractContextManager[StoredValues]:
        """Read the index of the checkpoint."""
        values = CheckpointReader(self._checkpoint)
        if values.is_object_based:
            raise _no_names(values)
        return nullcontext(values)


class SaverRestoreRelaxed(SaverRestore):
    """Takes values from a checkpoint like `SaverRestore`, and makes do with other shapes.

    A value that has as many elements as its variable is reshaped; any other that does not fit is left out with a
    warning. The arguments are those of `SaverRestore`.
    """

    _ignore_mismatch = True


class KerasRestore(RestoreByName):
    """Takes the weights of a Keras model from a file that Keras has written.

    Args:
        model: the model, which the tower function calls.
        path: a file ``….keras`` or ``….weights.h5``.
        ignore: names of variables that are left out, such as ``model/dense/kernel``.
        must_match: see `SaverRestore`.

    Raises:
        CheckpointError: if there is no such file.

    Example:
        ```python
        config = tpk.TrainConfig(model=digits, session_init=tpk.KerasRestore(digits.net, "digits.keras"), dataflow=data)
        ```
    """

    def __init__(
        self,
        model: KerasModel,
        path: str | os.PathLike[str],
        *,
        ignore: Collection[str] = (),
        must_match: bool = True,
    ) -> None:
        super().__init__(ignore=ignore, must_match=must_match)
        self._model = model
        self._path = os.fspath(path)
        if not os.path.isfile(self._path):
            raise CheckpointError(f"there is no file {self._path!r}. Give the path of a file that Keras has written.")

    def open(self) -> AbstractContextManager[StoredValues]:
        """Return nothing yet: whose weights they are is known in the graph only."""
        return nullcontext(DictValues({}, self._path))

    def match(self, graph: Any, values: StoredValues) -> Match:
        """Read the weights, by the names that they have in `graph`."""
        return super().match(graph, DictValues(self._model.read_weights(self._path, graph), self._path))


class ChainInit(SessionInit):
    """Takes values from several places in order; what a later one has wins. One table tells what came from where.

    Args:
        inits: what `as_session_init` understands, each; None is left out.

    Raises:
        CheckpointError: if one of them is nothing of that.

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
            CheckpointError: if one of them cannot be restored. Those next to each other are checked together before
                any value is assigned.
        """
        for are_by_name, group in itertools.groupby(self.inits, lambda each: isinstance(each, RestoreByName)):
            members = list(group)
            if are_by_name:
                _run_together(sess, members)
            else:
                for each in members:
                    each.run(sess)


class SmartInit(ChainInit):
    """Takes values from whatever `obj` is.

    Args:
        obj: the path of a checkpoint (prefix, file or directory) or of an ``.npz`` file, a mapping of names to
            arrays, a `SessionInit`, a list of those, or None or ``""`` for nothing.
        ignore_mismatch: a value of another shape than its variable is reshaped if it has as many elements, and left
            out with a warning if not; otherwise it is an error. It does not change a `SessionInit` in `obj`.
        must_match: whether it is an error if no name fits, see `SaverRestore`. It does not change a `SessionInit`.
        weights_only: take only the weights from a path, as for fine-tuning; see `SaverRestore`.

    Raises:
        CheckpointError: if `obj` is none of these, or does not exist.

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
        ignore_mismatch: make do with values of another shape, see `SmartInit`.
        must_match: whether it is an error if no name fits, see `SaverRestore`.
        weights_only: take only the weights from paths, see `SaverRestore`.

    Raises:
        CheckpointError: if it is none of these.
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
        "tpk.DictRestore({name: values[key] for name, key in values.keys_by_variable_name().items()}), "
        "with the names changed to those of the graph where they differ."
    )
