import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers, slim
from tensorflow.contrib.framework import arg_scope
from tensorflow.contrib.layers.python.layers import utils


def _images(shape=(2, 8, 8, 4)):
    return tf.constant(np.random.RandomState(0).randn(*shape).astype(np.float32))


def _named(outputs):
    return {"outputs": outputs, "names": [each.name for each in outputs]}


def convolutions():
    sequences, images, volumes = _images((2, 9, 3)), _images(), _images((2, 4, 4, 4, 2))
    return _named(
        [
            layers.conv1d(sequences, 3, 3),
            layers.conv2d(images, 3, 3),
            layers.conv2d(images, 3, [3, 1], 2, "VALID", activation_fn=None),
            layers.conv2d(images, 3, 3, rate=2, biases_initializer=None),
            layers.conv2d(layers.avg_pool2d(images, 2), 3, 3),
            layers.conv3d(volumes, 3, 2),
            layers.convolution(sequences, 2, 2, scope="by_rank"),
            layers.conv2d_transpose(images, 3, 3, 2),
            layers.conv3d_transpose(volumes, 3, 2, 2),
            layers.separable_conv2d(images, 3, 3, 2),
            layers.separable_conv2d(images, None, 3, 1),
        ]
    )


def fully_connected():
    images = _images((3, 5))
    return _named(
        [
            layers.fully_connected(images, 4),
            layers.linear(images, 2, scope="linear"),
            layers.relu(images, 2),
            layers.relu6(images, 2),
            layers.elu(images, 2),
            layers.stack(images, layers.relu, [3, 2]),
            layers.fully_connected(_images((2, 3, 5)), 2),
            layers.bias_add(images, initializer=tf.constant_initializer(0.5), activation_fn=tf.nn.relu),
        ]
    )


def pooling_and_plain_layers():
    images, volumes = _images(), _images((2, 4, 4, 4, 2))
    batch = tf.placeholder_with_default(images, [None, 8, 8, 4])
    named = [
        layers.max_pool2d(images, 2),
        layers.avg_pool2d(images, [2, 3], 1, "SAME"),
        layers.max_pool3d(volumes, 2),
        layers.avg_pool3d(volumes, 2, scope="pool"),
        layers.flatten(batch),
        layers.one_hot_encoding([0, 2], 3),
        layers.softmax(batch),
        layers.softmax(layers.flatten(images, scope="flat"), scope="Predictions"),
        layers.unit_norm(images, 3),
        layers.maxout(images, 2),
        layers.maxout(images, 2, axis=1),
        layers.maxout(batch, 2, axis=2),
    ]
    return {
        **_named(named),
        "dropout": layers.dropout(images, 0.5, seed=3),
        "no": layers.dropout(images, is_training=False),
    }


def normalizers():
    images = _images((4, 6, 6, 8))
    outputs = [
        layers.batch_norm(images, decay=0.5),
        layers.batch_norm(images, decay=0.5, scale=True, is_training=False, scope="inference"),
        layers.batch_norm(images, decay=0.5, updates_collections=None, fused=False, activation_fn=tf.nn.relu),
        layers.batch_norm(images, param_initializers={"beta": tf.ones_initializer()}, scope="initialized"),
        layers.layer_norm(images),
        layers.layer_norm(images, begin_norm_axis=-1, center=False),
        layers.instance_norm(images),
        layers.instance_norm(images, scale=False, activation_fn=tf.nn.relu, epsilon=0.1),
        layers.group_norm(images, groups=4),
    ]
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    return {"outputs": outputs, "updates": tf.group(*updates), "number": len(updates)}


def batch_norms_that_create_beta_first():
    images, vectors = _images((4, 6, 6, 8)), _images((6, 5))
    either = tf.placeholder_with_default(True, [])
    regularizers = {"beta": slim.l1_l2_regularizer(0.1, 0.2), "gamma": slim.l2_regularizer(0.5, "mine")}
    outputs = [
        layers.batch_norm(vectors, decay=0.5, scale=True, param_regularizers=regularizers),
        layers.batch_norm(vectors, decay=0.5, scale=True, fused=False, scope="gamma_first"),
        layers.batch_norm(vectors, scale=True, is_training=False, reuse=True, scope="BatchNorm"),
        layers.batch_norm(images, decay=0.5, scale=True, updates_collections=None, scope="forced"),
        layers.batch_norm(images, decay=0.5, scale=True, updates_collections="mine", trainable=False, scope="mine"),
        layers.batch_norm(vectors, decay=0.5, updates_collections=None, is_training=either, scope="either"),
        layers.batch_norm(_images((2, 3, 4)), scale=True, is_training=False, scope="sequences"),
    ]
    updates = [*tf.get_collection(tf.GraphKeys.UPDATE_OPS), *tf.get_collection("mine")]
    losses = tf.losses.get_regularization_losses()
    return {
        "outputs": outputs,
        "updates": tf.group(*updates),
        "loss": tf.add_n(losses),
        "names": [v.name for v in losses],
    }


def layers_with_arguments():
    images = _images()
    with arg_scope(
        [slim.conv2d, slim.fully_connected],
        weights_regularizer=slim.l2_regularizer(0.5),
        weights_initializer=slim.variance_scaling_initializer(),
        normalizer_fn=slim.batch_norm,
        normalizer_params={"scale": True, "is_training": True, "decay": 0.9, "fused": False},
    ):
        x = slim.conv2d(images, 4, 3, variables_collections={"weights": ["mine"], "biases": None})
        x = slim.repeat(x, 2, slim.conv2d, 4, 3)
        x = slim.stack(x, slim.conv2d, [(4, [3, 3]), (5, [1, 1])], scope="stacked")
        with arg_scope([slim.conv2d], activation_fn=None, biases_regularizer=slim.l1_regularizer(0.1)):
            x = slim.conv2d(x, 3, 1, normalizer_fn=None, trainable=False, scope="last")
        x = slim.fully_connected(slim.flatten(x), 3, reuse=tf.AUTO_REUSE, scope="logits")
    return {
        "outputs": x,
        "losses": tf.losses.get_regularization_losses(),
        "mine": [each.op.name for each in tf.get_collection("mine")],
        "model variables": [each.op.name for each in slim.get_model_variables()],
        "updates": len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)),
    }


def named_outputs():
    with arg_scope([slim.conv2d, slim.max_pool2d, slim.flatten, slim.dropout], outputs_collections="ends"):
        with tf.variable_scope("net"):
            x = slim.conv2d(_images(), 3, 3)
            x = slim.repeat(x, 2, slim.conv2d, 3, 3, scope="block")
        x = slim.max_pool2d(x, 2)
        x = slim.max_pool2d(x, 2, scope="pool")
        x = slim.dropout(slim.flatten(x), is_training=False)
    ends = utils.convert_collection_to_dict("ends", clear_collection=True)
    return {"ends": list(ends.items()), "left": len(tf.get_collection("ends")), "last": utils.last_dimension(x.shape)}


def initializers_and_regularizers():
    weights = tf.get_variable("weights", [3, 4], initializer=layers.xavier_initializer())
    for uniform in (True, False):
        tf.get_variable("xavier_" + str(uniform), [3, 3, 4, 5], initializer=layers.xavier_initializer_conv2d(uniform))
        for mode in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
            scaling = layers.variance_scaling_initializer(3.0, mode, uniform)
            tf.get_variable(mode + str(uniform), [3, 3, 4, 5], initializer=scaling)
    regularizers = [
        layers.l1_regularizer(0.1),
        layers.l2_regularizer(0.1),
        layers.l1_l2_regularizer(0.1, 0.2),
        layers.sum_regularizer([layers.l1_regularizer(0.5), None]),
    ]
    return [
        [each(weights) for each in regularizers],
        layers.apply_regularization(layers.l2_regularizer(0.5), [weights]),
        tf.losses.get_regularization_losses(),
    ]


def embeddings():
    ids = tf.constant([[0, 2, 1], [1, 1, 3]])
    first = layers.embed_sequence(ids, 4, 3)
    with tf.variable_scope("words"):
        second = layers.embed_sequence(ids, 4, 2, scope="shared", regularizer=layers.l2_regularizer(0.1))
        third = layers.embed_sequence(ids, scope="shared", reuse=True)
    sparse = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], [1, 2, 3], [3, 2])
    weights = tf.get_variable("sparse", [4, 2])
    return [first, second, third, layers.safe_embedding_lookup_sparse(weights, sparse, combiner="sum")]


def _trained(**options):
    x = tf.get_variable("x", initializer=[3.0, 4.0])
    y = tf.get_variable("y", initializer=[1.0])
    options = {name: each(x, y) if name.startswith("gradient_m") else each for name, each in options.items()}
    options.setdefault("learning_rate", 0.1)
    options.setdefault("optimizer", "SGD")
    step = tf.train.get_or_create_global_step()
    trained = layers.optimize_loss(tf.reduce_sum(x**2) + tf.reduce_sum(2 * y), step, **options)
    # The value of the loss depends on timing, because the variables are changed in place.
    return {"train": trained.op, "summaries": [each.op.name for each in tf.get_collection(tf.GraphKeys.SUMMARIES)]}


def optimize_loss():
    return _trained()


def optimize_loss_with_clipping():
    return _trained(optimizer="Adam", clip_gradients=1.0, summaries=layers.OPTIMIZER_SUMMARIES, name="train")


def optimize_loss_with_decay():
    def decayed(rate, step):
        return tf.train.exponential_decay(rate, step, 1, 0.5)

    return _trained(optimizer=tf.train.AdagradOptimizer, learning_rate_decay_fn=decayed)


def optimize_loss_with_multipliers():
    return _trained(
        optimizer=lambda rate: tf.train.MomentumOptimizer(rate, 0.9),
        gradient_multipliers=lambda x, y: {x: 0.5, y.name: 2},
        increment_global_step=False,
        summaries=[],
    )


def optimize_loss_with_noise():
    return _trained(gradient_noise_scale=0.1, optimizer="RMSProp")


def optimize_loss_of_embeddings():
    embeddings = tf.get_variable("embeddings", initializer=[[3.0, 4.0], [1.0, 2.0], [5.0, 6.0]])
    loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(embeddings, [0, 2])))
    multipliers = {embeddings: 0.5}
    tf.train.create_global_step()
    return layers.optimize_loss(loss, None, 0.1, "RMSProp", gradient_multipliers=multipliers, clip_gradients=5.0).op
