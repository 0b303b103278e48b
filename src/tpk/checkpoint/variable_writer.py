"""Variables of a checkpoint: written, read and assigned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpk.checkpoint.reader import CheckpointReader
from tpk.graph.variables import assign_values, variable_name
from tpk.tf_internals import CallableOptions, make_callable, slice_info


class VariableWriter:
    """Writes the values of variables in the format of `tf.compat.v1.train.Saver`.

    It has a separate graph, session and threads, on the CPU. So the graph of the training may be finalized, and a write
    in another thread does not block the steps, nor they the write.
    """

    def __init__(self) -> None:
        self._sess: Any = None
        self._save: Any = None

    def write(self, prefix: str, variables: Sequence[Any], values: Sequence[Any]) -> None:
        """Write to ``<prefix>.index`` and ``<prefix>.data-00000-of-00001``.

        Args:
            prefix: the start of the file names.
            variables: the variables, the same in each call.
            values: an array for each variable, such as `Session.run` returns: a copy, which later runs do not change.

        Raises:
            tf.errors.OpError: if the files cannot be written.
        """
        if self._save is None:
            self._prepare(variables)
        self._save(np.array(prefix, object), *map(np.asarray, values))

    def close(self) -> None:
        """Close the session."""
        if self._sess is not None:
            self._sess.close()

    def _prepare(self, variables: Sequence[Any]) -> None:
        with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
            path = tf.compat.v1.placeholder(tf.string, [])
            tensors = [tf.compat.v1.placeholder(variable.dtype.base_dtype) for variable in variables]
            save = tf.raw_ops.SaveV2(
                prefix=path,
                tensor_names=[saved_name(variable) for variable in variables],
                shape_and_slices=[_spec_of_slice(variable) for variable in variables],
                tensors=tensors,
            )
        config = tf.compat.v1.ConfigProto(
            device_count={"GPU": 0},
            intra_op_parallelism_threads=1,
            inter_op_parallelism_threads=1,
            use_per_session_threads=True,
        )
        self._sess = tf.compat.v1.Session(graph=graph, config=config)
        options = CallableOptions(feed=[path.name, *(tensor.name for tensor in tensors)], target=[save.name])
        # Unlike `Session.run`, its errors do not include the stack trace of the creation of the op.
        self._save = make_callable(self._sess, options)


def read_variables(prefix: str, variables: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return the values of `variables` in a checkpoint, by their names in the graph; missing ones are left out.

    Raises:
        CheckpointError: if the files cannot be read.
    """
    stored = CheckpointReader(prefix)
    return {
        variable_name(variable): stored[saved_name(variable)][saved_part(variable)]
        for variable in variables
        if saved_name(variable) in stored
    }


def assign_by_name(sess: Any, values: Mapping[str, np.ndarray], variables: Sequence[Any]) -> None:
    """Assign values to variables by name; variables without a value are left alone.

    Raises:
        CheckpointError: if a shape does not fit.
    """
    assign_values(
        sess,
        ((variable, values[variable_name(variable)]) for variable in variables if variable_name(variable) in values),
    )


def saved_name(variable: Any) -> str:
    """Return the name of a variable in a checkpoint; a part of a partitioned variable has the name of the whole."""
    info = slice_info(variable)
    return variable_name(variable) if info is None else str(info.full_name)


def saved_part(variable: Any) -> tuple[slice, ...]:
    """Return the index of the variable's part in the value that a checkpoint stores under its `saved_name`."""
    info = slice_info(variable)
    if info is None:
        return ()
    return tuple(slice(offset, offset + size) for offset, size in zip(info.var_offset, info.var_shape, strict=True))


def _spec_of_slice(variable: Any) -> str:
    info = slice_info(variable)
    return "" if info is None else str(info.spec)
