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


class SessionInit(tpk.SessionInit):
    """Gives variables of a new session their values; a subclass overrides `_run_init`, and maybe `_setup_graph`."""

    def init(self, sess: Any) -> None:
        """Give the values, in the session `sess`."""
        self.run(sess)

    def run(self, sess: Any) -> None:
        """Add to the graph what is needed, and give the values."""
        graph = sess.graph
        # A graph that is set up late may be finalized already.
        with unfinalized(graph), graph.as_default():
            self._setup_graph()
        self._run_init(sess)

    def _setup_graph(self) -> None:
        pass

    def _run_init(self, sess: Any) -> None:
        pass


class JustCurrentSession(SessionInit):
    """Leaves everything as it is in the session: variables keep their initial values."""


class _ByName:
    """What restores by name can be called by tensorpack's name."""

    def init(self, sess: Any) -> None:
        """Give the values, in the session `sess`."""
        self.run(sess)  # type: ignore[attr-defined]


class SaverRestore(_ByName, tpk.SaverRestore):
    """Takes values from a checkpoint; a warning tells if nothing in it fits.

    Args:
        model_path: of the checkpoint: its prefix, one of its files, or the file ``checkpoint``.
        prefix: each name in the checkpoint stands for the variable ``<prefix>/<name>``.
        ignore: names that are left out.

    Raises:
        CheckpointError: there is no checkpoint; or, when it runs, a shape does not fit.
    """

    def __init__(
        self, model_path: str | os.PathLike[str], prefix: str | None = None, ignore: Collection[str] = ()
    ) -> None:
        super().__init__(model_path, prefix, ignore, must_match=False)
        self.path = os.fspath(model_path)


class SaverRestoreRelaxed(SaverRestore):
    """Takes values like `SaverRestore`; those of another shape are reshaped, or left out with a warning."""

    _ignore_mismatch = True


class DictRestore(_ByName, tpk.DictRestore):
    """Takes values from a mapping of names to arrays.

    Args:
        variable_dict: arrays by the names of variables, with or without ``:0``.
        ignore_mismatch: reshape or leave out values of another shape.

    Raises:
        CheckpointError: `variable_dict` is no such mapping; or, when it runs, a shape does not fit.
    """

    def __init__(self, variable_dict: Mapping[str, Any], ignore_mismatch: bool = False) -> None:
        super().__init__(variable_dict, ignore_mismatch, must_match=False)


class _NpzRestore(_ByName, tpk.checkpoint.session_init.NpzRestore):
    """Takes values from an ``.npz`` file."""


class ChainInit(_ByName, tpk.checkpoint.ChainInit):
    """Takes values from several places in order; what a later one has wins.

    Args:
        sess_inits: `SessionInit` objects.
    """

    def __init__(self, sess_inits: Iterable[Any]) -> None:
        super().__init__(sess_inits)


def SmartInit(obj: Any, *, ignore_mismatch: bool = False) -> Any:
    """Return the `SessionInit` that takes values from whatever `obj` is.

    Args:
        obj: the path of a checkpoint or of an ``.npz`` file, a mapping of names to arrays, a `SessionInit`, a list of
            those; nothing (None or ``""``) is `JustCurrentSession`.
        ignore_mismatch: reshape or leave out values of another shape.

    Raises:
        CheckpointError: there is no such file, or `obj` is something else.

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
    return tpk.checkpoint.session_init.as_session_init(obj)


get_model_loader = SmartInit
