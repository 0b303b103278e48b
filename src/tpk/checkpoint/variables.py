"""Variables of a checkpoint: copied out of a session in one consistent picture, written, and given back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.checkpoint.reader import CheckpointReader
from tpk.graph.variables import assign_values, variable_name
from tpk.tf_internals import CallableOptions, make_callable, slice_info


@attrs.frozen(eq=False)
class Snapshot:
    """The values that variables had at one moment.

    Attributes:
        variables: the variables.
        values: an array each.
    """

    variables: Sequence[Any]
    values: Sequence[Any]


def take_snapshot(sess: Any, variables: Sequence[Any]) -> Snapshot:
    """Return the values of variables, which nothing that the session does later can change.

    Args:
        sess: the raw session, in which nothing runs at the moment.
        variables: variables of its graph.
    """
    # `Session.run` copies what it returns.
    return Snapshot(tuple(variables), sess.run(list(variables)) if variables else [])


class VariableWriter:
    """Writes snapshots in the format of `tf.compat.v1.train.Saver`.

    It has a graph and a session of its own, on the CPU and with threads of its own: so it needs nothing of the graph
    that is trained, which may be finalized, and a write in another thread and the steps do not wait for each other.
    """

    def __init__(self) -> None:
        self._sess: Any = None
        self._save: Any = None

    def write(self, prefix: str, snapshot: Snapshot) -> None:
        """Write to ``<prefix>.index`` and ``<prefix>.data-00000-of-00001``.

        Args:
            prefix: what the files begin with.
            snapshot: the values; those of the same variables each time.

        Raises:
            tf.errors.OpError: if they cannot be written.
        """
        if self._save is None:
            self._prepare(snapshot.variables)
        self._save(np.array(prefix, object), *map(np.asarray, snapshot.values))

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
        # Unlike `Session.run`, it words an error without the stack of whoever built the op.
        self._save = make_callable(self._sess, options)


def read_variables(prefix: str, variables: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return the values that a checkpoint has for those of `variables` that it holds, by their names in the graph.

    Raises:
        CheckpointError: if its files cannot be read.
    """
    stored = CheckpointReader(prefix)
    return {
        variable_name(variable): stored[saved_name(variable)][saved_part(variable)]
        for variable in variables
        if saved_name(variable) in stored
    }


def assign_by_name(sess: Any, values: Mapping[str, np.ndarray], variables: Sequence[Any]) -> None:
    """Give those of `variables` that `values` names their values.

    Raises:
        CheckpointError: if a shape does not fit.
    """
    assign_values(
        sess,
        ((variable, values[variable_name(variable)]) for variable in variables if variable_name(variable) in values),
    )


def saved_name(variable: Any) -> str:
    """Return the name under which a checkpoint holds a variable: that of the whole, if it is a part of one."""
    info = slice_info(variable)
    return variable_name(variable) if info is None else str(info.full_name)


def saved_part(variable: Any) -> tuple[slice, ...]:
    """Return the index of what is the variable's of the value that a checkpoint has under its `saved_name`."""
    info = slice_info(variable)
    if info is None:
        return ()
    return tuple(slice(offset, offset + size) for offset, size in zip(info.var_offset, info.var_shape, strict=True))


def _spec_of_slice(variable: Any) -> str:
    info = slice_info(variable)
    return "" if info is None else str(info.spec)
