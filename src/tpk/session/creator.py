"""Session creators: where a trainer's session comes from."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError, SessionError
from tpk.plugin.recorded_options import RecordsOptions
from tpk.tf_internals import is_closed, unfinalize

_SECONDS_TO_END = 10.0


def default_session_config() -> Any:
    """Return the `tf.compat.v1.ConfigProto` that tpk uses unless told otherwise.

    An op without a kernel for its device runs on one that has it, and GPU memory is taken as needed instead of
    all at once.
    """
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    return config


class SessionCreator(RecordsOptions, abc.ABC):
    """Creates the session of a trainer, or hands over one that exists.

    Attributes:
        owns_session: whether the trainer closes the session at the end.
    """

    owns_session: bool = True

    @abc.abstractmethod
    def create_session(self, graph: Any) -> Any:
        """Return a `tf.compat.v1.Session` of `graph` in which all variables are initialized.

        It is called once, when the graph is complete and not yet finalized.
        """


class NewSessionCreator(SessionCreator):
    """Creates a new session, and runs the initializers of variables and tables in it.

    Args:
        target: the TensorFlow server to connect to; empty for this process.
        config: `tf.compat.v1.ConfigProto`; `default_session_config()` by default.

    Example:
        ```python
        config = tpk.default_session_config()
        config.intra_op_parallelism_threads = 1
        trainer.train(..., session_creator=tpk.NewSessionCreator(config=config))
        ```
    """

    def __init__(self, target: str = "", config: Any = None) -> None:
        self.target = target
        if not isinstance(config, tf.compat.v1.ConfigProto | None):
            raise ConfigError(f"session_config={config!r}: expected a tf.compat.v1.ConfigProto.")
        self.config = config if config is not None else default_session_config()

    def create_session(self, graph: Any) -> Any:
        """Create the session and initialize it."""
        with graph.as_default():
            sess = tf.compat.v1.Session(self.target, graph, self.config)
            sess.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
            sess.run(tf.compat.v1.tables_initializer())
        return sess


class ReuseSessionCreator(SessionCreator):
    """Hands over a session that exists already; the trainer leaves it open at the end.

    Variables that already have a value keep it; those that the trainer added are initialized.

    Args:
        sess: a `tf.compat.v1.Session` of the trainer's graph.
    """

    owns_session = False

    def __init__(self, sess: Any) -> None:
        self.sess = sess

    def create_session(self, graph: Any) -> Any:
        """Return the session, with what is uninitialized in it initialized.

        Raises:
            SessionError: if it is closed, or belongs to another graph than the trainer.
        """
        if self.sess.graph is not graph:
            raise SessionError(
                "the session given to ReuseSessionCreator belongs to another graph than the trainer. "
                "Create the trainer inside `with sess.graph.as_default():`."
            )
        if is_closed(self.sess):
            raise SessionError("the session given to ReuseSessionCreator is closed. Give an open one.")
        with graph.as_default():
            variables = [*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables()]
            ready = self.sess.run([tf.compat.v1.is_variable_initialized(variable) for variable in variables])
            missing = [variable for variable, is_ready in zip(variables, ready, strict=True) if not is_ready]
            self.sess.run([variable.initializer for variable in missing])
            self.sess.run(tf.compat.v1.tables_initializer())
        return self.sess


class GivenSessionCreator(SessionCreator):
    """Lets an object with a ``create_session()``, such as a session creator of TensorFlow, create the session."""

    def __init__(self, creator: Any) -> None:
        self.creator = creator

    def create_session(self, graph: Any) -> Any:
        """Create the session.

        Raises:
            SessionError: if the result is not a `tf.compat.v1.Session` of the trainer's graph.
        """
        was_finalized = graph.finalized
        with graph.as_default():
            sess = self.creator.create_session()
        if graph.finalized and not was_finalized:  # A scaffold finalizes it, but the trainer adds ops.
            unfinalize(graph)
        is_session = isinstance(sess, tf.compat.v1.Session | tf.compat.v1.InteractiveSession)
        if not is_session or sess.graph is not graph:
            raise SessionError(
                f"session_creator: create_session() of {type(self.creator).__name__} returned {sess!r}; expected a raw "
                "tf.compat.v1.Session of the trainer's graph. The trainer calls the hooks itself. Create the trainer "
                "inside `with graph.as_default():`, or the session in the default graph."
            )
        return sess


def as_session_creator(creator: Any, config: Any = None) -> SessionCreator:
    """Return the `SessionCreator` that `creator` means.

    Args:
        creator: a `SessionCreator`; anything else with a ``create_session()`` that returns a `tf.compat.v1.Session` of
            the default graph in which all variables are initialized, such as a session creator of TensorFlow; or None
            for a `NewSessionCreator`.
        config: the `tf.compat.v1.ConfigProto` of a new session.

    Raises:
        ConfigError: if `creator` is anything else, or both are given.

    Example:
        ```python
        creator = as_session_creator(tf.compat.v1.train.ChiefSessionCreator(checkpoint_dir="warm"))
        ```
    """
    if creator is None:
        return NewSessionCreator(config=config)
    if config is not None:
        raise ConfigError(
            "session_creator and session_config exclude each other. Give the config to the session creator."
        )
    if isinstance(creator, SessionCreator):
        return creator
    if isinstance(creator, type) or not callable(getattr(creator, "create_session", None)):
        raise ConfigError(
            f"session_creator={creator!r}: expected an object with create_session(), such as tpk.NewSessionCreator() "
            "or tf.compat.v1.train.ChiefSessionCreator(). For a ConfigProto, give session_config= instead."
        )
    return GivenSessionCreator(creator)


@contextmanager
def running_queues(session: Any, closes_session: bool) -> Iterator[None]:
    """Within the context, the queue runners of the session's graph fill their queues.

    Args:
        session: a session whose variables have their values.
        closes_session: whether the session is closed at the end of the context, if there are queue runners. That ends
            those that wait for a queue without a runner, which the script fills; they would wait for ever.

    Raises:
        Exception: what a queue runner has raised, at the end of the context.
    """
    coordinator = tf.train.Coordinator()
    runners = session.graph.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS)
    for runner in runners:
        runner.create_threads(session, coordinator, daemon=True, start=True)
    try:
        yield
    finally:
        coordinator.request_stop()
        if runners and closes_session:
            session.close()
        coordinator.join(ignore_live_threads=True, stop_grace_period_secs=_SECONDS_TO_END)
