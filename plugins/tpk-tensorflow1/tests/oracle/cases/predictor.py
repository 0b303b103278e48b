import tensorflow as tf
from tensorflow.contrib import predictor
from tensorflow.contrib.predictor import from_saved_model


def _exported(directory):
    """Write a SavedModel, and return a signature of it."""
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [None, 2], "x")
        rate = tf.placeholder_with_default(2.0, [], "rate")
        weights = tf.get_variable("weights", initializer=[[1.0], [3.0]])
        y = tf.identity(rate * tf.matmul(x, weights), "y")
        words = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([5, 7], tf.int64))
        number = tf.lookup.StaticHashTable(words, -1).lookup(tf.constant(["b", "c"]))
        sess.run([weights.initializer, tf.tables_initializer()])
        signature_of = tf.saved_model.predict_signature_def
        both = signature_of({"x": x, "rate": rate}, {"y": y, "number": number})
        builder = tf.saved_model.Builder(directory)
        builder.add_meta_graph_and_variables(
            sess,
            ["serve", "small"],
            {"serving_default": both, "less": signature_of({"inputs": x}, {"outputs": y})},
            main_op=tf.tables_initializer(),
        )
        builder.save()
    return both


def saved_model():
    directory = "./model"
    signature = _exported(directory)
    x = [[1.0, 2.0], [3.0, 4.0]]
    options = {"tags": "serve,small"}
    graph = tf.Graph()
    default = predictor.from_saved_model(directory, config=tf.ConfigProto(), graph=graph, **options)
    names = {"input_names": {"in": "x:0"}, "output_names": {"out": "y:0"}}
    results = {
        "default": default({"x": x}),
        "again": default({"x": x, "rate": 0.5}),
        "key": from_saved_model(directory, "less", **options)({"inputs": x}),
        "signature": from_saved_model(directory, signature_def=signature, **options)({"x": x}),
        "names": from_saved_model(directory, **dict(names, **options))({"in": x}),
        "tensors": sorted(each.name for each in [*default.feed_tensors.values(), *default.fetch_tensors.values()]),
        "graph": default.graph is default.session.graph is graph,
    }
    wrong = {
        "no such input": lambda: default({"x": x, "y": x}),
        "two signatures": lambda: from_saved_model(directory, "less", signature, **options),
        "key and names": lambda: from_saved_model(directory, "less", **dict(names, **options)),
        "only inputs": lambda: from_saved_model(directory, input_names={"in": "x:0"}, **options),
        "only outputs": lambda: from_saved_model(directory, output_names={"out": "y:0"}, **options),
    }
    for name, call in wrong.items():
        try:
            call()
        except ValueError:
            results[name] = "ValueError"
    return results
