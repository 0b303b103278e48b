"""Where the names of TensorFlow 1 are today: the tables of the runner, the errors and the manual."""

from __future__ import annotations

_LEFT_CONTRIB = ("autograph", "keras", "linalg", "signal")

MODULES = {
    **{f"contrib.{name}": f"tensorflow.{name}" for name in _LEFT_CONTRIB},
    "contrib.compiler": "tensorflow.python.compiler.xla",
    "contrib.framework.python.ops.audio_ops": "tensorflow.python.ops.gen_audio_ops",
    "contrib.hooks": "tensorflow.python.training.basic_session_run_hooks",
    "contrib.lite": "tensorflow._api.v2.compat.v1.lite",
    "contrib.lookup": "tensorflow.python.ops.lookup_ops",
    "contrib.staging": "tensorflow.python.ops.data_flow_ops",
    "contrib.stateless": "tensorflow.python.ops.stateless_random_ops",
    "contrib.tensorboard.plugins": "tensorboard.plugins",
    "contrib.tpu.tpu": "tpk_tensorflow1.contrib.tpu",
    "contrib.util": "tpk_tensorflow1.internals",
    "python.estimator": "tpk_tensorflow1.estimator",
    "python.framework.graph_util": "tpk_tensorflow1.internals",
    "python.framework.graph_util_impl": "tpk_tensorflow1.internals",
    "python.framework.ops": "tpk_tensorflow1.internals",
    "python.layers.utils": "tensorflow.python.layers.utils",
    "python.layers": "tpk_tensorflow1.layers",
    "python.ops.control_flow_ops": "tpk_tensorflow1.internals",
    "python.ops.rnn_cell": "tpk_tensorflow1.rnn_cell",
    "python.ops.rnn_cell_impl": "tpk_tensorflow1.rnn_cell",
    "python.ops.seq2seq": "tpk_tensorflow1.contrib.legacy_seq2seq",
    "python.pywrap_tensorflow": "tpk_tensorflow1.internals",
    "python.training.training_ops": "tensorflow.python.ops.gen_training_ops",
    "python.util.nest": "tpk_tensorflow1.internals",
    "pywrap_tensorflow": "tpk_tensorflow1.internals",
}
"""Modules with another name today, by their names in TensorFlow 1."""

EXTRAS = {"tensorflow_probability": "distributions", "tpk_estimator": "estimator"}
"""The extras of tpk-tensorflow1 that install optional libraries."""

LIBRARIES = {
    "contrib.distributions": ["tensorflow_probability.distributions", "tensorflow_probability"],
    "contrib.estimator": ["tpk_estimator.contrib", "tpk_estimator"],
    "contrib.framework": ["tf_slim.ops.variables", "tf_slim.ops.arg_scope", "tensorflow.python.framework.smart_cond"],
    "contrib.layers": ["tf_slim.layers.optimizers", "tf_slim.layers.utils", "tf_slim"],
    "contrib.learn": ["tpk_estimator"],
    "contrib.losses": ["tf_slim.losses"],
    "contrib.metrics": ["tf_slim.metrics"],
    "contrib.slim": ["tf_slim.layers.optimizers", "tf_slim.layers.utils", "tf_slim.training.training", "tf_slim"],
    "contrib.slim.nets": ["tf_slim.nets"],
    "contrib.tpu": ["tpk_estimator.tpu"],
    "contrib.training": ["tf_slim.training.training", "tf_slim.training.evaluation"],
    "estimator": ["tpk_estimator"],
}
"""Modules of libraries that have further names of modules. All except tf_slim are optional."""

_FILES = """
arg_scope attention_wrapper base basic_decoder beam_search_decoder beam_search_ops checkpoint_ops checkpoint_utils
classification convolutional core core_rnn core_rnn_cell core_rnn_cell_impl crf decoder embedding_ops encoders estimator
framework fused_rnn_cell gru_ops helper hparam image_ops initializers layers learn loss loss_ops losses
lstm_ops metric_loss_ops metric_ops metrics model_fn normalization ops optimizers pooling python regularizers rnn
rnn_cell rnn_cell_impl run_config seq2seq set_ops slim summaries tensor_util text tpu_config tpu_estimator
tpu_optimizer training utils variables
"""
IMPLEMENTATION = frozenset(_FILES.split())
"""Parts of the paths of TensorFlow's own files, such as ``contrib.layers.python.layers.initializers``."""

_ESTIMATOR = 'tf.estimator, as the page "Coming from tf.estimator" of tpk\'s manual shows'
_FEATURE_COLUMNS = "tf.feature_column"
_TREES = "the package tensorflow_decision_forests"

_INSTEAD = {
    "": {"audio_summary": "tf.summary.audio"},
    "contrib": {
        "batching": "tf.nondifferentiable_batch_function",
        "bayesflow timeseries": "the package tensorflow-probability",
        "boosted_trees tensor_forest": _TREES,
        "checkpoint": "tf.train.Checkpoint",
        "cluster_resolver": "tf.distribute.cluster_resolver",
        "copy_graph": "tf.import_graph_def",
        "cudnn_rnn": "tf.nn.rnn_cell.LSTMCell or GRUCell, with tf.nn.dynamic_rnn",
        "eager": "TensorFlow 2 without tpk_tensorflow1, which is eager by default",
        "learn_runner": _ESTIMATOR,
        "factorization": "sklearn.cluster for clusters, and the package implicit for matrix factorization",
        "feature_column": _FEATURE_COLUMNS,
        "ffmpeg": "tf.audio.decode_wav",
        "gan": "the package tensorflow-gan",
        "graph_editor": "tf.import_graph_def with input_map, or tf.graph_util",
        "grid_rnn": "tf.contrib.rnn",
        "integrate": "tfp.math.ode of the package tensorflow-probability",
        "memory_stats": "tf.config.experimental.get_memory_info",
        "mixed_precision": "tf.train.experimental.enable_mixed_precision_graph_rewrite",
        "nccl": 'tpk.make_trainer("replicated")',
        "nn": "tf.nn, which has conv1d_transpose; alpha_dropout has no equivalent",
        "model_pruning quantization quantize": "the package tensorflow-model-optimization",
        "resampler": "tf.gather_nd",
        "saved_model session_bundle": "tf.saved_model",
        "tfprof": "tf.profiler",
    },
    "estimator": {"BoostedTreesClassifier BoostedTreesEstimator BoostedTreesRegressor": _TREES},
    "contrib.deprecated": {"audio_summary": "tf.summary.audio"},
    "contrib.distributions": {"percentile": "tfp.stats.percentile of the package tensorflow-probability"},
    "contrib.image": {"connected_components": "scipy.ndimage.label"},
    "contrib.layers": {
        """bucketized_column crossed_column embedding_column feature_column input_from_feature_columns one_hot_column
        real_valued_column shared_embedding_columns sparse_column_with_hash_bucket sparse_column_with_keys
        sparse_column_with_integerized_feature sparse_column_with_vocabulary_file weighted_sparse_column
        """: _FEATURE_COLUMNS,
        "bow_encoder": "tf.contrib.layers.safe_embedding_lookup_sparse",
        "embedding_lookup_unique": "tf.nn.embedding_lookup",
    },
    "contrib.learn": {
        """BaseEstimator DNNClassifier DNNLinearCombinedClassifier DNNLinearCombinedRegressor DNNRegressor Estimator
        Experiment LinearClassifier LinearRegressor ModelFnOps SKCompat learn_runner
        """: _ESTIMATOR,
        "KMeansClustering": "sklearn.cluster.KMeans",
        "monitors": "session hooks, such as tf.train.LoggingTensorHook",
    },
    "contrib.learn.preprocessing": {
        "ByteProcessor": "numpy.frombuffer(text.encode(), numpy.uint8)",
        "CategoricalProcessor": "tf.contrib.learn.preprocessing.CategoricalVocabulary",
    },
    "contrib.training": {
        "bucket bucket_by_sequence_length": "tf.data.experimental.bucket_by_sequence_length",
        "batch_sequences_with_states NextQueuedSequenceBatch SequenceQueueingStateSaver": "tf.data.Dataset.window",
        "parse_values": "HParams.parse",
        "rejection_sample resample_at_rate stratified_sample": "tf.data.experimental.rejection_resample",
    },
    "contrib.crf": {
        "CrfDecodeBackwardRnnCell CrfDecodeForwardRnnCell": "crf_decode",
        "CrfForwardRnnCell": "crf_log_norm",
    },
    "contrib.legacy_seq2seq": {
        "embedding_attention_decoder": "attention_decoder with a loop_function",
        "embedding_rnn_decoder tied_rnn_seq2seq": "rnn_decoder with a loop_function",
        "embedding_tied_rnn_seq2seq one2many_rnn_seq2seq": "embedding_rnn_seq2seq",
    },
    "contrib.rnn": {
        "AttentionCellWrapper": "tf.contrib.seq2seq.AttentionWrapper, which attends to a given memory",
        "Conv1DLSTMCell Conv2DLSTMCell Conv3DLSTMCell ConvLSTMCell": "a subclass of RNNCell with tf.layers.conv2d",
        "CoupledInputForgetGateLSTMCell GLSTMCell IndyLSTMCell PhasedLSTMCell TimeFreqLSTMCell": "LSTMCell",
        "BidirectionalGridLSTMCell GridLSTMCell": "tf.nn.dynamic_rnn with an LSTMCell along each axis",
        "GRUBlockCell GRUBlockCellV2 IndRNNCell IndyGRUCell IntersectionRNNCell SRUCell UGRNNCell": "GRUCell",
        "InputProjectionWrapper": "tf.layers.dense for the inputs",
        "FusedRNNCellAdaptor LSTMBlockWrapper": "LSTMBlockFusedCell, or tf.nn.dynamic_rnn with time_major=True",
        "HighwayWrapper": "ResidualWrapper with a residual_fn",
        "stack_bidirectional_rnn": "stack_bidirectional_dynamic_rnn",
    },
    "contrib.seq2seq": {"CustomHelper InferenceHelper ScheduledOutputTrainingHelper": "a subclass of Helper"},
    "contrib.opt": {
        "AdaMaxOptimizer AdamWOptimizer LazyAdamOptimizer NadamOptimizer": "tf.train.AdamOptimizer",
        "clip_gradients_by_global_norm": "tf.clip_by_global_norm",
        "DecoupledWeightDecayExtension extend_with_decoupled_weight_decay": "v.assign_sub(decay * v) after each step",
        "ExternalOptimizerInterface": "ScipyOptimizerInterface",
        "LARSOptimizer MomentumWOptimizer": "tf.train.MomentumOptimizer",
        "ModelAverageOptimizer MovingAverageOptimizer": "tpk.MovingAverageOptimizer around the optimizer",
    },
}

INSTEAD = {
    ".".join(filter(None, (module, name))): use
    for module, table in _INSTEAD.items()
    for names, use in table.items()
    for name in names.split()
}
"""What to use instead of names that are not available."""


def module_today(module: str) -> str:
    """Return the name of the module that has the names of a module of TensorFlow 1.

    Args:
        module: the name in TensorFlow, such as ``"contrib.layers.python.layers.initializers"``.

    Example:
        >>> module_today("contrib.slim.python.slim.nets.vgg")
        'tpk_tensorflow1.contrib.slim.nets.vgg'
        >>> module_today("contrib.keras.layers")
        'tensorflow.keras.layers'
    """
    for old, new in MODULES.items():
        if f"{module}.".startswith(f"{old}."):
            new += module.removeprefix(old)
            break
    else:
        new = f"{'tensorflow' if module.split('.')[0] in ('core', 'python') else 'tpk_tensorflow1'}.{module}"
    parts = new.split(".")
    if parts[0] != "tpk_tensorflow1":
        return new
    kept = 3 if parts[1] == "contrib" else 2
    return ".".join([*parts[:kept], *(part for part in parts[kept:] if part not in IMPLEMENTATION)])
