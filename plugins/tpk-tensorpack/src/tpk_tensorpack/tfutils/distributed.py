"""Sessions on TensorFlow's servers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk.session import SessionCreator

__all__ = ["get_distributed_session_creator"]


def get_distributed_session_creator(server: Any) -> SessionCreator:
    """Return a session creator for a server: the first worker initializes the variables, and the others wait for it.

    Args:
        server: the `tf.train.Server` of this process.

    Raises:
        TypeError: `server` is not a `tf.train.Server`.

    Example:
        ```python
        trainer.initialize(get_distributed_session_creator(server), None)
        ```
    """
    if not isinstance(server, tf.compat.v1.train.Server):
        raise TypeError(f"get_distributed_session_creator takes a tf.train.Server, got {server!r}")
    return _ServerSessionCreator(server)


class _ServerSessionCreator(SessionCreator):
    def __init__(self, server: Any) -> None:
        self.server = server
        self.is_chief = server.server_def.task_index == 0

    def create_session(self, graph: Any = None) -> Any:
        """Return a session for `graph`, by default the default graph."""
        graph = tf.compat.v1.get_default_graph() if graph is None else graph
        with graph.as_default():
            manager = tf.compat.v1.train.SessionManager(
                graph=graph,
                ready_op=tf.compat.v1.report_uninitialized_variables(),
                ready_for_local_init_op=tf.compat.v1.report_uninitialized_variables(tf.compat.v1.global_variables()),
                local_init_op=tf.group(tf.compat.v1.local_variables_initializer(), tf.compat.v1.tables_initializer()),
            )
            if self.is_chief:
                initializer = tf.compat.v1.global_variables_initializer()
                return manager.prepare_session(self.server.target, init_op=initializer)
            return manager.wait_for_session(self.server.target)
