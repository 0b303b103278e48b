"""Warm starts: of a part of the variables, under other names, and with vocabularies that have changed."""

import json
import pathlib

import numpy as np
import tensorflow.compat.v1 as tf

WORDS = np.array(["apple", "pear", "plum", "fig", "kiwi", "apple"], object)
Y = np.array([0, 1, 2, 1, 0, 0])
pathlib.Path("old.txt").write_text("apple\npear\nplum\n")
pathlib.Path("new.txt").write_text("plum\nkiwi\napple\nfig\n")
columns = tf.feature_column
config = tf.estimator.RunConfig(tf_random_seed=3)


def input_fn():
    return tf.data.Dataset.from_tensor_slices(({"word": WORDS}, Y)).repeat().batch(4)


def column(path, size):
    return columns.categorical_column_with_vocabulary_file("word", path, size, num_oov_buckets=1)


def values(estimator):
    return {name: estimator.get_variable_value(name).tolist() for name in sorted(estimator.get_variable_names())}


def deep(path, size, directory, **options):
    embedded = columns.embedding_column(column(path, size), 2)
    return tf.estimator.DNNClassifier([3], [embedded], directory, n_classes=3, config=config, **options)


old = deep("old.txt", 3, "old")
old.train(input_fn, steps=8)
NAME = "dnn/input_from_feature_columns/input_layer/word_embedding/embedding_weights"
vocabulary = tf.estimator.VocabInfo("new.txt", 4, 1, "old.txt", 3)
settings = {
    "vocabulary": tf.estimator.WarmStartSettings("old", var_name_to_vocab_info={NAME: vocabulary}),
    "only_hidden": tf.estimator.WarmStartSettings("old", vars_to_warm_start=".*hiddenlayer.*"),
    "only_vocabulary": tf.estimator.WarmStartSettings(
        "old", vars_to_warm_start=None, var_name_to_vocab_info={NAME: vocabulary}
    ),
    "other_names": tf.estimator.WarmStartSettings(
        "old",
        vars_to_warm_start="dnn/logits/bias",
        var_name_to_prev_var_name={"dnn/logits/bias": "dnn/hiddenlayer_0/bias"},
    ),
    "all_variables": tf.estimator.WarmStartSettings("old", vars_to_warm_start=["dnn/logits.*", "dnn/hidden.*"]),
}
for name, warm_start in settings.items():
    estimator = deep("new.txt", 4, name, warm_start_from=warm_start)
    estimator.train(input_fn, steps=1)
    print(json.dumps([name, values(estimator)]))

same = deep("old.txt", 3, "same", warm_start_from=old.latest_checkpoint())
print(json.dumps({name: float(value) for name, value in sorted(same.evaluate(input_fn, steps=2).items())}))
same.train(input_fn, steps=3)
print(json.dumps(values(same)))

wide = tf.estimator.LinearClassifier([column("old.txt", 3)], "wide", n_classes=3, config=config)
wide.train(input_fn, steps=8)
wider = tf.estimator.LinearClassifier(
    [column("new.txt", 4)],
    "wider",
    n_classes=3,
    config=config,
    warm_start_from=tf.estimator.WarmStartSettings(
        "wide",
        var_name_to_vocab_info={
            "linear/linear_model/word/weights": tf.estimator.VocabInfo("new.txt", 4, 1, "old.txt", 3)
        },
    ),
)
wider.train(input_fn, steps=1)
print(json.dumps(values(wider)))
