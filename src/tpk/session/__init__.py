"""What runs a graph: how a session is created, initialized, and run together with hooks.

The names are resolved when they are first used: some files of this room need no TensorFlow, and what uses only those
shall not wait for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpk.session.checkpoint_files import Checkpoint as Checkpoint, newest_complete as newest_complete
    from tpk.session.checkpoint_reader import (
        CheckpointReader as CheckpointReader,
        find_checkpoint as find_checkpoint,
    )
    from tpk.session.creator import (
        NewSessionCreator as NewSessionCreator,
        ReuseSessionCreator as ReuseSessionCreator,
        SessionCreator as SessionCreator,
        default_session_config as default_session_config,
    )
    from tpk.session.hooked import HookedSession as HookedSession
    from tpk.session.init import (
        ChainInit as ChainInit,
        DictRestore as DictRestore,
        NpzRestore as NpzRestore,
        SaverRestore as SaverRestore,
        SaverRestoreRelaxed as SaverRestoreRelaxed,
        SessionInit as SessionInit,
        SmartInit as SmartInit,
        as_session_init as as_session_init,
    )
    from tpk.session.keras_restore import KerasRestore as KerasRestore
    from tpk.session.progress import Progress as Progress

_HOME = {
    "ChainInit": "tpk.session.init",
    "Checkpoint": "tpk.session.checkpoint_files",
    "CheckpointReader": "tpk.session.checkpoint_reader",
    "DictRestore": "tpk.session.init",
    "HookedSession": "tpk.session.hooked",
    "KerasRestore": "tpk.session.keras_restore",
    "NewSessionCreator": "tpk.session.creator",
    "NpzRestore": "tpk.session.init",
    "Progress": "tpk.session.progress",
    "ReuseSessionCreator": "tpk.session.creator",
    "SaverRestore": "tpk.session.init",
    "SaverRestoreRelaxed": "tpk.session.init",
    "SessionCreator": "tpk.session.creator",
    "SessionInit": "tpk.session.init",
    "SmartInit": "tpk.session.init",
    "as_session_init": "tpk.session.init",
    "default_session_config": "tpk.session.creator",
    "find_checkpoint": "tpk.session.checkpoint_reader",
    "newest_complete": "tpk.session.checkpoint_files",
}
__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tpk.session' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
