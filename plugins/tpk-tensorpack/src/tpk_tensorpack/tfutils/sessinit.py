"""Initial values of variables: from checkpoints, files and dictionaries."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import tpk
from tpk.tf_internals import unfinalized
from tpk_tensorpack.utils import logger

__all__ = [
    "ChainInit",
    "DictRestore",
    "JustCurrentSession",
    "SaverRestore",
    "SaverRestoreRelaxed",
    "SessionInit",
    "SmartInit",
    "get_model_loader",
]


class _HasInit:
    """Gives an initializer of tpk tensorpack's name for its `run`."""

    def init(self, sess: Any) -> None:
        """Initialize the variables in the session `sess`."""
        self.run(sess)  # type: ignore[attr-defined]


class SessionInit(_HasInit, tpk.SessionInit):
    """Base class of initializers for a new session; a subclass overrides `_run_init`, and optionally `_setup_graph`."""

    def run(self, sess: Any) -> None:
        """Add the required ops to the graph and initialize the variables."""
        graph = sess.graph
        # A graph that is set up late may already be finalized.
        with unfinalized(graph), graph.as_default():
            self._setup_graph()
        self._run_init(sess)

    def _setup_graph(self) -> None:
        pass

    def _run_init(self, sess: Any) -> None:
        pass


class JustCurrentSession(SessionInit):
    """Leave the session unchanged: variables keep their initial values."""


class SaverRestore(_HasInit, tpk.SaverRestore):
    """Restore variables from a checkpoint; log a warning if no name matches.

    Args:
        model_path: the prefix of the checkpoint, one of its files, or the file ``checkpoint``.
        prefix: a prefix to add: the name ``<name>`` in the checkpoint is the variable ``<prefix>/<name>``.
        ignore: names to skip.

    Raises:
        CheckpointError: the checkpoint is missing, or (when run) a shape does not match.
    """

    def __init__(
        self, model_path: str | os.PathLike[str], prefix: str | None = None, ignore: Collection[str] = ()
    ) -> None:
        super().__init__(model_path, prefix, ignore, must_match=False)
        self.path = os.fspath(model_path)


class SaverRestoreRelaxed(SaverRestore):
    """Like `SaverRestore`, but reshape values of a different shape, or skip them with a warning."""

    def __init__(
        self, model_path: str | os.PathLike[str], prefix: str | None = None, ignore: Collection[str] = ()
    ) -> None:
        super().__init__(model_path, prefix, ignore)
        self.ignore_mismatch = True


class DictRestore(_HasInit, tpk.DictRestore):
    """Set variables from a mapping of names to arrays.

    Args:
        variable_dict: arrays by variable name, with or without ``:0``.
        ignore_mismatch: whether to reshape or skip values of a different shape.

    Raises:
        CheckpointError: `variable_dict` is not such a mapping, or (when run) a shape does not match.
    """

    def __init__(self, variable_dict: Mapping[str, Any], ignore_mismatch: bool = False) -> None:
        super().__init__(variable_dict, ignore_mismatch, must_match=False)


class _NpzRestore(_HasInit, tpk.NpzRestore):
    """Set variables from an ``.npz`` file."""


class ChainInit(_HasInit, tpk.checkpoint.ChainInit):
    """Apply several initializers in order; later values override earlier ones.

    Args:
        sess_inits: `SessionInit` objects.
    """

    def __init__(self, sess_inits: Iterable[Any]) -> None:
        super().__init__(sess_inits)


def SmartInit(obj: Any, *, ignore_mismatch: bool = False) -> Any:
    """Return the `SessionInit` for any kind of `obj`.

    Args:
        obj: the path of a checkpoint or ``.npz`` file, a mapping of names to arrays, a `SessionInit`, or a list of
            these; None or ``""`` means `JustCurrentSession`.
        ignore_mismatch: whether to reshape or skip values of a different shape.

    Raises:
        CheckpointError: the file is missing, or the type of `obj` is not supported.

    Example:
        ```python
        config = TrainConfig(..., session_init=SmartInit(args.load))
        ```
    """
    if obj is None or (isinstance(obj, str) and not obj):
        logger.info("nothing to load: variables keep their initial values")
        return JustCurrentSession()
    if isinstance(obj, list | tuple):
        return ChainInit([SmartInit(each, ignore_mismatch=ignore_mismatch) for each in obj])
    if isinstance(obj, Mapping):
        return DictRestore(obj, ignore_mismatch)
    if isinstance(obj, str | os.PathLike):
        if os.fspath(obj).endswith(".npz"):
            return _NpzRestore(obj, ignore_mismatch, must_match=False)
        return (SaverRestoreRelaxed if ignore_mismatch else SaverRestore)(obj)
    return obj if isinstance(obj, tpk.SessionInit) else tpk.SmartInit(obj)  # raises an error


get_model_loader = SmartInit
