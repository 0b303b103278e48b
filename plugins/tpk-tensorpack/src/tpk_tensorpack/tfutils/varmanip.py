"""Values of variables in sessions, checkpoints and ``.npz`` files."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.checkpoint import CheckpointReader, NpzReader, find_checkpoint
from tpk.graph.variables import assign_values, variable_name
from tpk_tensorpack.errors import CheckError
from tpk_tensorpack.tfutils.common import default_session, get_op_tensor_name
from tpk_tensorpack.utils import logger

__all__ = [
    "SessionUpdate",
    "dump_session_params",
    "get_all_checkpoints",
    "get_checkpoint_path",
    "load_checkpoint_vars",
    "load_chkpt_vars",
    "save_checkpoint_vars",
    "save_chkpt_vars",
]

Array = np.ndarray[Any, Any]

_OF_TRAINING = re.compile(r"(Adam(_1)?|Momentum|Adadelta(_1)?|RMSProp(_1)?|Adagrad|AccumGrad)(/|$)|^EMA/|/EMA_apply$")


class SessionUpdate:
    """Set variables of a session by name.

    Args:
        sess: the session.
        vars_to_update: the variables.
        ignore_mismatch: whether to reshape or skip values of a different shape with a warning, instead of an error.
    """

    def __init__(self, sess: Any, vars_to_update: Sequence[Any], ignore_mismatch: bool = False) -> None:
        self.sess = sess
        self.name_map = {variable_name(variable): variable for variable in vars_to_update}
        self.ignore_mismatch = ignore_mismatch

    @staticmethod
    def relaxed_value_for_var(value: Any, var: Any, ignore_mismatch: bool = False) -> Array | None:
        """Return a value with the shape and dtype of a variable, or None if a mismatch is ignored.

        Raises:
            ValueError: the value does not fit.
        """
        array = np.asarray(value)
        shape = tuple(var.shape.as_list())
        if array.shape != shape:
            if not ignore_mismatch:
                raise ValueError(
                    f"the variable {variable_name(var)} has shape {shape}, and the value {array.shape}; reshape it, "
                    "or ignore_mismatch=True"
                )
            if array.size != np.prod(shape, dtype=np.int64):
                logger.warning("%s: ignoring a value of shape %s; the variable has %s", var.name, array.shape, shape)
                return None
            logger.warning("%s: reshaping a value of shape %s to %s", var.name, array.shape, shape)
            array = array.reshape(shape)
        cast: Array = array.astype(var.dtype.base_dtype.as_numpy_dtype, copy=False)
        return cast

    def update(self, prms: Mapping[str, Any]) -> None:
        """Set the variables.

        Args:
            prms: values by name, with or without ``:0``.

        Raises:
            ValueError: a name is unknown, or a shape does not match.
        """
        values = []
        for name, value in prms.items():
            variable = self.name_map.get(get_op_tensor_name(name)[0])
            if variable is None:
                raise CheckError(
                    f"none of the variables to update is called {name!r}; those are {', '.join(sorted(self.name_map))}"
                )
            fitting = self.relaxed_value_for_var(value, variable, self.ignore_mismatch)
            if fitting is not None:
                values.append((variable, fitting))
        assign_values(self.sess, values)


def get_savename_from_varname(
    varname: str, varname_prefix: str | None = None, savename_prefix: str | None = None
) -> str:
    """Return the checkpoint name of a variable in the graph.

    Args:
        varname: the name of the variable.
        varname_prefix: a scope to remove from it.
        savename_prefix: a scope to add to the result.
    """
    name = varname if varname_prefix is None else varname[len(varname_prefix) + 1 :]
    return name if savename_prefix is None else f"{savename_prefix}/{name}"


def is_training_name(name: str) -> bool:
    """Return whether a variable name belongs to the training, such as an optimizer's slot, and not to the model."""
    return bool(_OF_TRAINING.search(get_op_tensor_name(name)[0]))


def dump_session_params(path: str) -> None:
    """Write the trainable and model variables of the default session to an ``.npz`` file.

    Raises:
        ValueError: there is no default session.
    """
    sess = default_session("dump_session_params")
    keys = tf.compat.v1.GraphKeys
    found = [*sess.graph.get_collection(keys.TRAINABLE_VARIABLES), *sess.graph.get_collection(keys.MODEL_VARIABLES)]
    by_name = {variable.name: variable for variable in found}
    save_checkpoint_vars(sess.run(by_name), path)


def save_checkpoint_vars(dic: Mapping[str, Any], path: str) -> None:
    """Write values by name to an ``.npz`` file or a checkpoint, depending on the path.

    In an ``.npz`` file the names are kept; in a checkpoint, ``:0`` is removed.

    Args:
        dic: the values.
        path: a path that ends with ``.npz``, or the prefix of a checkpoint.
    """
    values = {name: np.asarray(value) for name, value in dic.items()}
    logger.info("variables to save to %s: %s", path, ", ".join(sorted(values)))
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    if path.endswith(".npz"):
        # As a keyword argument, a name such as ``file`` would be misinterpreted.
        with open(path, "wb") as file:
            np.savez_compressed(file, **values)
        return
    if not values:
        raise ValueError(f"no values to save to {path!r}: pass values by name")
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        variables = [
            tf.compat.v1.Variable(
                tf.zeros(value.shape, value.dtype), name=get_op_tensor_name(name)[0], use_resource=True
            )
            for name, value in values.items()
        ]
        assign_values(sess, zip(variables, values.values(), strict=True))
        tf.compat.v1.train.Saver(variables).save(sess, path, write_meta_graph=False)


def load_checkpoint_vars(path: str) -> dict[str, Array]:
    """Return the values in an ``.npz`` file or a checkpoint, by name.

    Raises:
        CheckpointError: the file is missing.
    """
    if path.endswith(".npz"):
        with NpzReader(path) as stored:
            return {name: stored[name] for name in stored}
    reader = CheckpointReader(find_checkpoint(path))
    return {name: reader[name] for name in reader}


save_chkpt_vars = save_checkpoint_vars
load_chkpt_vars = load_checkpoint_vars
get_checkpoint_path = find_checkpoint


def get_all_checkpoints(dir: str, prefix: str = "model") -> list[tuple[str, int]]:
    """Return all checkpoints in a directory, as pairs of index path and step, sorted by step.

    Args:
        dir: the directory.
        prefix: the prefix of their names, before the ``-`` and the step.
    """
    index_file = re.compile(rf"{re.escape(prefix)}-(\d+)\.index")
    found = []
    for path in glob.glob(os.path.join(glob.escape(dir), "*.index")):
        if match := index_file.fullmatch(os.path.basename(path)):
            found.append((path, int(match[1])))
    return sorted(found, key=lambda each: each[1])
