"""Summaries of everything, in name scopes, with the events that they write; and a trace of one step."""

import glob

import numpy as np
import tensorflow as tf
from tensorflow.contrib.tensorboard.plugins import projector
from tensorflow.python.client import timeline

sess = tf.InteractiveSession()
with tf.name_scope("input"):
    x = tf.placeholder(tf.float32, [None, 16], name="x-input")
    y_ = tf.placeholder(tf.int64, [None], name="y-input")
with tf.name_scope("input_reshape"):
    tf.summary.image("input", tf.reshape(x, [-1, 4, 4, 1]), 2)


def variable_summaries(var):
    with tf.name_scope("summaries"):
        mean = tf.reduce_mean(var)
        tf.summary.scalar("mean", mean)
        with tf.name_scope("stddev"):
            stddev = tf.sqrt(tf.reduce_mean(tf.square(var - mean)))
        tf.summary.scalar("stddev", stddev)
        tf.summary.scalar("max", tf.reduce_max(var))
        tf.summary.histogram("histogram", var)


def nn_layer(input_tensor, input_dim, output_dim, layer_name, act=tf.nn.relu):
    with tf.name_scope(layer_name):
        with tf.name_scope("weights"):
            weights = tf.Variable(tf.truncated_normal([input_dim, output_dim], stddev=0.1))
            variable_summaries(weights)
        with tf.name_scope("biases"):
            biases = tf.Variable(tf.constant(0.1, shape=[output_dim]))
            variable_summaries(biases)
        with tf.name_scope("Wx_plus_b"):
            preactivate = tf.matmul(input_tensor, weights) + biases
            tf.summary.histogram("pre_activations", preactivate)
        return act(preactivate, name="activation")


hidden1 = nn_layer(x, 16, 8, "layer1")
with tf.name_scope("dropout"):
    keep_prob = tf.placeholder(tf.float32)
    tf.summary.scalar("dropout_keep_probability", keep_prob)
    dropped = tf.nn.dropout(hidden1, keep_prob)
y = nn_layer(dropped, 8, 3, "layer2", act=tf.identity)
with tf.name_scope("cross_entropy"), tf.name_scope("total"):
    cross_entropy = tf.losses.sparse_softmax_cross_entropy(labels=y_, logits=y)
tf.summary.scalar("cross_entropy", cross_entropy)
text = tf.summary.text("notes", tf.constant("a note"))
with tf.name_scope("train"):
    train_step = tf.train.AdamOptimizer(0.02).minimize(cross_entropy)
merged = tf.summary.merge_all()
train_writer = tf.summary.FileWriter("logs/train", sess.graph)
config = projector.ProjectorConfig()
config.embeddings.add().tensor_name = "layer1/weights/Variable"
projector.visualize_embeddings(train_writer, config)
tf.global_variables_initializer().run()
data, classes = np.random.rand(9, 16), np.arange(9) % 3
costs = []
for i in range(8):
    feeds = {x: data, y_: classes, keep_prob: 0.9}
    summary = sess.run(merged, feed_dict=feeds)  # not in the step, which changes the variables at any time
    if i % 4 == 3:
        run_options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        run_metadata = tf.RunMetadata()
        _, cost = sess.run([train_step, cross_entropy], feed_dict=feeds, options=run_options, run_metadata=run_metadata)
        train_writer.add_run_metadata(run_metadata, "step%03d" % i)
        trace = timeline.Timeline(run_metadata.step_stats).generate_chrome_trace_format()
    else:
        _, cost = sess.run([train_step, cross_entropy], feed_dict=feeds)
    train_writer.add_summary(summary, i)
    costs.append(cost)
extra = tf.Summary(value=[tf.Summary.Value(tag="by_hand", simple_value=2.5)])
extra.value.add(tag="another", simple_value=1.5)
train_writer.add_summary(extra, 8)
train_writer.flush()
train_writer.close()
sess.close()

tags, scalars = set(), {}
for path in glob.glob("logs/train/events.*"):
    for event in tf.train.summary_iterator(path):
        for value in event.summary.value:
            tags.add(value.tag)
            if value.HasField("simple_value") and event.step == 2:
                scalars[value.tag] = value.simple_value
np.savez(
    "results.npz",
    costs=costs,
    tags=sorted(tags),
    scalars=[scalars[key] for key in sorted(scalars)],
    traced=len(trace) > 9,
)
