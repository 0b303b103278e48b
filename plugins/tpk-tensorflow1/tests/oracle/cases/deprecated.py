"""Names that TensorFlow 1.15 still has, but called deprecated."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import deprecated


def _tags(summary):
    def text_of(content):
        values = tf.Summary.FromString(content).value
        parts = [[value.tag, value.WhichOneof("value"), str(value.simple_value)] for value in values]
        return "; ".join(map(" ".join, parts)).encode()

    return tf.reshape(tf.py_func(text_of, [summary], tf.string), [1])


def summaries_before_1_0():
    with tf.name_scope("scope"):
        scalar = deprecated.scalar_summary("cost", tf.constant(1.5))
        several = deprecated.scalar_summary(["a", "b"], tf.constant([1.0, 2.0]), collections=["mine"])
        histogram = deprecated.histogram_summary("histogram", tf.range(4.0))
        image = deprecated.image_summary("image", tf.zeros([2, 3, 3, 1]), max_images=1)
    made = {"scalar": scalar, "several": several, "histogram": histogram, "image": image}
    results = {name: _tags(each) for name, each in made.items()}
    results["merged"] = _tags(deprecated.merge_summary([scalar, histogram]))
    results["all"] = _tags(deprecated.merge_all_summaries())
    results["names"] = [made[name].op.name for name in sorted(made)]
    results["collection"] = len(tf.get_collection("mine"))
    return results


def arguments_with_old_names():
    x = tf.constant(np.random.RandomState(0).rand(2, 3), tf.float32)
    labels = tf.constant([1, 0])
    return {
        "sum": tf.reduce_sum(x, reduction_indices=[1], keep_dims=True),
        "logsumexp": tf.reduce_logsumexp(x, 1, True),
        "argmax": tf.argmax(x, dimension=1),
        "arg_min": tf.arg_min(x, 0),
        "expand": tf.expand_dims(x, dim=1),
        "squeeze": tf.squeeze(x[:, None], squeeze_dims=[1]),
        "softmax": tf.nn.softmax(x, dim=0),
        "normalized": tf.nn.l2_normalize(x, dim=1),
        "length": tf.norm(x, axis=1, keep_dims=True),
        "count": tf.count_nonzero(x, reduction_indices=0),
        "reversed": tf.reverse_sequence(x, labels, seq_dim=1, batch_dim=0),
        "dropout": tf.nn.dropout(x, keep_prob=1.0),
        "casts": [tf.to_double(x), tf.to_int32(x), tf.to_bfloat16(x) > 0, tf.to_int64(labels)],
        "quotients": [tf.div(5, 2), tf.div(5.0, 2), tf.floor_div(-5, 2), tf.truncatemod(-5, 2)],
        "entropy": tf.nn.softmax_cross_entropy_with_logits(labels=tf.one_hot(labels, 3), logits=x),
        "multinomial": tf.shape(tf.multinomial(x, 4)),
        "string": tf.reduce_join(["a", "b"], reduction_indices=0, keep_dims=True),
        "split": tf.string_split(["a b"], delimiter=" ").values,
        "moments": tf.nn.moments(x, [1], keep_dims=True),
        "weighted": tf.nn.weighted_moments(x, [1], x, keep_dims=True),
        "weighted entropy": tf.nn.weighted_cross_entropy_with_logits(targets=x, logits=x, pos_weight=2.0),
        "gathered": tf.batch_gather(x, labels[:, None]),
        "scattered": tf.sparse_to_dense([[0, 1]], [2, 3], 1.0),
        "setdiff": tf.setdiff1d([1, 2, 3], [2]),
        "diagonal": [tf.matrix_diag(x), tf.matrix_set_diag(tf.zeros([3, 3]), x[0]), tf.matrix_band_part(x, 0, -1)],
        "space": tf.space_to_batch(tf.reshape(x, [1, 2, 3, 1])[:, :, :2], [[0, 0], [0, 0]], 2),
    }


def variables_with_old_names():
    first = tf.get_variable("first", initializer=tf.constant([1.0, 2.0]))
    second = tf.Variable(first.initialized_value() * 2, name="second")
    with tf.variable_op_scope([first], None, "default") as scope:
        third = tf.get_variable("third", [2], initializer=tf.uniform_unit_scaling_initializer(seed=1))
    return {
        "all": [each.op.name for each in tf.all_variables()],
        "second": second,
        "third": tf.shape(third),
        "scope": scope.name,
        "initialized": tf.is_variable_initialized(first),
        "missing": tf.report_uninitialized_variables(),
        "updated": tf.scatter_add(tf.Variable([1.0, 2.0], name="counts"), [1], [3.0]),
        "assigned": tf.assign_add(tf.Variable(1.0, name="number"), 2.0),
    }
