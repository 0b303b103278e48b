"""The names and meanings of TensorFlow 1, and its layers."""

from __future__ import annotations

import functools
import importlib
import sys

import numpy as np
import pytest
import tensorflow
import tpk_tensorflow1 as tf
from tpk_tensorflow1 import names
from tpk_tensorflow1.contrib import framework, layers as contrib_layers, rnn, seq2seq, slim

import tpk

NAMES = """
AUTO_REUSE ConfigProto DType Dimension FIFOQueue FixedLenFeature GPUOptions Graph GraphDef GraphKeys GraphOptions
IndexedSlices InteractiveSession NodeDef Operation OptimizerOptions PaddingFIFOQueue Print RandomShuffleQueue
RunMetadata RunOptions Session SessionLog SparseTensor Summary Tensor TensorShape TensorSpec VarLenFeature Variable
VariableScope abs accumulate_n add add_check_numerics_ops add_n add_to_collection all_variables app.flags app.run
arg_max argmax as_dtype assert_equal assert_greater assert_rank assert_variables_initialized assign assign_add
assign_sub batch_to_space bincount boolean_mask bool broadcast_to case cast ceil check_numerics clip_by_global_norm
clip_by_norm clip_by_value colocate_with compat.as_str complex64 concat cond confusion_matrix constant
constant_initializer contrib control_dependencies convert_to_tensor cos count_nonzero cumsum data.Dataset decode_raw
depth_to_space device diag distributions div div_no_nan dtypes.float32 dynamic_partition dynamic_stitch einsum equal
errors.OutOfRangeError exp expand_dims eye fill flags.DEFINE_string flags.FLAGS float16 float32 floor floordiv
gather gather_nd get_collection get_collection_ref get_default_graph get_default_session get_local_variable
get_session_handle get_variable get_variable_scope gfile.GFile gfile.Exists global_norm global_variables
global_variables_initializer glorot_uniform_initializer gradients graph_util.import_graph_def greater group
histogram_fixed_width identity image.resize_bilinear image.resize_images image.resize_nearest_neighbor
image.decode_jpeg import_graph_def initialize_all_variables initializers.variables int32 invert_permutation is_nan
is_variable_initialized layers.conv2d less lin_space local_variables local_variables_initializer log log1p
logging.info logging.set_verbosity logging.ERROR logical_and logical_not losses.softmax_cross_entropy
losses.get_total_loss losses.mean_squared_error losses.get_regularization_loss make_template map_fn matmul
matrix_inverse maximum metrics.accuracy metrics.mean minimum model_variables moving_average_variables multinomial
multiply name_scope nn.batch_normalization nn.bias_add nn.bidirectional_dynamic_rnn nn.conv2d nn.conv2d_transpose
nn.ctc_loss nn.depthwise_conv2d nn.dropout nn.dynamic_rnn nn.embedding_lookup nn.fused_batch_norm nn.in_top_k
nn.l2_loss nn.l2_normalize nn.lrn nn.max_pool nn.moments nn.relu nn.rnn_cell.LSTMCell nn.sampled_softmax_loss
nn.separable_conv2d nn.sigmoid_cross_entropy_with_logits nn.softmax nn.softmax_cross_entropy_with_logits
nn.softmax_cross_entropy_with_logits_v2 nn.sparse_softmax_cross_entropy_with_logits nn.static_rnn nn.top_k
nn.xw_plus_b nn.zero_fraction no_op no_regularizer not_equal one_hot ones ones_initializer ones_like
orthogonal_initializer pad parallel_stack parse_single_example placeholder placeholder_with_default pow profiler
py_func python_io.TFRecordWriter python_io.tf_record_iterator random_crop random_gamma random_normal
random_normal_initializer random_shuffle random_uniform random_uniform_initializer range rank read_file real
reduce_all reduce_any reduce_join reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_sum
register_tensor_conversion_function report_uninitialized_variables reset_default_graph reshape resource_loader
reverse reverse_sequence reverse_v2 round rsqrt saved_model.builder saved_model.loader scalar_mul scan scatter_add
scatter_nd scatter_update sequence_mask set_random_seed setdiff1d shape sigmoid sign size slice space_to_depth
sparse_placeholder sparse_tensor_dense_matmul sparse_tensor_to_dense spectral split sqrt square squared_difference
squeeze stack stop_gradient strided_slice string string_split string_to_number substr subtract summary.FileWriter
summary.histogram summary.image summary.merge_all summary.scalar summary.tensor_summary svd tables_initializer tanh
tensordot test.TestCase test.is_gpu_available tile to_double to_float to_int32 to_int64 trace train.AdamOptimizer
train.AdagradOptimizer train.ChiefSessionCreator train.Coordinator train.ExponentialMovingAverage
train.GradientDescentOptimizer train.MomentumOptimizer train.MonitoredTrainingSession train.NewCheckpointReader
train.Optimizer train.QueueRunner train.RMSPropOptimizer train.Saver train.Scaffold train.Server
train.SessionRunHook train.SyncReplicasOptimizer train.batch train.cosine_decay train.exponential_decay
train.get_checkpoint_state train.get_global_step train.get_or_create_global_step train.global_step
train.latest_checkpoint train.piecewise_constant train.polynomial_decay train.start_queue_runners
trainable_variables transpose truediv truncated_normal truncated_normal_initializer tuple uint8
uniform_unit_scaling_initializer unique unstack variable_op_scope variable_scope variables_initializer
variance_scaling_initializer verify_tensor_all_finite where while_loop write_file zeros zeros_initializer zeros_like
contrib.compiler.jit.experimental_jit_scope contrib.compiler.xla.compile contrib.stateless.stateless_random_uniform
contrib.tensorboard.plugins.projector.ProjectorConfig
"""


@pytest.fixture
def graph():
    with tensorflow.Graph().as_default() as graph:
        yield graph


def run(fetches, feeds=None):
    with tensorflow.compat.v1.Session() as sess:
        sess.run(tensorflow.compat.v1.global_variables_initializer())
        return sess.run(fetches, feeds)


def names_of(variables):
    return [variable.name for variable in variables]


def test_the_names_of_tensorflow_1_are_available():
    def is_missing(name):
        value = tf
        try:
            for part in name.split("."):
                value = getattr(value, part)
        except AttributeError:
            return True
        return False

    assert len(NAMES.split()) > 300
    assert [name for name in NAMES.split() if is_missing(name)] == []


def test_functions_have_the_arguments_of_tensorflow_1(graph):
    predictions, targets = tf.constant([[0.1, 0.9, 0.0]]), tf.constant([1])
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    results = run(
        {
            "in_top_k": tf.nn.in_top_k(predictions, targets, 1),
            "keep_dims": tf.reduce_sum(x, reduction_indices=1, keep_dims=True),
            "dropout": tf.nn.dropout(x, keep_prob=1.0),
            "softmax": tf.nn.softmax(x, dim=0),
            "argmax": tf.argmax(x, dimension=1),
            "to_float": tf.to_float(tf.constant(3)),
            "expand_dims": tf.expand_dims(x, dim=0),
            "random_normal": tf.random_normal([2]) + tf.random_uniform([2]) + tf.truncated_normal([2]),
            "concat": tf.concat([x, x], axis=1),
            "where": tf.where(tf.constant([True, False]), x, -x),
            "split": tf.split(value=x, num_or_size_splits=2, axis=0),
            "div": tf.div(7, 2),
            "py_func": tf.py_func(lambda value: value * 2, [x], tf.float32),
        }
    )
    assert results["in_top_k"].tolist() == [True]
    assert results["keep_dims"].tolist() == [[3.0], [7.0]]
    assert results["dropout"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    np.testing.assert_allclose(results["softmax"].sum(axis=0), 1, rtol=1e-6)
    assert results["argmax"].tolist() == [1, 1]
    assert results["to_float"] == 3.0
    assert results["expand_dims"].shape == (1, 2, 2)
    assert results["random_normal"].shape == (2,)
    assert results["concat"].shape == (2, 4)
    assert results["where"].tolist() == [[1.0, 2.0], [-3.0, -4.0]]
    assert len(results["split"]) == 2
    assert results["div"] == 3
    assert results["py_func"].tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_tensors_are_of_the_type_of_tensorflow_1(graph):
    assert type(tf.placeholder(tf.float32)) is type(tf.add(1, 2)) is tf.Tensor
    assert not isinstance(tf.Variable(1.0), tf.Tensor)
    assert framework.smart_cond(True, lambda: "static", lambda: "other") == "static"


def test_summaries_match_tensorflow_1(graph):
    tf.summary.scalar("cost", tf.constant(2.0))
    summary = tf.Summary.FromString(run(tf.summary.merge_all()))
    assert [(value.tag, value.simple_value) for value in summary.value] == [("cost", 2.0)]


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        (tf, "placeholdr", "Nearest: 'placeholder'"),
        (tf.nn, "reluu", "tf.nn.reluu is not available.*Nearest: 'relu'"),
        (tf.nn.rnn_cell, "LSTMCel", "Nearest: 'LSTMCell'"),
        (tf.layers, "Conv2DD", "Nearest: 'Conv2D'"),
        (tf.contrib, "cudnn_rnn", "use tf.nn.rnn_cell.LSTMCell"),
        (tf.contrib, "nccl", "make_trainer"),
        (tf, "audio_summary", "use tf.summary.audio"),
        (tf.contrib.rnn, "AttentionCellWrapper", "use tf.contrib.seq2seq.AttentionWrapper"),
        (tf.contrib.training, "parse_values", "use HParams.parse"),
        (tf.contrib, "layer", "Nearest: 'layers'"),
        (contrib_layers, "fully_conected", "Nearest: 'fully_connected'"),
        (framework, "list_variable", "Nearest: 'list_variables'"),
        (tf.contrib.rnn, "FusedRNNCellAdaptor", "use LSTMBlockFusedCell, or tf.nn.dynamic_rnn"),
        (tf.contrib.seq2seq, "CustomHelper", "use a subclass of Helper"),
        (tf.contrib.opt, "AdamWOptimizer", "use tf.train.AdamOptimizer"),
    ],
)
def test_missing_names_are_errors_that_suggest_the_nearest(module, name, message):
    with pytest.raises(AttributeError, match=message):
        getattr(module, name)


def test_slim_has_the_layers_of_contrib_and_says_what_to_install_for_the_rest(monkeypatch):
    assert slim.conv2d is contrib_layers.conv2d
    assert slim.arg_scope is framework.arg_scope
    assert slim.layers.batch_norm is slim.batch_norm
    assert slim.has_arg_scope(slim.conv2d)
    assert not slim.has_arg_scope(slim.get_model_variables)
    with slim.arg_scope([slim.conv2d], stride=2):
        assert slim.current_arg_scope()[slim.arg_scope_func_key(slim.conv2d)] == {"stride": 2}
    with tf.Graph().as_default(), slim.arg_scope([slim.variable, slim.model_variable], device="/cpu:0"):
        assert "CPU:0" in slim.variable("v", [1]).device
        assert "CPU:0" in framework.model_variable("w", [1]).device
    for loaded in {"tf_slim", "tf_slim.nets", *(name for name in sys.modules if name.startswith("tf_slim."))}:
        monkeypatch.setitem(sys.modules, loaded, None)
    for module, name in [(slim, "learning"), (slim.nets, "vgg"), (slim.metrics, "f1_score")]:
        with pytest.raises(AttributeError, match=rf"{name} is not .*: use .*tf_slim, if it has .*pip install tf_slim"):
            getattr(module, name)
    with pytest.raises(AttributeError, match="Nearest: 'conv2d'"):
        slim.conv2dd  # noqa: B018


@pytest.mark.parametrize(
    ("name", "images", "filters", "shape", "option"),
    [
        ("conv2d_transpose", [None, 4, 4, 8], [5, 5, 3, 8], [16, 8, 8, 3], [1, 2, 2, 1]),
        ("conv1d_transpose", [None, 4, 8], [5, 3, 8], [16, 8, 3], 2),
        ("atrous_conv2d_transpose", [None, 8, 8, 8], [5, 5, 3, 8], [16, 8, 8, 3], 2),
    ],
)
def test_a_transposed_convolution_has_the_shape_that_it_is_given(graph, name, images, filters, shape, option):
    function = getattr(tf.nn, name)
    x, filters = tf.placeholder(tf.float32, images), tf.zeros(filters)
    assert function(x, filters, shape, option, padding="SAME").shape.as_list() == shape
    assert function(x, filters, tf.constant(shape), option, padding="SAME").shape.as_list() == shape
    dynamic = function(x, filters, [tf.shape(x)[0], *shape[1:]], option, padding="SAME")
    assert dynamic.shape.as_list() == [None, *shape[1:]]
    deconv = function(
        x, filters, output_shape=shape, **{"rate" if "atrous" in name else "strides": option}, padding="SAME"
    )
    assert tf.reshape(tf.nn.bias_add(deconv, tf.zeros([3])), deconv.get_shape()).shape.as_list() == shape


def test_a_layer_object_shares_its_variables(graph):
    x = tf.constant(np.arange(12, dtype=np.float32).reshape(3, 4))
    with tf.variable_scope("scope"):
        dense = tf.layers.Dense(2, activation=tf.nn.relu, kernel_regularizer=tf.nn.l2_loss)
        first, second = dense(x), dense.apply(x)
    assert names_of(tf.global_variables()) == ["scope/dense/kernel:0", "scope/dense/bias:0"]
    assert dense.variables == dense.trainable_variables == [dense.kernel, dense.bias]
    assert dense.weights == dense.variables
    assert dense.non_trainable_variables == []
    assert dense.count_params() == 10
    assert (dense.name, dense.scope_name, dense.units, dense.built) == ("dense", "scope/dense", 2, True)
    assert dense.losses == tf.losses.get_regularization_losses()
    assert len(dense.losses) == 1
    values = run([first, second])
    np.testing.assert_array_equal(*values)


def test_layer_objects_with_the_same_name_have_separate_variables(graph):
    x = tf.zeros([2, 6, 6, 3])
    for _ in range(2):
        tf.layers.Conv2D(4, 3, name="conv")(x)
    batch_norm = tf.layers.BatchNormalization()
    batch_norm(x, training=True)
    frozen = tf.layers.BatchNormalization(trainable=False)
    frozen(x)
    assert names_of(tf.global_variables())[:4] == ["conv/kernel:0", "conv/bias:0", "conv_1/kernel:0", "conv_1/bias:0"]
    assert batch_norm.trainable_variables == [batch_norm.gamma, batch_norm.beta]
    assert batch_norm.non_trainable_variables == [batch_norm.moving_mean, batch_norm.moving_variance]
    assert frozen.non_trainable_variables == [frozen.gamma, frozen.beta, frozen.moving_mean, frozen.moving_variance]
    assert batch_norm.updates == tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert len(batch_norm.updates) == 2


def test_a_layer_object_can_reuse_existing_variables(graph):
    x = tf.zeros([2, 3])
    made = tf.layers.dense(x, 4, name="shared")
    shared = tf.layers.Dense(4, name="shared", _reuse=True)
    shared(x)
    assert names_of(shared.variables) == names_of(tf.global_variables()) == ["shared/kernel:0", "shared/bias:0"]
    np.testing.assert_array_equal(*run([made, shared(x)]))


def test_layers_without_variables(graph):
    x = tf.constant(np.arange(32, dtype=np.float32).reshape(2, 4, 4, 1))
    layers = [
        tf.layers.MaxPooling2D(2, 2),
        tf.layers.AveragePooling2D(2, 2),
        tf.layers.Flatten(),
        tf.layers.Dropout(0.5),
    ]
    largest, average, flat, same = run([layer(x) for layer in layers])
    assert largest[0, :, :, 0].tolist() == [[5.0, 7.0], [13.0, 15.0]]
    assert average[0, :, :, 0].tolist() == [[2.5, 4.5], [10.5, 12.5]]
    assert flat.shape == (2, 16)
    assert same.shape == (2, 4, 4, 1)
    assert layers[0].variables == []


class Scale(tf.layers.Layer):
    def build(self, input_shape):
        self.scale = self.add_variable("scale", [input_shape[-1]], initializer=tf.constant_initializer(3.0))

    def call(self, inputs):
        return inputs * self.scale


def test_layers_are_not_in_training_by_default(graph):
    x = tf.ones([1, 100])
    with tpk.TrainTowerContext():
        dropped = tf.layers.dropout(x), tf.layers.dropout(x, 0.5, None, None, True)
        tf.layers.batch_normalization(x)
        assert not tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert [value.min() for value in run(dropped)] == [1, 0]


def test_dropout_draws_again_in_each_run_of_a_loop_that_counts_no_steps(graph):
    x = tf.ones([1, 64])
    variational = {"variational_recurrent": True, "input_size": 64, "dtype": tf.float32}
    cells = [tf.nn.rnn_cell.DropoutWrapper(Echo(), input_keep_prob=0.5, **each) for each in ({}, variational)]
    dropped = [tf.layers.dropout(x, training=True), tf.layers.Dropout()(x, training=tf.constant(True))]
    dropped += [tf.nn.static_rnn(cell, [x, x], dtype=tf.float32)[0] for cell in cells]
    with tf.Session() as sess:
        first, second = (tensorflow.nest.flatten(sess.run(dropped)) for _ in range(2))
    assert not tf.global_variables()
    for before, after in zip(first, second, strict=True):
        assert set(np.unique(before)) == {0.0, 2.0}
        assert (before != after).any()
    np.testing.assert_array_equal(first[-1], first[-2])  # the same noise in each step of the sequence


def test_a_custom_layer(graph):
    layer = Scale()
    outputs = layer(tf.constant([[1.0, 2.0]])), layer(np.float32([[2.0, 3.0]]))
    assert names_of(layer.variables) == ["scale/scale:0"]
    assert [value.tolist() for value in run(outputs)] == [[[3.0, 6.0]], [[6.0, 9.0]]]


def test_errors_of_layers(graph):
    layer = tf.layers.Dense(2)
    with pytest.raises(AttributeError, match=r"no 'kernel'.*before it is built"):
        layer.kernel  # noqa: B018
    layer(tf.zeros([1, 2]))
    with pytest.raises(AttributeError, match=r"no 'kernal'. Its variables: kernel, bias"):
        layer.kernal  # noqa: B018
    with pytest.raises(TypeError, match="unexpected keyword argument 'input_shape'"):
        tf.layers.Dense(2, input_shape=(3,))
    with pytest.raises(ValueError, match="has no scope before it is called"):
        tf.layers.Dense(2).scope_name  # noqa: B018
    with tensorflow.Graph().as_default(), pytest.raises(ValueError, match="variables in another graph"):
        layer(tf.zeros([1, 2]))


@pytest.mark.skipif(tensorflow.__version__ >= "2.16", reason="TensorFlow has its own tf.layers up to 2.15")
def test_layers_match_tensorflow():
    def build(layers):
        with tensorflow.Graph().as_default():
            tf.set_random_seed(1)
            inputs = {1: tf.ones([2, 9, 4]), 2: tf.ones([2, 8, 8, 4]), 3: tf.ones([2, 5, 5, 5, 2])}
            outputs, variables = [], []
            for kind, rank, arguments in [
                ("Conv1D", 1, (3, 3)),
                ("Conv2D", 2, (3, 3)),
                ("Conv3D", 3, (3, 3)),
                ("Conv2DTranspose", 2, (3, 3, 2)),
                ("Conv3DTranspose", 3, (3, 3)),
                ("SeparableConv1D", 1, (6, 3)),
                ("SeparableConv2D", 2, (6, 3)),
                ("Dense", 2, (5,)),
                ("BatchNormalization", 2, ()),
                ("Dropout", 2, ()),
                ("Flatten", 2, ()),
                *((f"MaxPooling{rank}D", rank, (2, 2)) for rank in inputs),
                *((f"AveragePooling{rank}D", rank, (2, 1, "same")) for rank in inputs),
            ]:
                layer = getattr(layers, kind)(*arguments, trainable=kind != "Conv1D")
                outputs += [layer(inputs[rank]), layer.apply(inputs[rank])]
                variables.append([names_of(layer.variables), names_of(layer.trainable_variables)])
            return variables, names_of(outputs), names_of(tf.global_variables())

    assert build(tf.layers) == build(tensorflow.compat.v1.layers)


def test_layers_of_contrib_have_their_old_variables(graph):
    x = tf.ones([2, 8, 8, 3])
    with framework.arg_scope([contrib_layers.conv2d], weights_regularizer=contrib_layers.l2_regularizer(0.5)):
        x = contrib_layers.conv2d(x, 4, 3, normalizer_fn=contrib_layers.batch_norm, normalizer_params={"scale": True})
        x = contrib_layers.repeat(x, 2, contrib_layers.conv2d, 4, 3, scope="block")
    x = contrib_layers.max_pool2d(x, 2)
    x = contrib_layers.conv2d_transpose(x, 4, 3, stride=2)
    x = contrib_layers.separable_conv2d(x, 5, 3)
    x = contrib_layers.flatten(contrib_layers.layer_norm(x))
    x = contrib_layers.fully_connected(contrib_layers.dropout(x, is_training=False), 2, activation_fn=None)
    assert names_of(tf.global_variables()) == [
        "Conv/weights:0",
        "Conv/BatchNorm/gamma:0",
        "Conv/BatchNorm/beta:0",
        "Conv/BatchNorm/moving_mean:0",
        "Conv/BatchNorm/moving_variance:0",
        "block/block_1/weights:0",
        "block/block_1/biases:0",
        "block/block_2/weights:0",
        "block/block_2/biases:0",
        "Conv2d_transpose/weights:0",
        "Conv2d_transpose/biases:0",
        "SeparableConv2d/depthwise_weights:0",
        "SeparableConv2d/pointwise_weights:0",
        "SeparableConv2d/biases:0",
        "LayerNorm/beta:0",
        "LayerNorm/gamma:0",
        "fully_connected/weights:0",
        "fully_connected/biases:0",
    ]
    assert framework.get_model_variables() == tf.global_variables()
    assert len(tf.losses.get_regularization_losses()) == 3
    assert len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)) == 2
    assert run(x).shape == (2, 2)


def test_layers_of_contrib_take_the_arguments_of_tensorflow_1(graph):
    x = tf.constant([[[[-1.0]]]])
    ones = tf.ones_initializer()
    linear = contrib_layers.conv2d(x, 1, 1, 1, "SAME", None, activation_fn=None, weights_initializer=ones)
    rectified = contrib_layers.conv2d(x, 1, 1, weights_initializer=ones)
    dense = contrib_layers.fully_connected(x, 1, None, None, None, ones)
    assert [value.item() for value in run([linear, rectified, dense])] == [-1.0, 0.0, -1.0]
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'activation'"):
        contrib_layers.conv2d(x, 1, 1, activation=None)


@pytest.mark.parametrize(("dtype", "epsilon"), [("float32", 1e-12), ("float16", 1e-3), ("bfloat16", 1e-3)])
@pytest.mark.parametrize("begin_norm_axis", [1, 2, -1])
def test_layer_norm_of_contrib_normalizes_the_last_axes_of_each_example(graph, begin_norm_axis, dtype, epsilon):
    x = np.random.default_rng(0).normal(2, 1, [2, 4, 5, 3]).astype(np.float32)
    y = contrib_layers.layer_norm(tf.cast(x, dtype), begin_norm_axis=begin_norm_axis, activation_fn=tf.nn.relu)
    variables = [(variable.name, variable.shape.as_list(), variable.dtype) for variable in tf.trainable_variables()]
    assert variables == [(f"LayerNorm/{name}:0", [3], tf.float32) for name in ("beta", "gamma")]
    axes = tuple(range(begin_norm_axis % 4, 4))
    deviations = x - x.mean(axes, keepdims=True)
    expected = np.maximum(deviations / np.sqrt(x.var(axes, keepdims=True) + epsilon), 0)
    assert y.dtype.base_dtype == dtype
    np.testing.assert_allclose(run(tf.cast(y, tf.float32)), expected, atol=1e-4 if dtype == "float32" else 0.05)


def test_layer_norm_of_contrib_with_parameters_of_several_axes(graph):
    x = tf.placeholder(tf.float32, [None, None, 4, 3])
    y = contrib_layers.layer_norm(x, begin_params_axis=2, center=False, scope="norm")
    (gamma,) = tf.global_variables()
    assert (gamma.name, gamma.shape.as_list()) == ("norm/gamma:0", [4, 3])
    assert y.shape.as_list() == [None, None, 4, 3]
    with pytest.raises(ValueError, match="have no axis 4"):
        contrib_layers.layer_norm(x, begin_norm_axis=4)


def test_batch_norm_of_contrib_can_update_at_once(graph):
    x = tf.constant([[1.0], [3.0]])
    y = contrib_layers.batch_norm(x, decay=0.5, updates_collections=None)
    (mean,) = framework.get_variables_by_name("moving_mean")
    with tf.control_dependencies([y]):
        after = mean.read_value()
    assert tf.get_collection(tf.GraphKeys.UPDATE_OPS) == []
    assert run(after).tolist() == [1.0]
    with pytest.raises(TypeError, match="batch_weights"):
        contrib_layers.batch_norm(x, batch_weights=x)


def test_initializers_and_regularizers_of_contrib(graph):
    shape = [400, 300]
    drawn = run(
        [
            contrib_layers.xavier_initializer(seed=1)(shape),
            contrib_layers.xavier_initializer(uniform=False, seed=1)(shape),
            contrib_layers.variance_scaling_initializer(seed=1)(shape),
        ]
    )
    np.testing.assert_allclose([values.std() for values in drawn], np.sqrt([2 / 700, 2 / 700, 2 / 400]), rtol=0.02)
    assert np.abs(drawn[0]).max() <= np.sqrt(6 / 700)
    weights = tf.constant([3.0, -4.0])
    both = contrib_layers.l1_l2_regularizer(2.0, 0.5)
    assert run([contrib_layers.l2_regularizer(2.0)(weights), both(weights)]) == [25.0, 20.25]
    assert contrib_layers.l1_regularizer(0.0)(weights) is None


def test_framework_finds_variables_and_restores_them(graph, tmp_path):
    with tf.variable_scope("a"):
        first = framework.variable("w", [2], initializer=tf.ones_initializer())
    second = framework.model_variable("b/w", [2], initializer=tf.zeros_initializer())
    assert framework.get_variables("a") == framework.get_variables_to_restore(exclude=["b"]) == [first]
    assert framework.get_variables_by_name("w") == [first, second]
    assert framework.get_model_variables() == [second]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        path = tf.train.Saver([first]).save(sess, str(tmp_path / "model"))
        assert framework.list_variables(path) == [("a/w", [2])]
        op, feeds = framework.assign_from_checkpoint(path, {"a/w": second})
        sess.run(op, feeds)
        assert sess.run(second).tolist() == [1.0, 1.0]
        sess.run(first.assign([5.0, 5.0]))
        framework.assign_from_checkpoint_fn(path, [first, second], ignore_missing_vars=True)(sess)
        assert sess.run(first).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"missing variable \[b/w\]"):
        framework.assign_from_checkpoint(path, [second])
    assert framework.filter_variables([first, second], ["b"]) == [second]
    with pytest.raises(ValueError, match="not decorated with @add_arg_scope"), framework.arg_scope([len]):
        pass


def test_recurrent_names_from_before_1_0_are_those_of_today():
    assert tf.nn.rnn is tf.nn.static_rnn
    assert tf.nn.bidirectional_rnn is tf.nn.static_bidirectional_rnn
    assert tf.nn.seq2seq is tf.contrib.legacy_seq2seq
    assert tf.nn.rnn_cell.EmbeddingWrapper is rnn.EmbeddingWrapper


def test_cells_run_over_sequences(graph):
    words = tf.ones([2, 5, 3])
    with tf.variable_scope("dynamic"):
        cell = rnn.MultiRNNCell([tf.nn.rnn_cell.LSTMCell(4), rnn.GRUCell(4)])
        outputs, _ = tf.nn.dynamic_rnn(cell, words, dtype=tf.float32)
    with tf.variable_scope("static"):
        cell = rnn.DropoutWrapper(rnn.BasicLSTMCell(4), output_keep_prob=1.0)
        steps, state = rnn.static_rnn(cell, tf.unstack(words, axis=1), cell.zero_state(2, tf.float32))
    assert names_of(tf.global_variables())[:2] == [
        "dynamic/rnn/multi_rnn_cell/cell_0/lstm_cell/kernel:0",
        "dynamic/rnn/multi_rnn_cell/cell_0/lstm_cell/bias:0",
    ]
    outputs, steps, state = run([outputs, steps, state])
    assert outputs.shape == (2, 5, 4)
    np.testing.assert_array_equal(steps[-1], state.h)


@pytest.mark.parametrize("options", [{}, {"forget_bias": 0.5}, {"use_peephole": True, "cell_clip": 0.3}])
def test_lstm_block_cells_compute_what_the_op_does(graph, options):
    x, c, h = (tf.constant(np.random.RandomState(n).randn(2, 4).astype("float32")) for n in range(3))
    with tf.variable_scope("rnn", initializer=tf.random_normal_initializer(seed=1)):
        output, state = rnn.LSTMBlockCell(4, **options)(x, rnn.LSTMStateTuple(c, h))
    variables = {v.op.name: v for v in tf.global_variables()}
    kernel, bias = variables["rnn/lstm_cell/kernel"], variables["rnn/lstm_cell/bias"]
    diagonals = [variables.get(f"rnn/lstm_cell/w_{gate}_diag", tf.zeros([4])) for gate in "ifo"]
    expected = tensorflow.raw_ops.LSTMBlockCell(
        x=x, cs_prev=c, h_prev=h, w=kernel, wci=diagonals[0], wcf=diagonals[1], wco=diagonals[2], b=bias,
        forget_bias=options.get("forget_bias", 1.0), cell_clip=options.get("cell_clip", -1.0),
        use_peephole=options.get("use_peephole", False),
    )  # fmt: skip
    output, state, expected = run([output, state, expected])
    np.testing.assert_allclose(output, expected.h, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.c, expected.cs, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(state.h, output)


def test_the_loss_of_sequences_is_a_weighted_mean(graph):
    logits = tf.zeros([2, 3, 4])
    targets = tf.zeros([2, 3], tf.int32)
    weights = tf.constant([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    mean, of_times, of_words = run(
        [
            seq2seq.sequence_loss(logits, targets, weights),
            seq2seq.sequence_loss(logits, targets, weights, average_across_timesteps=False),
            seq2seq.sequence_loss(logits, targets, weights, False, False),
        ]
    )
    np.testing.assert_allclose(mean, np.log(4), rtol=1e-6)
    np.testing.assert_allclose(of_times, np.log(4) * np.array([1, 1, 0]), rtol=1e-6)
    assert of_words.shape == (2, 3)


class Echo(tf.nn.rnn_cell.RNNCell):
    state_size = output_size = 64

    def __call__(self, inputs, state, scope=None):
        return inputs, state


@pytest.fixture
def control_flow_v1():
    """The control flow that scripts use."""
    tensorflow.compat.v1.disable_control_flow_v2()
    yield
    tensorflow.compat.v1.enable_control_flow_v2()


def test_cells_with_dropout_draw_again_at_each_step_of_a_sequence(graph, control_flow_v1):
    cell = tf.nn.rnn_cell.DropoutWrapper(Echo(), input_keep_prob=0.5)
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.ones([1, 8, 64]), dtype=tf.float32)
    (values,) = run([outputs])
    assert set(np.unique(values)) == {0.0, 2.0}
    assert len({tuple(place) for place in values[0]}) > 1


def test_names_before_tensorflow_1_have_the_arguments_of_their_time(graph, tmp_path):
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    tf.scalar_summary("cost", 2.0)
    tf.histogram_summary("weights", x)
    results = {
        "mul": tf.mul(x, tf.neg(tf.sub(x, 1.0))),
        "pack": tf.pack(tf.unpack(x)),
        "concat": [tf.concat(0, [x, x]), tf.concat([x, x], 0), tf.concat(concat_dim=0, values=[x, x])],
        "split": [tf.split(1, 2, x), tf.split(x, 2, 1), tf.split(split_dim=1, num_split=2, value=x)],
        "batch_matmul": tf.batch_matmul(x[None], x[None], adj_y=True),
        "batch_svd": tf.batch_svd(x[None])[0],
        "select": tf.select(x > 2, x, -x),
        "resized": tf.image.resize_images(x[None, :, :, None], 4, 6),
        "whitened": tf.image.per_image_whitening(x[:, :, None]),
        "deconv": tf.nn.deconv2d(x[None, :, :, None], tf.ones([2, 2, 1, 1]), [1, 4, 4, 1], [1, 2, 2, 1]),
        "summaries": tf.merge_all_summaries(),
    }
    with tf.Session() as sess:
        found = sess.run(results)
        tf.train.SummaryWriter(str(tmp_path), sess.graph).close()
    assert found["mul"].tolist() == [[0, -2], [-6, -12]]
    assert found["pack"].tolist() == [[1, 2], [3, 4]]
    assert all(each.tolist() == [[1, 2], [3, 4], [1, 2], [3, 4]] for each in found["concat"])
    assert all([part.tolist() for part in each] == [[[1], [3]], [[2], [4]]] for each in found["split"])
    assert found["batch_matmul"][0].tolist() == [[5, 11], [11, 25]]
    np.testing.assert_allclose(found["batch_svd"].prod(), 2, rtol=1e-5)
    assert found["select"].tolist() == [[-1, -2], [3, 4]]
    assert found["resized"].shape == (1, 4, 6, 1)
    assert abs(found["whitened"].mean()) < 1e-6
    assert found["deconv"].shape == (1, 4, 4, 1)
    summary = tf.Summary.FromString(found["summaries"])
    assert [value.tag for value in summary.value] == ["cost", "weights"]
    assert list(tmp_path.glob("events.out.tfevents.*"))


@pytest.mark.parametrize("name", sorted(names.INSTEAD))
def test_what_is_missing_is_an_error_that_says_what_to_use(name):
    *path, last = name.split(".")
    with pytest.raises(AttributeError) as caught:
        getattr(functools.reduce(getattr, path, tf), last)
    assert f"tf.{name} is not available" in str(caught.value)
    assert f': use {names.INSTEAD[name]} (see "TF1 programs" in' in str(caught.value)


@pytest.mark.parametrize("name", sorted(names.MODULES))
def test_a_module_that_has_moved_is_where_the_table_says(name):
    assert importlib.import_module(names.MODULES[name])
