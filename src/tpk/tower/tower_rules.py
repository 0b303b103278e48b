"""The rules of tower functions, checked after each call.

1. A tower function may be called several times, so further calls must share variables or create them in a separate
   scope: variables come from `tf.compat.v1.get_variable` (or `tpk.layers`), not from `tf.Variable`.
2. The names of trainable variables start with the variable scope in which the function was called.
3. Keras models and layers are called through a `tpk_keras.KerasModel`.
4. No scope inside it is called ``tower…``: those names belong to the towers themselves.
5. It returns the cost and does not minimize it: the trainer does.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tpk.errors import TowerError
from tpk.graph.random import COUNTERS
from tpk.graph.variables import variable_name
from tpk.tower.context import TowerContext

_TOWER_SCOPE = re.compile(r"^tower\d*$")
_UPDATE_BY_OPTIMIZER = re.compile(r"^(Resource)?(Sparse)?Apply")
_VARIABLES = ("VarHandleOp", "VariableV2")
_KERAS_PACKAGES = ("keras", "tf_keras")


def check_rules(context: TowerContext, scope_name: str, new_ops: Iterable[Any]) -> None:
    """Check the ops and variables that a call of a tower function created.

    Args:
        context: the context of the call.
        scope_name: the name of the variable scope around the call.
        new_ops: the operations that it created.

    Raises:
        TowerError: if a rule is broken; the message names the variable or op, and the rule.
    """
    _check_keras_creates_nothing(context, new_ops)
    _check_does_not_train(context, new_ops)
    _check_variables_are_shared(context, set(new_ops))
    _check_names_start_with_scope(context, scope_name)
    _check_no_tower_scope(context, new_ops)


def _check_keras_creates_nothing(context: TowerContext, new_ops: Iterable[Any]) -> None:
    names = ", ".join(op.name for op in new_ops if op.type in _VARIABLES and _is_created_by_keras(op))
    if names:
        raise TowerError(
            f"Keras created variables by itself in {_describe(context)}: {names}. Towers could not share them, their "
            "names would depend on what else has been built, and updates by their layers would be lost. Rule: Keras "
            "models and layers are called through a KerasModel, which is in the package tpk-keras "
            '(`pip install "tpk-train[keras]"`). Make net = tpk_keras.KerasModel(build) once, outside of the tower '
            "function, where build() returns the Keras model or layer, and call net(inputs) in it."
        )


def _is_created_by_keras(op: Any) -> bool:
    """Whether Keras itself, and not user code that it called, created a variable."""
    packages = [sys.modules.get(name) for name in _KERAS_PACKAGES]
    folders = tuple(os.path.join(path, "") for package in packages for path in getattr(package, "__path__", ()))
    for frame in reversed(op.traceback):
        if frame.name == "get_variable":
            return False
        if frame.filename.startswith(folders):
            return True
    return False


def _check_does_not_train(context: TowerContext, new_ops: Iterable[Any]) -> None:
    for op in new_ops:
        if _UPDATE_BY_OPTIMIZER.match(op.type):
            raise TowerError(
                f"{op.name!r} is the update of an optimizer, created in {_describe(context)}. Rule: a tower function "
                "returns the cost, and does not minimize it. Leave minimize() out, and return the optimizer from "
                "optimizer(); for several costs, see tpk.MultiObjectiveTrainer."
            )


def _check_variables_are_shared(context: TowerContext, new_ops: set[Any]) -> None:
    if context.has_own_variables:
        return
    in_tower = context.get_collection_in_tower(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    # The function of a `TensorInput` may have created others, for this tower alone.
    created = [variable for variable in in_tower if variable.op in new_ops]
    names = ", ".join(name for name in map(variable_name, created) if name not in COUNTERS)
    if names:
        raise TowerError(
            f"the tower function created variables when it was called again, in {_describe(context)}, which shares "
            f"the variables of the first tower: {names}. Rule: a tower function may be called several times. "
            "Create variables by tf.compat.v1.get_variable or tpk.layers, not by tf.Variable."
        )


def _check_names_start_with_scope(context: TowerContext, scope_name: str) -> None:
    if not scope_name:
        return
    for variable in context.get_collection_in_tower(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES):
        if not variable_name(variable).startswith(scope_name + "/"):
            raise TowerError(
                f"the trainable variable {variable_name(variable)!r} was created in {_describe(context)}, but its name "
                f"does not start with {scope_name + '/'!r}. Rule: trainable variables start with the variable scope "
                "in which the tower function is called. Do not leave that scope, and create variables by "
                "tf.compat.v1.get_variable."
            )


def _check_no_tower_scope(context: TowerContext, new_ops: Iterable[Any]) -> None:
    # Gradients that are taken inside of a tower repeat its name: tower0/gradients/tower0/...
    own = {context.ns_name, context.vs_name}
    for op in new_ops:
        if any(_TOWER_SCOPE.match(part) and part not in own for part in op.name.split("/")[:-1]):
            raise TowerError(
                f"{op.name!r}, created in {_describe(context)}, is in a scope called 'tower…'. Rule: no scope in a "
                "tower function has such a name; it belongs to the towers themselves. Rename the scope."
            )


def _describe(context: TowerContext) -> str:
    kind = "training" if context.is_training else "inference"
    where = f" {context.ns_name!r}" if context.ns_name else ""
    return f"{kind} tower {context.index}{where}"
