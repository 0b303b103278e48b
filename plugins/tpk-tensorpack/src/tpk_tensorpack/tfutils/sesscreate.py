"""Session creators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

import tpk.session
from tpk_tensorpack.tfutils.common import get_default_sess_config

__all__ = ["NewSessionCreator", "ReuseSessionCreator", "SessionCreatorAdapter"]


class NewSessionCreator(tpk.session.NewSessionCreator):
    """Create a new session, and initialize variables and tables in it.

    Args:
        target: the server to connect to; empty for this process.
        config: a `tf.ConfigProto`; by default `get_default_sess_config()`.
    """

    def __init__(self, target: str = "", config: Any = None) -> None:
        super().__init__(target, get_default_sess_config() if config is None else config)

    def create_session(self, graph: Any = None) -> Any:
        """Return a session for `graph`, by default the default graph."""
        return super().create_session(tf.compat.v1.get_default_graph() if graph is None else graph)


class ReuseSessionCreator(tpk.session.ReuseSessionCreator):
    """Return an existing session.

    Args:
        sess: the session.
    """

    def create_session(self, graph: Any = None) -> Any:
        """Return the session, after initializing variables without a value."""
        return super().create_session(self.sess.graph if graph is None else graph)


class SessionCreatorAdapter(tpk.session.SessionCreator):
    """Apply a function to the session of another creator, for example to wrap it in a debugger.

    Args:
        session_creator: the other creator.
        func: takes the session and returns another session.

    Example:
        ```python
        creator = SessionCreatorAdapter(NewSessionCreator(), lambda sess: tf_debug.LocalCLIDebugWrapperSession(sess))
        ```
    """

    def __init__(self, session_creator: Any, func: Callable[[Any], Any]) -> None:
        self.session_creator = tpk.session.as_session_creator(session_creator)
        self.func = func

    def create_session(self, graph: Any = None) -> Any:
        """Return the result of the function for the session."""
        return self.func(
            self.session_creator.create_session(tf.compat.v1.get_default_graph() if graph is None else graph)
        )
