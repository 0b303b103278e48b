"""Word vectors: skip-grams in a deque, noise-contrastive estimation, and the nearest words by cosine."""

from __future__ import absolute_import, division, print_function

import collections
import math
import random

import numpy as np
import tensorflow as tf
from six.moves import xrange

words = ("the quick brown fox jumps over the lazy dog and the quick dog jumps over the brown fox " * 6).split()
vocabulary_size = 9
data_index = 0


def build_dataset(words, n_words):
    count = [["UNK", -1]]
    count.extend(collections.Counter(words).most_common(n_words - 1))
    dictionary = {}
    for word, _ in count:
        dictionary[word] = len(dictionary)
    data = [dictionary.get(word, 0) for word in words]
    return data, count, dict(zip(dictionary.values(), dictionary.keys()))


def generate_batch(batch_size, num_skips, skip_window):
    global data_index
    batch = np.ndarray(shape=(batch_size), dtype=np.int32)
    labels = np.ndarray(shape=(batch_size, 1), dtype=np.int32)
    span = 2 * skip_window + 1
    buffer = collections.deque(maxlen=span)
    for _ in range(span):
        buffer.append(data[data_index])
        data_index = (data_index + 1) % len(data)
    for i in range(batch_size // num_skips):
        words_to_use = random.sample([w for w in range(span) if w != skip_window], num_skips)
        for j, context_word in enumerate(words_to_use):
            batch[i * num_skips + j] = buffer[skip_window]
            labels[i * num_skips + j, 0] = buffer[context_word]
        buffer.append(data[data_index])
        data_index = (data_index + 1) % len(data)
    return batch, labels


random.seed(5)
data, count, reverse_dictionary = build_dataset(words, vocabulary_size)
batch_size, embedding_size, num_sampled = 16, 8, 4
valid_examples = np.array([1, 3])
graph = tf.Graph()
with graph.as_default():
    with tf.name_scope("inputs"):
        train_inputs = tf.placeholder(tf.int32, shape=[batch_size])
        train_labels = tf.placeholder(tf.int32, shape=[batch_size, 1])
        valid_dataset = tf.constant(valid_examples, dtype=tf.int32)
    with tf.device("/cpu:0"):
        with tf.name_scope("embeddings"):
            embeddings = tf.Variable(tf.random_uniform([vocabulary_size, embedding_size], -1.0, 1.0))
            embed = tf.nn.embedding_lookup(embeddings, train_inputs)
        with tf.name_scope("weights"):
            nce_weights = tf.Variable(
                tf.truncated_normal([vocabulary_size, embedding_size], stddev=1.0 / math.sqrt(embedding_size))
            )
        with tf.name_scope("biases"):
            nce_biases = tf.Variable(tf.zeros([vocabulary_size]))
    with tf.name_scope("loss"):
        loss = tf.reduce_mean(
            tf.nn.nce_loss(
                weights=nce_weights,
                biases=nce_biases,
                labels=train_labels,
                inputs=embed,
                num_sampled=num_sampled,
                num_classes=vocabulary_size,
            )
        )
    tf.summary.scalar("loss", loss)
    with tf.name_scope("optimizer"):
        optimizer = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
    norm = tf.sqrt(tf.reduce_sum(tf.square(embeddings), 1, keep_dims=True))
    normalized_embeddings = embeddings / norm
    valid_embeddings = tf.nn.embedding_lookup(normalized_embeddings, valid_dataset)
    similarity = tf.matmul(valid_embeddings, normalized_embeddings, transpose_b=True)
    merged = tf.summary.merge_all()
    init = tf.global_variables_initializer()
    saver = tf.train.Saver()

with tf.Session(graph=graph) as session:
    writer = tf.summary.FileWriter("log", session.graph)
    init.run()
    losses = []
    for step in xrange(40):
        batch_inputs, batch_labels = generate_batch(batch_size, 2, 1)
        run_metadata = tf.RunMetadata()
        _, summary, loss_val = session.run(
            [optimizer, merged, loss],
            {train_inputs: batch_inputs, train_labels: batch_labels},
            run_metadata=run_metadata,
        )
        losses.append(loss_val)
        writer.add_summary(summary, step)
        if step == 39:
            writer.add_run_metadata(run_metadata, "step%d" % step)
    sim = similarity.eval()
    nearest = [reverse_dictionary[k] for k in (-sim[0, :]).argsort()[1:4]]
    saver.save(session, "log/model.ckpt")
    writer.close()
costs = np.array(losses).reshape(4, 10).mean(1)
np.savez("results.npz", costs=costs, losses=losses, sim=sim, nearest=nearest)
