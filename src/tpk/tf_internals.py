"""Private APIs of TensorFlow: each function does one thing that TensorFlow offers no public way to do.

No other file of tpk uses a private name of TensorFlow. A new version of TensorFlow can break only what is listed here,
and `tests/test_tf_internals.py` tests each function on a real graph.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions as CallableOptions
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph as TrackableObjectGraph
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.client.session import _FetchHandler, _FetchMapper
from tensorflow.python.client.timeline import Timeline
from tensorflow.python.framework import config as framework_config
from tensorflow.python.framework.kernels import get_registered_kernels_for_op
from tensorflow.python.ops import control_flow_util, nccl_ops
from tensorflow.python.ops.control_flow_ops import WhileContext, XLAControlFlowContext

# Sessions


def make_callable(sess: Any, options: Any) -> Callable[..., list[Any]]:
    """Return a function that makes a run without the overhead of `Session.run`.

    Unlike `Session.make_callable`, it takes feeds without going through `Session.run`. It takes an array for each feed,
    and returns the fetched arrays, which are still the runtime's own memory.

    Args:
        sess: a `tf.compat.v1.Session`.
        options: the `CallableOptions`, with the names of feeds, fetches and targets.
    """
    call: Callable[..., list[Any]] = sess._make_callable_from_options(options)
    return call


def word_error(sess: Any, error: Exception) -> NoReturn:
    """Raise an error of the runtime as `Session.run` words it: with the place where the user created the failing op."""

    def fail() -> None:
        raise error

    sess._do_call(fail)
    raise error


def fetch_handler(graph: Any, fetches: Any) -> Any:
    """Return the handler by which `Session.run` resolves a structure of fetches.

    Its ``fetches()`` are the tensors, its ``targets()`` the operations, and ``build_results(sess, values)`` puts the
    values of the tensors into the structure.

    Raises:
        TypeError, ValueError: what `Session.run` raises if it cannot fetch one of them.
    """
    return _FetchHandler(graph, fetches, {})


def fetched_elements(fetch: Any) -> Sequence[Any]:
    """Return the tensors and operations that `Session.run` runs for one fetch."""
    elements: Sequence[Any] = _FetchMapper.for_fetch(fetch).unique_fetches()
    return elements


def session_config(sess: Any) -> Any:
    """Return the `tf.compat.v1.ConfigProto` with which a session was created; None if it was given none.

    A session that a debugger of TensorFlow wraps does not know its own.
    """
    return getattr(sess, "_config", None)


def is_closed(sess: Any) -> bool:
    """Return whether a session is closed; False for one that a debugger of TensorFlow wraps, which does not tell."""
    return getattr(sess, "_closed", False)


def mark_closed(sess: Any) -> None:
    """Mark a session as closed, so that nothing closes it again."""
    sess._closed = True


def close_runtime(sess: Any) -> None:
    """Close a session in the runtime only: runs under way fail with `CancelledError`, and so does each later one.

    After `Session.close`, a later run fails because the session is closed, which hides what happened.
    """
    pywrap_tf_session.TF_CloseSession(sess._session)


def keep_for_good(server: Any) -> None:
    """Keep a `tf.compat.v1.train.Server` from being destroyed, even when the process exits.

    Its destructor waits for every process that is connected to it.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server._server))


def lacks_saver(hook: Any) -> bool:
    """Return whether a `tf.compat.v1.train.CheckpointSaverHook` was given neither a saver nor a scaffold."""
    return hook._saver is None and hook._scaffold is None


# Graphs


@contextmanager
def unfinalized(graph: Any) -> Iterator[None]:
    """Within the context, ops can be added to a graph, even if it was finalized; sessions take them."""
    was_finalized = graph.finalized
    unfinalize(graph)
    try:
        yield
    finally:
        if was_finalized:
            graph.finalize()


def unfinalize(graph: Any) -> None:
    """Allow adding ops to a finalized graph."""
    graph._unsafe_unfinalize()


def control_flow_context(graph_or_op: Any) -> Any:
    """Return the innermost `tf.cond` or `tf.while_loop` of TensorFlow 1's control flow that encloses an op.

    Args:
        graph_or_op: an operation; or a graph, for the ops that are being added to it.

    Returns:
        A context with ``IsCondContext()``, ``IsWhileContext()`` and ``outer_context``; None outside of both.
    """
    return graph_or_op._get_control_flow_context()


def control_flow_contexts(graph: Any) -> Iterator[Any]:
    """Yield the contexts that enclose the ops that are being added to `graph`, from the innermost outwards."""
    context = control_flow_context(graph)
    while context is not None:
        yield context
        context = context.outer_context


def output_context(op: Any) -> Any:
    """Return the `control_flow_context` in which the outputs of an op can be used; for an exit, the enclosing one."""
    return control_flow_util.GetOutputContext(op)


def build_loop(condition: Callable[[Any], Any], body: Callable[[Any], Any], start: Any) -> Any:
    """Build a loop of TensorFlow 1's control flow, which takes reference variables, too.

    Args:
        condition: given the loop variable, returns whether there is another iteration.
        body: given the loop variable, returns its next value.
        start: the first value of the loop variable.

    Returns:
        Its last value.
    """
    context = WhileContext(parallel_iterations=1, back_prop=False)
    return context.BuildLoop(condition, body, [start], None, False)


@contextmanager
def building_for_xla() -> Iterator[None]:
    """Within the context, control flow and its gradients are built such that XLA can compile them."""
    context = _XlaContext()
    context.Enter()
    try:
        yield
    finally:
        context.Exit()


class _XlaContext(XLAControlFlowContext):  # type: ignore[misc]
    """Leaves no trace on ops: the initial value of a variable must come from no control flow."""

    grad_state = None

    def AddOp(self, op: Any) -> None:
        op._set_control_flow_context(None)


def functions_called_by(op: Any) -> list[Any]:
    """Return the graphs of the functions that `op` calls, including branches and loop bodies, as far as known."""
    names = [each.name for value in op.node_def.attr.values() for each in (value.func, *value.list.func) if each.name]
    graphs = [getattr(op.graph._get_function(name), "graph", None) for name in names]
    return [graph for graph in graphs if graph is not None]


def control_outputs(op: Any) -> Sequence[Any]:
    """Return the operations that have `op` as a control input."""
    found: Sequence[Any] = op._control_outputs
    return found


def replace_input(op: Any, index: int, tensor: Any) -> None:
    """Make an op take `tensor` as its input at `index`, from the next run on."""
    op._update_input(index, tensor)


def set_device(op: Any, device: str) -> None:
    """Move an op that no session has run yet to another device."""
    op._set_device(device)


def create_op_like(original: Any, graph: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Create an op of the type, name and dtypes of another one, with other inputs and attributes.

    Args:
        original: the other op.
        graph: where to create it; name scope and control dependencies there apply, devices do not.
        inputs: its inputs.
        attributes: its attributes, as ``AttrValue`` each.
    """
    dtypes = [tensor.dtype for tensor in original.outputs]
    return graph._create_op_internal(
        original.type,
        inputs,
        dtypes,
        name=original.name,
        attrs=attributes,
        op_def=original.op_def,
        compute_device=False,
    )


def devices_with_kernel(op_type: str) -> set[str]:
    """Return the types of devices with a kernel for an op type, such as ``CPU`` and ``XLA_CPU_JIT``."""
    return {kernel.device_type for kernel in get_registered_kernels_for_op(op_type).kernel}


def nccl_sum(tensors: Sequence[Any]) -> list[Any]:
    """Return the sum of tensors on different GPUs, on each of these."""
    return list(nccl_ops.all_sum(tensors))


def is_op_determinism_enabled() -> bool:
    """Return whether `tf.config.experimental.enable_op_determinism` was called."""
    return bool(framework_config.is_op_determinism_enabled())


def disable_op_determinism() -> None:
    """Undo `tf.config.experimental.enable_op_determinism`."""
    framework_config.disable_op_determinism()


# Tensors and variables


def is_reference(tensor: Any) -> bool:
    """Return whether a tensor is a reference to a variable made with ``use_resource=False``."""
    return bool(tensor.dtype._is_ref_dtype)


def handle_of(variable: Any) -> Any:
    """Return the tensor by which ops refer to a variable: its handle, or a reference."""
    return variable.handle if hasattr(variable, "handle") else variable._variable


@contextmanager
def read_anew(variables: Iterable[Any]) -> Iterator[None]:
    """Within the context, reading one of `variables` gives the value that it has at that point of the step.

    Otherwise, a reference variable and one with a caching device give what was read once, maybe before an update.
    """
    with ExitStack() as stack:
        for variable in variables:
            if getattr(variable, "_cached_value", None) is not None:
                stack.callback(setattr, variable, "_cached_value", variable._cached_value)
                variable._cached_value = None
            elif getattr(variable, "_snapshot", None) is not None:
                stack.callback(setattr, variable, "_snapshot", variable._snapshot)
                variable._snapshot = variable.read_value()
        yield


def slice_info(variable: Any) -> Any:
    """Return the `tf.Variable.SaveSliceInfo` of a part of a partitioned variable; None for other variables."""
    return getattr(variable, "_save_slice_info", None)


def set_slice_info(variable: Any, info: Any) -> None:
    """Make a `tf.compat.v1.train.Saver` save a variable as a part of a partitioned variable."""
    variable._set_save_slice_info(info)


# Optimizers

_HYPERPARAMETERS: dict[type[Any], dict[str, str]] = {
    tf.compat.v1.train.GradientDescentOptimizer: {"learning_rate": "_learning_rate_tensor"},
    tf.compat.v1.train.MomentumOptimizer: {"learning_rate": "_learning_rate_tensor", "momentum": "_momentum_tensor"},
    tf.compat.v1.train.AdamOptimizer: {
        "learning_rate": "_lr_t",
        "beta1": "_beta1_t",
        "beta2": "_beta2_t",
        "epsilon": "_epsilon_t",
    },
    tf.compat.v1.train.AdagradOptimizer: {"learning_rate": "_learning_rate_tensor"},
    tf.compat.v1.train.AdadeltaOptimizer: {"learning_rate": "_lr_t", "rho": "_rho_t", "epsilon": "_epsilon_t"},
}
"""The attributes in which optimizers keep the tensors of their hyperparameters while they apply gradients."""


@contextmanager
def replaced_hyperparameters(optimizer: Any, replace: Callable[[str, Any], Any]) -> Iterator[None]:
    """Within the context, `optimizer.apply_gradients` takes other tensors for its hyperparameters.

    Args:
        optimizer: a GradientDescent, Momentum, Adam, Adagrad or Adadelta optimizer of `tf.compat.v1.train`.
        replace: given the name of a hyperparameter and its tensor, returns the tensor to take.
    """
    prepare, own = optimizer._prepare, {}

    def prepare_replaced() -> None:
        prepare()
        for name, attribute in _HYPERPARAMETERS[type(optimizer)].items():
            own[attribute] = given = getattr(optimizer, attribute)
            setattr(optimizer, attribute, replace(name, given))

    # Each optimizer makes its tensors in `_prepare`, and takes them for each variable.
    optimizer._prepare = prepare_replaced
    try:
        yield
    finally:
        del optimizer._prepare
        # `learning_rates_of` returns what the user gave.
        vars(optimizer).update(own)


def learning_rates_of(optimizer: Any) -> list[Any]:
    """Return the learning rate given to an optimizer, and the tensor that it made from it; empty if it has neither."""
    names = ("_learning_rate", "_learning_rate_tensor", "_lr", "_lr_t")
    return [rate for name in names if (rate := getattr(optimizer, name, None)) is not None]


def wrapped_optimizer(optimizer: Any) -> Any | None:
    """Return the `tf.compat.v1.train.Optimizer` that another one wraps; None if it wraps none."""
    inner = [getattr(optimizer, name, None) for name in ("_opt", "_optimizer")]
    return next((each for each in inner if isinstance(each, tf.compat.v1.train.Optimizer)), None)


def create_slots(optimizer: Any, variables: Sequence[Any]) -> None:
    """Let an optimizer create its slots for `variables`, as it does when it applies gradients."""
    optimizer._create_slots(variables)


# Data and traces


def variant_of(dataset: Any) -> Any:
    """Return the variant tensor that represents a `tf.data.Dataset` in its graph."""
    return dataset._variant_tensor


def chrome_trace(step_stats: Any) -> str:
    """Return the `step_stats` of a `tf.compat.v1.RunMetadata` as a trace of Chrome, in JSON."""
    trace: str = Timeline(step_stats).generate_chrome_trace_format()
    return trace
