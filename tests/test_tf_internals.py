"""The private APIs of TensorFlow that tpk uses still do what tpk expects of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from tpk import tf_internals

v1 = tf.compat.v1


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def in_while_loop(build):
    """Return what `build` returns for the iterations of a loop of TensorFlow 1's control flow, and the loop's end."""
    made = []

    def body(iteration):
        made.append(build(iteration))
        return iteration + 1

    end = tf_internals.build_loop(lambda iteration: iteration < 3, body, tf.constant(0))
    return made[0], end


def test_a_callable_takes_feeds_and_returns_what_it_fetches(graph):
    x = v1.placeholder(tf.float32, [2], name="x")
    options = tf_internals.CallableOptions(feed=[x.name], fetch=[tf.square(x).name])
    with v1.Session(graph=graph) as sess:
        call = tf_internals.make_callable(sess, options)
        (squares,) = call(np.array([1, 2], np.float32))
        np.testing.assert_array_equal(squares, [1, 4])


def test_an_error_of_a_callable_is_worded_as_by_session_run(graph):
    checked = v1.check_numerics(tf.constant(np.nan), "bad", name="checked")
    with v1.Session(graph=graph) as sess:
        call = tf_internals.make_callable(sess, tf_internals.CallableOptions(fetch=[checked.name]))
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            call()
        with pytest.raises(tf.errors.InvalidArgumentError) as worded:
            tf_internals.word_error(sess, raised.value)
        with pytest.raises(tf.errors.InvalidArgumentError) as expected:
            sess.run(checked)
    assert raised.value.op is None
    assert worded.value.op is expected.value.op is checked.op
    assert worded.value.message == expected.value.message


def test_what_is_fetched_is_told_as_tensors_and_operations(graph):
    a, b = tf.constant(1), tf.constant([2, 3])
    done = tf.no_op()
    fetches = {"a": a, "others": [done, (b, a)]}
    handler = tf_internals.fetch_handler(graph, fetches)
    assert handler.fetches() == [a, b]
    assert handler.targets() == [done]
    with v1.Session(graph=graph) as sess:
        built = handler.build_results(sess, [np.int32(1), np.array([2, 3])])
    assert built["a"] == 1 and built["others"][0] is None
    np.testing.assert_array_equal(built["others"][1][0], [2, 3])
    with pytest.raises(TypeError):
        tf_internals.fetch_handler(graph, object())


def test_the_elements_of_a_fetch_are_the_tensors_that_run_for_it(graph):
    sparse = tf.sparse.from_dense([0, 1])
    elements = tf_internals.fetched_elements(sparse)
    assert list(elements) == [sparse.indices, sparse.values, sparse.dense_shape]


def test_a_session_tells_its_config_and_whether_it_is_closed(graph):
    config = v1.ConfigProto(inter_op_parallelism_threads=3)
    sess = v1.Session(graph=graph, config=config)
    assert tf_internals.session_config(sess).inter_op_parallelism_threads == 3
    assert not tf_internals.is_closed(sess)
    sess.close()
    assert tf_internals.is_closed(sess)


def test_a_session_closed_in_the_runtime_cancels_what_is_run(graph):
    constant = tf.constant(1)
    sess = v1.Session(graph=graph)
    tf_internals.close_runtime(sess)
    assert not tf_internals.is_closed(sess)
    with pytest.raises(tf.errors.CancelledError):
        sess.run(constant)
    tf_internals.mark_closed(sess)
    with pytest.raises(RuntimeError, match="closed"):
        sess.run(constant)


def test_a_server_kept_for_good_does_not_hold_up_the_exit_of_the_process():
    code = """
        import tensorflow as tf
        from tpk.tf_internals import keep_for_good

        server = tf.compat.v1.train.Server.create_local_server()
        keep_for_good(server)
        with tf.Graph().as_default() as graph:
            constant = tf.constant(7)
        sess = tf.compat.v1.Session(server.target, graph)
        print(sess.run(constant))
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    assert found.stdout.strip() == "7"


def test_a_saver_hook_lacks_a_saver_unless_it_is_given_one_or_a_scaffold(graph, tmp_path):
    tf.Variable(1.0)
    hook = v1.train.CheckpointSaverHook
    assert tf_internals.lacks_saver(hook(str(tmp_path), save_steps=1))
    assert not tf_internals.lacks_saver(hook(str(tmp_path), save_steps=1, saver=v1.train.Saver()))
    assert not tf_internals.lacks_saver(hook(str(tmp_path), save_steps=1, scaffold=v1.train.Scaffold()))


@pytest.mark.parametrize("was_finalized", [True, False])
def test_ops_can_be_added_to_a_graph_that_was_finalized(graph, was_finalized):
    with v1.Session(graph=graph) as sess:
        sess.run(tf.constant(1))
        if was_finalized:
            graph.finalize()
        with tf_internals.unfinalized(graph):
            added = tf.constant(2)
        assert graph.finalized is was_finalized
        assert sess.run(added) == 2
        graph.finalize()
        tf_internals.unfinalize(graph)
        assert sess.run(tf.constant(3)) == 3


def test_an_op_tells_which_loop_encloses_it(graph):
    outside = tf.constant(1)
    (inside, of_graph), end = in_while_loop(
        lambda iteration: (iteration + 1, tf_internals.control_flow_context(graph)),
    )
    context = tf_internals.control_flow_context(inside.op)
    assert of_graph is context
    assert context.IsWhileContext() and not context.IsCondContext() and context.outer_context is None
    assert tf_internals.control_flow_context(outside.op) is None
    assert tf_internals.control_flow_context(graph) is None
    assert tf_internals.output_context(inside.op) is context
    # An exit belongs to the loop, but what it returns can be used outside.
    assert end.op.type.endswith("Exit")
    assert tf_internals.control_flow_context(end.op) is context
    assert tf_internals.output_context(end.op) is None


@pytest.mark.parametrize("use_resource", [True, False])
def test_a_loop_takes_variables_of_both_kinds(graph, use_resource):
    variable = v1.get_variable("v", initializer=1.0, use_resource=use_resource)

    def body(iteration):
        with tf.control_dependencies([v1.assign_add(variable, 2.0).op]):
            return iteration + 1

    end = tf_internals.build_loop(lambda iteration: iteration < 3, body, tf.constant(0))
    with v1.Session(graph=graph) as sess:
        sess.run(variable.initializer)
        assert sess.run(end) == 3
        assert sess.run(variable) == 7.0


def test_the_graphs_of_the_functions_that_an_op_calls_are_found(graph):
    @tf.function(autograph=False)
    def double(x):
        return tf.multiply(x, 2, name="doubled")

    called = double(tf.constant(3)).op
    (inner,) = tf_internals.functions_called_by(called)
    assert "doubled" in [op.name for op in inner.get_operations()]
    assert tf_internals.functions_called_by(inner.get_operations()[-1]) == []


def test_the_gradient_of_a_branch_is_built_for_xla(graph):
    x = v1.get_variable("x", initializer=[1.0, 2.0], use_resource=True)
    with tf_internals.building_for_xla():
        result = tf.cond(x[0] > 0, lambda: tf.tanh(x * 2) * x, lambda: tf.sin(x))
        (gradient,) = tf.gradients(result, [x])
        initial = tf.Variable(tf.ones([2]))
    assert "_lower_using_switch_merge" not in result.op.node_def.attr
    assert tf.variant not in [tensor.dtype for op in graph.get_operations() for tensor in op.outputs]
    with v1.Session(graph=graph) as sess:
        sess.run(v1.global_variables_initializer())
        assert sess.run(gradient)[0] == pytest.approx(np.tanh(2) + 2 / np.cosh(2) ** 2)
        assert list(sess.run(initial)) == [1, 1]


def test_an_op_knows_which_others_wait_for_it(graph):
    update = v1.get_variable("v", initializer=1).assign(5, read_value=False)
    with tf.control_dependencies([update]):
        last = tf.no_op()
    assert list(tf_internals.control_outputs(update)) == [last]


def test_an_op_takes_another_input_from_the_next_run_on(graph):
    total = tf.constant(1) + tf.constant(2)
    with v1.Session(graph=graph) as sess:
        tf_internals.replace_input(total.op, 1, tf.constant(10))
        assert sess.run(total) == 11


def test_an_op_is_moved_to_another_device(graph):
    constant = tf.constant(1)
    tf_internals.set_device(constant.op, "/device:CPU:0")
    assert tf.DeviceSpec.from_string(constant.device).device_type == "CPU"


def test_an_op_is_created_like_another_one(graph):
    with tf.device("/device:CPU:0"):
        original = tf.reduce_sum(tf.constant([[1, 2], [3, 4]]), axis=1, keepdims=True, name="sums").op
    inputs = [tf.constant([[5, 6]]), original.inputs[1]]
    with tf.name_scope("copy"), tf.device("/device:GPU:7"):
        created = tf_internals.create_op_like(original, graph, inputs, dict(original.node_def.attr))
    assert created.name == "copy/sums" and created.type == original.type and created.get_attr("keep_dims")
    assert created.device == ""
    with v1.Session(graph=graph) as sess:
        np.testing.assert_array_equal(sess.run(created.outputs[0]), [[11]])


def test_kernels_are_told_by_the_type_of_device():
    assert "CPU" in tf_internals.devices_with_kernel("MatMul")
    assert not tf_internals.devices_with_kernel("NoSuchOp")


def test_op_determinism_is_taken_back():
    assert not tf_internals.is_op_determinism_enabled()
    tf.config.experimental.enable_op_determinism()
    try:
        assert tf_internals.is_op_determinism_enabled()
    finally:
        tf_internals.disable_op_determinism()
    assert not tf_internals.is_op_determinism_enabled()


def test_nccl_sums_are_built_on_the_device_of_each_tensor(graph):
    # There need not be GPUs to build them.
    tensors = []
    for index in range(2):
        with tf.device(f"/device:GPU:{index}"):
            tensors.append(tf.constant([1.0, 2.0]))
    sums = tf_internals.nccl_sum(tensors)
    assert [each.op.type for each in sums] == ["NcclAllReduce"] * 2
    assert [each.device for each in sums] == [each.device for each in tensors]


def test_references_and_handles_of_variables_are_told_apart(graph):
    by_handle = v1.get_variable("handle", initializer=1.0, use_resource=True)
    by_reference = v1.get_variable("reference", initializer=1.0, use_resource=False)
    assert tf_internals.handle_of(by_handle).op.type == "VarHandleOp"
    assert tf_internals.handle_of(by_reference).op.type == "VariableV2"
    assert not tf_internals.is_reference(tf_internals.handle_of(by_handle))
    assert tf_internals.is_reference(tf_internals.handle_of(by_reference))
    assert not tf_internals.is_reference(tf.identity(by_reference))


@pytest.mark.parametrize("options", [{"use_resource": False}, {"caching_device": "/device:CPU:0"}])
def test_variables_are_read_anew_within_the_context_only(graph, options):
    variable = v1.get_variable("v", initializer=tf.constant([1.0]), **options)
    first = tf.convert_to_tensor(variable)
    with tf.control_dependencies([first]):
        update = variable.assign_add([2.0], read_value=False)
    with tf.control_dependencies([update]):
        with tf_internals.read_anew([variable]):
            anew = tf.convert_to_tensor(variable) * 1.0
        # Outside, it is the tensor that was made before.
        again = tf.convert_to_tensor(variable)
    assert again is first
    with v1.Session(graph=graph) as sess:
        sess.run(variable.initializer)
        assert sess.run(anew) == [3.0]


def test_a_part_of_a_variable_is_saved_as_such(graph, tmp_path):
    partitioner = v1.fixed_size_partitioner(2)
    parts = list(v1.get_variable("whole", initializer=tf.constant([1.0, 2.0]), partitioner=partitioner))
    assert [tf_internals.slice_info(part).var_offset for part in parts] == [[0], [1]]
    plain = v1.get_variable("plain", initializer=tf.constant([3.0]))
    assert tf_internals.slice_info(plain) is None
    tf_internals.set_slice_info(plain, tf.Variable.SaveSliceInfo("other", [1], [0], [1]))
    with v1.Session(graph=graph) as sess:
        sess.run(v1.global_variables_initializer())
        path = v1.train.Saver([*parts, plain]).save(sess, str(tmp_path / "model"))
    assert dict(tf.train.list_variables(path)) == {"whole": [2], "other": [1]}


OPTIMIZERS = {
    "GradientDescent": (v1.train.GradientDescentOptimizer(0.5), {"learning_rate"}),
    "Momentum": (v1.train.MomentumOptimizer(0.5, 0.9), {"learning_rate", "momentum"}),
    "Adam": (v1.train.AdamOptimizer(0.5), {"learning_rate", "beta1", "beta2", "epsilon"}),
    "Adagrad": (v1.train.AdagradOptimizer(0.5), {"learning_rate"}),
    "Adadelta": (v1.train.AdadeltaOptimizer(0.5), {"learning_rate", "rho", "epsilon"}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_takes_other_hyperparameters_within_the_context_only(graph, name):
    optimizer, hyperparameters = OPTIMIZERS[name]
    variable = v1.get_variable("v", initializer=1.0)
    seen = {}

    def replace(parameter, given):
        seen[parameter] = given
        return given * 0 if parameter == "learning_rate" else given

    with tf_internals.replaced_hyperparameters(optimizer, replace):
        unchanged = optimizer.apply_gradients([(tf.constant(3.0), variable)])
    changed = optimizer.apply_gradients([(tf.constant(3.0), variable)])
    assert seen.keys() == hyperparameters
    with v1.Session(graph=graph) as sess:
        sess.run(v1.global_variables_initializer())
        assert sess.run(seen["learning_rate"]) == 0.5
        sess.run(unchanged)
        assert sess.run(variable) == 1.0
        sess.run(changed)
        assert sess.run(variable) < 1.0


@pytest.mark.parametrize(
    "make", [v1.train.GradientDescentOptimizer, v1.train.AdamOptimizer], ids=lambda each: each.__name__
)
def test_an_optimizer_tells_the_learning_rate_that_it_was_given_and_has_made(graph, make):
    variable = v1.get_variable("v", initializer=1.0)
    optimizer = make(lambda: tf.constant(0.25))
    optimizer.apply_gradients([(tf.constant(3.0), variable)])
    given, prepared = tf_internals.learning_rates_of(optimizer)
    assert callable(given)
    with v1.Session(graph=graph) as sess:
        assert sess.run(prepared) == 0.25


def test_an_optimizer_tells_which_one_it_wraps(graph):
    inner = v1.train.GradientDescentOptimizer(0.1)
    outer = v1.train.SyncReplicasOptimizer(inner, replicas_to_aggregate=1)
    assert tf_internals.wrapped_optimizer(outer) is inner
    assert tf_internals.wrapped_optimizer(inner) is None


def test_an_optimizer_creates_its_slots_ahead(graph):
    variable = v1.get_variable("v", initializer=1.0)
    optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
    tf_internals.create_slots(optimizer, [variable])
    assert optimizer.get_slot(variable, "momentum").shape == variable.shape


def test_a_dataset_tells_the_tensor_that_it_is(graph):
    variant = tf_internals.variant_of(tf.data.Dataset.range(3))
    assert variant.graph is graph and variant.dtype == tf.variant


def test_a_trace_names_the_ops_that_ran(graph):
    metadata = v1.RunMetadata()
    with v1.Session(graph=graph) as sess:
        x = v1.placeholder(tf.float32, [], name="x")
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        sess.run(tf.square(x, name="squared"), {x: 3.0}, options, metadata)
    events = json.loads(tf_internals.chrome_trace(metadata.step_stats))["traceEvents"]
    assert "squared" in {event.get("args", {}).get("name") for event in events}


@pytest.mark.tf2_only("writes a tf.train.Checkpoint in eager mode")
def test_an_object_based_checkpoint_tells_the_names_of_its_variables(tmp_path):
    with tf.init_scope():
        path = tf.train.Checkpoint(weight=tf.Variable([1.0], name="kernel")).write(str(tmp_path / "model"))
    graph = tf_internals.TrackableObjectGraph()
    graph.ParseFromString(tf.train.load_checkpoint(path).get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    attributes = [attribute for node in graph.nodes for attribute in node.attributes]
    assert {"kernel": "weight/.ATTRIBUTES/VARIABLE_VALUE"}.items() <= {
        each.full_name: each.checkpoint_key for each in attributes
    }.items()
