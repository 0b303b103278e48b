"""A recommender: matrix factorization with biases, wide and deep features, tables of ids, and partitioned variables."""

from __future__ import division, print_function

import numpy as np
import tensorflow as tf

USERS, ITEMS, DIM = 6, 7, 3
flags = tf.flags
flags.DEFINE_integer("embedding_size", DIM, "size of an embedding")
flags.DEFINE_boolean("use_bias", True, "whether users and items have a bias")
flags.DEFINE_string("genres", "drama,comedy,horror", "names of the genres")
FLAGS = flags.FLAGS


def inference_svd(user_batch, item_batch, device="/cpu:0"):
    with tf.device(device):
        global_bias = tf.get_variable("global_bias", shape=[])
        w_bias_user = tf.get_variable("embd_bias_user", shape=[USERS])
        w_bias_item = tf.get_variable("embd_bias_item", shape=[ITEMS])
        bias_user = tf.nn.embedding_lookup(w_bias_user, user_batch, name="bias_user")
        bias_item = tf.nn.embedding_lookup(w_bias_item, item_batch, name="bias_item")
        initializer = tf.truncated_normal_initializer(stddev=0.1)
        w_user = tf.get_variable("embd_user", shape=[USERS, FLAGS.embedding_size], initializer=initializer)
        w_item = tf.get_variable(
            "embd_item",
            shape=[ITEMS, FLAGS.embedding_size],
            initializer=initializer,
            partitioner=tf.fixed_size_partitioner(2),
        )
        embd_user = tf.nn.embedding_lookup(w_user, user_batch, name="embedding_user")
        embd_item = tf.nn.embedding_lookup(w_item, item_batch, partition_strategy="div", name="embedding_item")
        infer = tf.reduce_sum(tf.multiply(embd_user, embd_item), 1)
        if FLAGS.use_bias:
            infer = tf.add(tf.add(tf.add(infer, global_bias), bias_user), bias_item, name="svd_inference")
        regularizer = tf.add(tf.nn.l2_loss(embd_user), tf.nn.l2_loss(embd_item), name="svd_regularizer")
    return infer, regularizer


user = tf.placeholder(tf.int32, shape=[None], name="id_user")
item = tf.placeholder(tf.int32, shape=[None], name="id_item")
genre = tf.placeholder(tf.string, shape=[None])
rate = tf.placeholder(tf.float32, shape=[None])
infer, regularizer = inference_svd(user, item)
table = tf.contrib.lookup.index_table_from_tensor(tf.constant(FLAGS.genres.split(",")), num_oov_buckets=1)
back = tf.contrib.lookup.index_to_string_table_from_tensor(FLAGS.genres.split(","), default_value="other")
counts = tf.contrib.lookup.HashTable(
    tf.contrib.lookup.KeyValueTensorInitializer(["drama", "comedy"], tf.constant([10, 20], tf.int64)), -1
)
ids = table.lookup(genre)
sparse = tf.SparseTensor(
    tf.stack([tf.to_int64(tf.range(tf.size(ids))), tf.zeros_like(ids)], 1), ids, tf.to_int64([tf.size(ids), 1])
)
embeddings = tf.Variable(tf.random_uniform([4, 2], -0.1, 0.1), name="genres")
wide = tf.nn.embedding_lookup_sparse(embeddings, sparse, None, combiner="sum")
crossed = tf.string_to_hash_bucket_fast(tf.string_join([genre, tf.as_string(user)], "_"), 100)
hidden = tf.layers.dense(tf.concat([wide, tf.one_hot(user % 2, 2)], 1), 4, tf.nn.selu)
infer += tf.squeeze(tf.layers.dense(hidden, 1, use_bias=False), [1])
global_step = tf.train.get_or_create_global_step()
with tf.control_dependencies([tf.assert_less(user, USERS)]):
    cost_l2 = tf.nn.l2_loss(tf.subtract(infer, rate))
cost = tf.add(cost_l2, tf.multiply(regularizer, tf.constant(0.05, shape=[], name="l2")))
train_op = tf.train.FtrlOptimizer(0.2).minimize(cost, global_step=global_step)
other_op = tf.train.AdagradOptimizer(0.05).minimize(cost, var_list=[embeddings])
clipped = tf.clip_by_value(infer, 1.0, 5.0)
rmse = tf.sqrt(tf.losses.mean_squared_error(rate, clipped, weights=tf.ones_like(rate)))

random = np.random.RandomState(2)
feeds = {
    user: random.randint(0, USERS, 20),
    item: random.randint(0, ITEMS, 20),
    genre: random.choice(["drama", "comedy", "horror", "western"], 20),
    rate: random.randint(1, 6, 20),
}
with tf.Session() as sess:
    sess.run(tf.group(tf.global_variables_initializer(), tf.tables_initializer()))
    costs = []
    for _ in range(8):
        costs.append(sess.run([cost, train_op], feeds)[0])
        sess.run(other_op, feeds)
    found = sess.run({"rmse": rmse, "ids": ids, "counts": counts.lookup(genre), "crossed": crossed}, feeds)
    words = sess.run(back.lookup(tf.constant([0, 2, 5], tf.int64)))
np.savez(
    "results.npz",
    costs=costs,
    words=[word.decode() for word in words],
    variables=[v.name for v in tf.global_variables()],
    **found,
)
