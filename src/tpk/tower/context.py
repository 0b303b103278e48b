"""Tower contexts: the tower that is being built, its kind and its scopes."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, ClassVar

import attrs
import tensorflow as tf

from tpk.errors import TowerError
from tpk.graph.reports.summary_ops import MOVING_SUMMARY_OPS_KEY, without_summaries
from tpk.graph.scopes import added_since, collection_sizes, current_tower, truncate

GraphKeys = tf.compat.v1.GraphKeys

_OF_A_VARIABLE = re.compile(r"(?:^|/)Regularizer(?:_\d+)?/")
"""The scope in which `get_variable` and layers of all kinds create the regularization loss of a variable."""

# Summaries show one tower.
_MAIN_TOWER_ONLY = (GraphKeys.SUMMARIES, MOVING_SUMMARY_OPS_KEY)


def get_current_tower_context() -> TowerContext | Any:
    """Return the context of the tower that is being built, or None outside of a tower function.

    Example:
        ```python
        def build_graph(self, image, label):
            training = tpk.get_current_tower_context().is_training
            rate = 0.5 if training else 0.0
        ```
    """
    # `Any` instead of None, so that type checkers do not require each tower function to test for None.
    return current_tower.get()


def _is_scope_name(instance: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if value and not re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*", value):
        raise TowerError(f"{attribute.name}={value!r} is not a valid name of a TensorFlow scope.")


@attrs.define(kw_only=True, eq=False)
class TowerContext(abc.ABC):
    """The tower that is being built. Use it as a context manager, once, around the call of a `TowerFunc`.

    Use a subclass: `TrainTowerContext` or `PredictTowerContext`.

    Attributes:
        is_training: whether this tower is trained.
        ns_name: the name scope of the tower; empty for the root scope.
        vs_name: the variable scope of the tower; empty if it shares the variables of the scope around it.
        index: the index among the towers of its kind, from 0.
        total: the number of towers of its kind.
    """

    is_training: ClassVar[bool]
    ns_name: str = attrs.field(default="", validator=_is_scope_name)
    vs_name: str = attrs.field(default="", validator=_is_scope_name)
    index: int = 0
    total: int = 1
    _sizes: dict[str, int] = attrs.field(factory=dict, init=False)
    _added: dict[str, list[Any]] | None = attrs.field(default=None, init=False)
    _scopes: ExitStack | None = attrs.field(default=None, init=False)

    @property
    @abc.abstractmethod
    def has_own_variables(self) -> bool:
        """Whether the tower creates variables, because it is the first or has a separate variable scope."""

    @property
    def is_main_tower(self) -> bool:
        """Whether this is the first tower of its kind."""
        return self.index == 0

    @property
    def is_main_training_tower(self) -> bool:
        """Whether this is the training tower whose summaries are shown and whose variables are saved."""
        return self.is_training and self.is_main_tower

    def get_collection_in_tower(self, key: str) -> list[Any]:
        """Return what this tower added to the collection `key`, so far or until it was complete."""
        if self._added is None:
            return added_since(self._sizes).get(key, [])
        return list(self._added.get(key, []))

    def __enter__(self) -> TowerContext:
        around = current_tower.get()
        if around is not None:
            raise TowerError(
                f"a tower cannot be built inside another one: {self} inside {around}. "
                "Build it outside of the tower function, e.g. in a callback's setup_graph."
            )
        if self._scopes is not None:
            raise TowerError(f"{self} was entered before. Make a new context for each tower.")
        self._scopes = ExitStack()
        self._scopes.enter_context(self._building())
        return self

    def __exit__(self, *exception: Any) -> None:
        assert self._scopes is not None
        self._scopes.close()

    @contextmanager
    def _building(self) -> Iterator[None]:
        scope = self.vs_name or tf.compat.v1.get_variable_scope()
        reuse = None if self.has_own_variables else True
        with (
            self._as_current(),
            tf.compat.v1.variable_scope(scope, reuse=reuse, auxiliary_name_scope=False),
            # With the slash, the scope is absolute and entered again instead of made unique.
            tf.name_scope(self.ns_name + "/" if self.ns_name else ""),
            nullcontext() if self.is_main_training_tower else without_summaries(),
            self._with_own_losses(),
        ):
            self._sizes = collection_sizes()
            yield
            self._added = added_since(self._sizes)
            if not self.is_main_training_tower:
                truncate(_MAIN_TOWER_ONLY, self._sizes)
            if not (self.is_training and self.has_own_variables):
                # Updates of shared variables run once, in the training tower that created the variables.
                truncate([GraphKeys.UPDATE_OPS, GraphKeys.TRAIN_OP, GraphKeys.REGULARIZATION_LOSSES], self._sizes)

    @contextmanager
    def _as_current(self) -> Iterator[None]:
        token = current_tower.set(self)
        try:
            yield
        finally:
            current_tower.reset(token)

    @contextmanager
    def _with_own_losses(self) -> Iterator[None]:
        """Hide the losses of earlier towers, so that a tower that asks for the losses in the graph gets its own.

        The regularization loss of a variable is collected only in the tower that creates the variable, so it stays
        visible in towers that share the variable.
        """
        hidden: dict[str, list[Any]] = {}
        if not self.is_main_training_tower:
            for key in (GraphKeys.LOSSES, GraphKeys.REGULARIZATION_LOSSES):
                losses = tf.compat.v1.get_collection_ref(key)
                hidden[key] = list(losses)
                is_shared = key == GraphKeys.REGULARIZATION_LOSSES and not self.has_own_variables
                losses[:] = [loss for loss in losses if is_shared and _OF_A_VARIABLE.search(loss.op.name)]
        try:
            yield
        finally:
            for key, losses in hidden.items():
                tf.compat.v1.get_collection_ref(key)[:] = losses


@attrs.define(kw_only=True, eq=False)
class TrainTowerContext(TowerContext):
    """The context of a training tower.

    The first tower creates the variables. The others share them, unless they have a separate variable scope.

    Example:
        ```python
        with tpk.TrainTowerContext(ns_name="tower1", index=1, total=2):
            cost = tower_func(*inputs)
        ```
    """

    is_training = True

    @property
    def has_own_variables(self) -> bool:
        """Whether this is the first tower or has a separate variable scope."""
        return self.index == 0 or bool(self.vs_name)


@attrs.define(kw_only=True, eq=False)
class PredictTowerContext(TowerContext):
    """The context of an inference tower: it shares the variables of `vs_name` and does not affect training.

    Attributes:
        creates_variables: True for a tower in a graph without training, which creates its own variables.
    """

    is_training = False
    creates_variables: bool = False

    @property
    def has_own_variables(self) -> bool:
        """Whether this tower creates its own variables."""
        return self.creates_variables
