"""Hyperparameters that a callback can set: variables of the graph, and attributes of Python objects."""

from __future__ import annotations

import abc
import difflib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError, TrainerStateError
from tpk.graph.variables import by_name


class HyperParam(abc.ABC):
    """A number that influences the training and can be changed while it runs."""

    def setup_graph(self) -> None:  # noqa: B027 - not every kind has something to add
        """Add to the default graph what setting the value needs."""

    @abc.abstractmethod
    def set_value(self, value: Any) -> None:
        """Give the hyperparameter a new value, in the default session if it needs one."""

    @abc.abstractmethod
    def get_value(self) -> Any:
        """Return the current value, as plain Python data."""

    @property
    @abc.abstractmethod
    def readable_name(self) -> str:
        """The name that logs show."""


class GraphVarParam(HyperParam):
    """A variable of the graph, such as a learning rate.

    Args:
        name: the name of a global or local variable, with or without ``:0``.

    Example:
        ```python
        tf.compat.v1.get_variable("learning_rate", initializer=1e-3, trainable=False)
        ScheduledHyperParamSetter(GraphVarParam("learning_rate"), [(10, 1e-4)])
        ```
    """

    def __init__(self, name: str) -> None:
        self.name = name.removesuffix(":0")
        self._variable: Any = None
        self._new_value: Any = None
        self._assign: Any = None
        self._sess: Any = None
        self._set: Callable[[Any], Any] | None = None

    @property
    def readable_name(self) -> str:
        """The name of the variable."""
        return self.name

    def setup_graph(self) -> None:
        """Find the variable, and build what assigns to it.

        Raises:
            ConfigError: if there is no such variable; the message lists the nearest names.
        """
        variables = by_name([*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables()])
        if self.name not in variables:
            raise ConfigError(f"the graph has no variable {self.name!r}.{_nearest(self.name, list(variables))}")
        self._variable = variables[self.name]
        with tf.name_scope("set_hyper_param/"):
            self._new_value = tf.compat.v1.placeholder(self._variable.dtype.base_dtype, self._variable.shape)
            assign = self._variable.assign(self._new_value, read_value=False)
        self._assign = getattr(assign, "op", assign)

    def set_value(self, value: Any) -> None:
        """Assign to the variable, in the default session."""
        sess = self._default_session()
        if sess is not self._sess:
            self._sess, self._set = sess, sess.make_callable(self._assign, feed_list=[self._new_value])
        assert self._set is not None
        self._set(value)

    def get_value(self) -> Any:
        """Return the value of the variable in the default session: a number, or a list of them."""
        return self._default_session().run(self._variable).tolist()

    def _default_session(self) -> Any:
        sess = tf.compat.v1.get_default_session()
        if sess is None or self._variable is None:
            raise TrainerStateError(
                f"the variable {self.name!r} has a value only while a training runs: call setup_graph first, "
                "and then have a default session."
            )
        return sess


class ObjAttrParam(HyperParam):
    """An attribute of a Python object.

    Args:
        obj: any object.
        attr: the name of its attribute.
        readable_name: the name that logs show; that of the attribute by default.
    """

    def __init__(self, obj: object, attr: str, readable_name: str | None = None) -> None:
        self._obj = obj
        self._attr = attr
        self._readable_name = readable_name or attr

    @property
    def readable_name(self) -> str:
        """The name that logs show."""
        return self._readable_name

    def set_value(self, value: Any) -> None:
        """Set the attribute."""
        setattr(self._obj, self._attr, value)

    def get_value(self) -> Any:
        """Return the attribute."""
        return getattr(self._obj, self._attr)


def _nearest(name: str, known: list[str]) -> str:
    in_scopes = [other for other in known if other.endswith("/" + name)]
    nearest = in_scopes or difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if nearest:
        return f" The nearest: {', '.join(nearest)}."
    return f" It has {', '.join(known[:10])}{', …' if len(known) > 10 else ''}." if known else " It has none at all."
