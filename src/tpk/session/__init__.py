"""What runs a graph: how a session is created, initialized, and run together with hooks."""

from __future__ import annotations

from tpk.session.creator import (
    NewSessionCreator,
    ReuseSessionCreator,
    SessionCreator,
    default_session_config,
)
from tpk.session.hooked import HookedSession
from tpk.session.init import DictRestore, SaverRestore, SessionInit, as_session_init
from tpk.session.progress import Progress

__all__ = [
    "DictRestore",
    "HookedSession",
    "NewSessionCreator",
    "Progress",
    "ReuseSessionCreator",
    "SaverRestore",
    "SessionCreator",
    "SessionInit",
    "as_session_init",
    "default_session_config",
]
