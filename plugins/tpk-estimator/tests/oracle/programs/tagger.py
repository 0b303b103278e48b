"""A sequence tagger: words by generators, an LSTM, a CRF, and train_and_evaluate with exporters."""

import json
import pathlib

import numpy as np
import tensorflow.compat.v1 as tf

WORDS, TAGS, SIZE = 20, 4, 6


def sentences(number, seed):
    random = np.random.RandomState(seed)

    def generate():
        for _ in range(number):
            words = random.randint(1, WORDS, random.randint(2, 7))
            yield (words, len(words)), words % TAGS

    return generate


def input_fn(number, seed, params=None, is_training=False):
    shapes = (([None], ()), [None])
    types = ((tf.int32, tf.int32), tf.int32)
    data = tf.data.Dataset.from_generator(sentences(number, seed), output_types=types, output_shapes=shapes)
    if is_training:
        data = data.repeat(params["epochs"])
    return data.padded_batch((params or {}).get("batch_size", 5), shapes).prefetch(1)


def log_likelihood(scores, tags, mask, transitions):
    """Return the log-likelihood of the tags of each sentence in a linear-chain CRF."""
    one_hot = tf.one_hot(tags, TAGS)
    unary = tf.reduce_sum(tf.reduce_sum(scores * one_hot, 2) * mask, 1)
    pairs = tf.gather_nd(transitions, tf.stack([tags[:, :-1], tags[:, 1:]], 2))
    score = unary + tf.reduce_sum(pairs * mask[:, 1:], 1)

    def step(alpha, inputs):
        score, mask = inputs
        new = tf.reduce_logsumexp(alpha[:, :, None] + transitions[None], 1) + score
        return mask[:, None] * new + (1 - mask[:, None]) * alpha

    rest = (tf.transpose(scores, [1, 0, 2])[1:], tf.transpose(mask)[1:])
    alpha = tf.foldl(step, rest, initializer=scores[:, 0])
    return score - tf.reduce_logsumexp(alpha, 1)


def model_fn(features, labels, mode, params):
    if isinstance(features, dict):
        features = features["words"], features["lengths"]
    words, lengths = features
    embedded = tf.nn.embedding_lookup(tf.get_variable("embeddings", [WORDS, SIZE]), words)
    cell = tf.nn.rnn_cell.LSTMCell(SIZE)
    states, _ = tf.nn.dynamic_rnn(cell, embedded, lengths, dtype=tf.float32)
    scores = tf.layers.dense(states, TAGS)
    transitions = tf.get_variable("crf", [TAGS, TAGS])
    tags = tf.argmax(scores, 2, output_type=tf.int32)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"tags": tags})
    mask = tf.sequence_mask(lengths, tf.shape(words)[1], tf.float32)
    loss = tf.reduce_mean(-log_likelihood(scores, labels, mask, transitions))
    metrics = {
        "acc": tf.metrics.accuracy(labels, tags, mask),
        "precision": tf.metrics.precision(tf.equal(labels, 1), tf.equal(tags, 1), mask),
    }
    for name, (_, update) in metrics.items():
        tf.summary.scalar(name, update)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    train_op = tf.train.AdamOptimizer(0.05).minimize(loss, global_step=tf.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def serving_input_receiver_fn():
    words = tf.placeholder(tf.int32, [None, None], name="words")
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    received = {"words": words, "lengths": lengths}
    return tf.estimator.export.ServingInputReceiver(received, received)


params = {"epochs": 4, "batch_size": 5}
config = tf.estimator.RunConfig(save_checkpoints_steps=15, save_summary_steps=1, log_step_count_steps=5)
estimator = tf.estimator.Estimator(model_fn, "model", config, params)
pathlib.Path(estimator.eval_dir()).mkdir(parents=True)
train_spec = tf.estimator.TrainSpec(lambda: input_fn(60, 1, params, True), max_steps=40)
exporters = [
    tf.estimator.BestExporter("best", serving_input_receiver_fn, exports_to_keep=1),
    tf.estimator.FinalExporter("final", serving_input_receiver_fn),
]
eval_spec = tf.estimator.EvalSpec(lambda: input_fn(23, 2), steps=None, exporters=exporters, throttle_secs=0)
results, exported = tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
print(json.dumps({name: float(value) for name, value in sorted(results.items())}))
print(json.dumps(len(exported)))
for prediction in estimator.predict(lambda: input_fn(23, 2)):
    print(json.dumps(prediction["tags"].tolist()))
