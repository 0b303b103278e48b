"""`tf.contrib.framework`: variables, collections, argument scopes and checkpoints."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import framework, slim
from tensorflow.contrib.framework.python.ops import add_arg_scope, arg_scope, variables


def variables_in_collections():
    with tf.variable_scope("model"):
        weights = framework.model_variable(
            "weights", [2, 3], initializer=tf.ones_initializer(), regularizer=slim.l2_regularizer(0.1), device="/cpu:0"
        )
        framework.variable("bias", [3], initializer=tf.zeros_initializer(), collections=["mine"], trainable=False)
        framework.local_variable(tf.constant(2.0), name="local")
        variables.variable("plain", initializer=tf.constant([1.0, 2.0]))
    other = framework.model_variable("models/weights", [1], initializer=tf.ones_initializer())
    framework.add_model_variable(tf.get_variable("added", [2], initializer=tf.ones_initializer()))
    step = framework.get_or_create_global_step()

    def names(found):
        return [each.op.name for each in found]

    return {
        "weights": weights,
        "other": other,
        "step": step,
        "all": names(framework.get_variables()),
        "of a scope": names(framework.get_variables("model")),
        "of a scope object": names(framework.get_variables(tf.get_variable_scope())),
        "suffix": names(framework.get_variables_by_suffix("weights", "model")),
        "name": names(framework.get_variables_by_name("weights")),
        "model": names(framework.get_model_variables("model")),
        "trainable": names(framework.get_trainable_variables()),
        "local": names(framework.get_local_variables()),
        "mine": names(tf.get_collection("mine")),
        "unique": framework.get_unique_variable("model/weights").op.name,
        "to restore": names(framework.get_variables_to_restore(["model", "added"], ["model/bias"])),
        "filtered": names(framework.filter_variables(tf.global_variables(), ["model/.*"], ["bias"])),
        "not searched": names(
            framework.filter_variables(tf.global_variables(), ["weights", "added"], reg_search=False)
        ),
        "regularization": tf.add_n(tf.losses.get_regularization_losses()),
    }


def _layer(inputs, size=1, factor=2.0, scope=None):
    return tf.fill([size], factor) * inputs


def variables_with_an_argument_scope():
    images = tf.constant(np.random.RandomState(0).rand(2, 4, 4, 3).astype(np.float32))
    device = slim.VariableDeviceChooser(job_name="localhost")
    with arg_scope([framework.model_variable, slim.variable], device=device, initializer=tf.ones_initializer()):
        made = [framework.model_variable("a", [2]), slim.model_variable("b", [2]), slim.variable("c", [1])]
    with arg_scope([slim.instance_norm], center=False, epsilon=0.5), arg_scope([slim.conv2d], padding="VALID"):
        outputs = slim.conv2d(images, 2, 3, normalizer_fn=slim.instance_norm)
    return {"devices": [each.device for each in made], "values": made, "outputs": outputs}


def argument_scopes():
    layer, same = add_arg_scope(_layer), add_arg_scope(lambda inputs, factor=5.0: inputs * factor)
    with arg_scope([layer, same], factor=3.0) as scope:
        first = layer(1.0)
        with arg_scope([layer], size=2):
            both = layer(1.0), layer(1.0, factor=4.0), same(tf.constant(1.0))
        after = layer(1.0)
    with arg_scope(scope), slim.arg_scope([layer], size=3):
        again = layer(1.0)
    return {
        "first": first,
        "both": both,
        "after": after,
        "again": again,
        "outside": layer(1.0),
        "has": framework.has_arg_scope(layer),
        "arguments": sorted(slim.arg_scoped_arguments(layer)),
    }


def checkpoints():
    with tf.Graph().as_default(), tf.Session() as sess:
        tf.get_variable("scope/a", initializer=tf.constant(np.arange(6.0).reshape(2, 3), tf.float32))
        tf.get_variable("b", initializer=tf.constant([7.0, 8.0]))
        sess.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(sess, "./saved", global_step=3)
        feeds = {}
        c = tf.get_variable("c", [2, 3])
        for values in ({"scope/a": c}, {"b": tf.get_variable("d", [2])}):
            op, fed = framework.assign_from_checkpoint(path, values)
            sess.run(op, fed)
            feeds.update({name: sess.run(each) for name, each in values.items()})
        op, fed = framework.assign_from_values({"c": np.ones([2, 3]), "d": np.zeros(2)})
        sess.run(op, fed)
        framework.assign_from_values_fn({"c": np.full([2, 3], 4.0)})(sess)
        assigned = sess.run([c, tf.get_default_graph().get_tensor_by_name("d:0")])
        f = tf.get_variable("f", [3, 2])
        framework.assign_from_checkpoint_fn(path, {"scope/a": f, "missing": c}, True, reshape_variables=True)(sess)
        reshaped = sess.run(f)
    with tf.variable_scope("new"):
        initialized = tf.get_variable("a", [2, 3])
    framework.init_from_checkpoint(path, {"scope/": "new/"})
    return {
        "feeds": feeds,
        "assigned": assigned,
        "reshaped": reshaped,
        "initialized": initialized,
        "listed": ["{} {}".format(*each) for each in framework.list_variables(path)],
        "loaded": framework.load_variable(path, "b"),
        "found": framework.load_checkpoint(path).has_tensor("scope/a"),
    }


def small_functions():
    x = tf.constant([[3.0, 1.0, 2.0]])
    with tf.name_scope("outer"):
        scope = framework.get_name_scope()
    nested = framework.nest.map_structure(lambda each: each * 2, {"a": x, "b": [x]})
    return {
        "sorted": framework.sort(x, direction="DESCENDING"),
        "order": framework.argsort(x),
        "scope": scope,
        "nested": nested,
        "is tensor": [framework.is_tensor(x), framework.is_tensor(1.0)],
    }
