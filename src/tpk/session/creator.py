"""Session creators: where a trainer's session comes from."""

from __future__ import annotations

import abc
import copy
import logging
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError, SessionError
from tpk.plugin.options import RecordsOptions
from tpk.tf_internals import is_closed, unfinalize

logger = logging.getLogger(__name__)


def default_session_config() -> Any:
    """Return the `tf.compat.v1.ConfigProto` that tpk uses unless told otherwise.

    An op without a kernel for its device runs on one that has it, and GPU memory is taken as needed instead of
    all at once.
    """
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    return config


class SessionCreator(RecordsOptions, abc.ABC):
    """Creates the session of a trainer, or hands over one that exists."""

    @abc.abstractmethod
    def create_session(self, graph: Any) -> Any:
        """Return a `tf.compat.v1.Session` of `graph` in which all variables are initialized.

        It is called once, when the graph is complete and not yet finalized.
        """

    @property
    def owns_session(self) -> bool:
        """Whether the trainer closes the session at the end."""
        return True


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
        self.config = config if config is not None else default_session_config()

    def create_session(self, graph: Any) -> Any:
        """Create the session and initialize it."""
        with graph.as_default():
            sess = tf.compat.v1.Session(self.target, graph, self.config)
            sess.run(
                tf.group(
                    tf.compat.v1.global_variables_initializer(),
                    tf.compat.v1.local_variables_initializer(),
                )
            )
            sess.run(tf.compat.v1.tables_initializer())
        return sess


class ReuseSessionCreator(SessionCreator):
    """Hands over a session that exists already; the trainer leaves it open at the end.

    Variables that already have a value keep it; those that the trainer added are initialized.

    Args:
        sess: a `tf.compat.v1.Session` of the trainer's graph.
    """

    def __init__(self, sess: Any) -> None:
        self.sess = sess

    @property
    def owns_session(self) -> bool:
        """False: the session belongs to the caller."""
        return False

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


class TensorFlowSessionCreator(SessionCreator):
    """Lets a session creator of TensorFlow create the session: `as_session_creator` makes one of what it is given.

    Its scaffold, config and checkpoint mean what they mean under a `MonitoredSession`. What it restores from its
    checkpoint, a `session_init`, and a run that is resumed, overwrite. Ops may still be added to the graph afterwards,
    whether or not the scaffold has finalized it: the trainer does that.

    Args:
        creator: a `tf.compat.v1.train.ChiefSessionCreator`, or anything else with a ``create_session()`` that returns a
            `tf.compat.v1.Session` of the graph that is the default one at that time, with all variables initialized.

    Raises:
        ConfigError: if it waits for another process to initialize the variables, as a `WorkerSessionCreator` does.

    Example:
        ```python
        scaffold = tf.compat.v1.train.Scaffold(init_fn=lambda scaffold, sess: pretrained.restore(sess, "resnet.ckpt"))
        trainer.train(..., session_creator=tf.compat.v1.train.ChiefSessionCreator(scaffold, checkpoint_dir="warm"))
        ```
    """

    def __init__(self, creator: Any) -> None:
        if isinstance(creator, tf.compat.v1.train.WorkerSessionCreator):
            raise ConfigError(
                "session_creator: a WorkerSessionCreator waits until another process has initialized the variables, "
                "and here each process does that itself. Give a tf.compat.v1.train.ChiefSessionCreator."
            )
        self.creator = creator

    @property
    def config(self) -> Any:
        """The `tf.compat.v1.ConfigProto` of the session, if the creator is one of TensorFlow's own; else None.

        One that it is given is for this object alone.
        """
        if not isinstance(self.creator, tf.compat.v1.train.ChiefSessionCreator):
            return None
        return default_session_config() if self.creator._config is None else self.creator._config

    @config.setter
    def config(self, config: Any) -> None:
        self.creator = copy.copy(self.creator)
        self.creator._config = config

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint, or the directory of it, from which it restores variables, as far as that is known."""
        path = getattr(self.creator, "_checkpoint_filename_with_path", None)
        return path or getattr(self.creator, "_checkpoint_dir", None) or None

    def create_session(self, graph: Any) -> Any:
        """Let the creator create it.

        Raises:
            SessionError: if that is no `tf.compat.v1.Session`, or it or the scaffold belongs to another graph.
        """
        self._check_scaffold(graph)
        was_finalized = graph.finalized
        with graph.as_default():
            sess = self.creator.create_session()
        if graph.finalized and not was_finalized:
            unfinalize(graph)
        kind = type(self.creator).__name__
        if not isinstance(sess, tf.compat.v1.Session | tf.compat.v1.InteractiveSession):
            raise SessionError(
                f"session_creator: create_session() of {kind} returned {sess!r}; expected a tf.compat.v1.Session. The "
                "hooks of the step are the trainer's business: return the raw session."
            )
        if sess.graph is not graph:
            raise SessionError(
                f"session_creator: the session that {kind} created belongs to another graph than the trainer. Create "
                "the trainer inside `with graph.as_default():`, or the session of the graph that is the default one."
            )
        return sess

    def _check_scaffold(self, graph: Any) -> None:
        scaffold = getattr(self.creator, "_scaffold", None)
        ops = [getattr(scaffold, name, None) for name in ("init_op", "local_init_op", "ready_op", "summary_op")]
        if any(getattr(op, "graph", graph) is not graph for op in ops):
            raise SessionError(
                "session_creator: the scaffold has ops of another graph than the trainer's, be it that it has served "
                "another training: a tf.compat.v1.train.Scaffold serves one graph. Make a new one, and ops for it "
                "inside `with trainer.graph.as_default():`."
            )


def as_session_creator(creator: Any) -> SessionCreator:
    """Return the `SessionCreator` that `creator` means.

    Args:
        creator: a `SessionCreator`; a session creator of TensorFlow, or anything else with ``create_session()``; or
            None for a `NewSessionCreator`.

    Raises:
        ConfigError: if it is none of these.

    Example:
        ```python
        creator = as_session_creator(tf.compat.v1.train.ChiefSessionCreator(checkpoint_dir="warm"))
        ```
    """
    if creator is None:
        return NewSessionCreator()
    if isinstance(creator, SessionCreator):
        return creator
    if isinstance(creator, type) or not callable(getattr(creator, "create_session", None)):
        is_class = isinstance(creator, type)
        remedy = f"Write {creator.__name__}()." if is_class else "Or give session_config=ConfigProto()."
        raise ConfigError(
            f"session_creator={creator!r}: expected a tpk.SessionCreator such as tpk.NewSessionCreator(), or one of "
            f"TensorFlow such as tf.compat.v1.train.ChiefSessionCreator(), which has create_session(). {remedy}"
        )
    return TensorFlowSessionCreator(creator)
