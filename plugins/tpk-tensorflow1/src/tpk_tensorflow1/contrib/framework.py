"""`tf.contrib.framework`: checkpoints and the global step. Variables and argument scopes come from tf_slim."""

from __future__ import annotations

from typing import Any

import tensorflow as _tf
from tf_slim.ops.arg_scope import arg_scope as arg_scope

from tpk_tensorflow1 import internals as nest
from tpk_tensorflow1.missing import finder_in, own_names

v1 = _tf.compat.v1

argsort = _tf.argsort
sort = _tf.sort
is_tensor = _tf.is_tensor
list_variables = _tf.train.list_variables
load_variable = _tf.train.load_variable
load_checkpoint = _tf.train.load_checkpoint
init_from_checkpoint = v1.train.init_from_checkpoint
get_global_step = v1.train.get_global_step
get_or_create_global_step = v1.train.get_or_create_global_step
create_global_step = v1.train.create_global_step


def get_name_scope() -> str:
    """Return the name scope of the default graph."""
    return str(v1.get_default_graph().get_name_scope())


# The function of tf_slim uses a name that TensorFlow has moved.
def local_variable(initial_value: Any, validate_shape: bool = True, name: str | None = None) -> Any:
    """Return a new variable in the collection ``LOCAL_VARIABLES``, which is neither trained nor saved."""
    local = {"trainable": False, "collections": [v1.GraphKeys.LOCAL_VARIABLES]}
    return v1.Variable(initial_value, validate_shape=validate_shape, name=name, **local)


__all__ = ["arg_scope", "nest", *own_names(__name__)]

__getattr__ = finder_in("tf.contrib.framework", __all__)
