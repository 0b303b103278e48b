"""A convolutional network that classifies texts, with a VocabularyProcessor."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import learn

tf.flags.DEFINE_integer("embedding_dim", 8, "size of a word vector")
tf.flags.DEFINE_string("filter_sizes", "2,3", "sizes of the filters")
tf.flags.DEFINE_integer("num_filters", 4, "number of filters of each size")
tf.flags.DEFINE_float("l2_reg_lambda", 0.01, "weight of the L2 loss")
FLAGS = tf.flags.FLAGS

GOOD = ["a good film", "what a fine film it is", "great and good", "a fine story"]
BAD = ["a bad film", "what a poor film it is", "dull and bad", "a poor story"]
x_text = GOOD + BAD
y = np.array([[0, 1]] * len(GOOD) + [[1, 0]] * len(BAD))
max_document_length = max(len(x.split(" ")) for x in x_text)
vocab_processor = learn.preprocessing.VocabularyProcessor(max_document_length)
x = np.array(list(vocab_processor.fit_transform(x_text)))
vocab_processor.save("vocab")


class TextCNN(object):
    def __init__(self, sequence_length, num_classes, vocab_size, filter_sizes):
        self.input_x = tf.placeholder(tf.int32, [None, sequence_length], name="input_x")
        self.input_y = tf.placeholder(tf.float32, [None, num_classes], name="input_y")
        self.dropout_keep_prob = tf.placeholder(tf.float32, name="dropout_keep_prob")
        l2_loss = tf.constant(0.0)
        with tf.device("/cpu:0"), tf.name_scope("embedding"):
            self.W = tf.Variable(tf.random_uniform([vocab_size, FLAGS.embedding_dim], -1.0, 1.0, seed=1), name="W")
            embedded = tf.expand_dims(tf.nn.embedding_lookup(self.W, self.input_x), -1)
        pooled = []
        for filter_size in filter_sizes:
            with tf.name_scope("conv-maxpool-%s" % filter_size):
                shape = [filter_size, FLAGS.embedding_dim, 1, FLAGS.num_filters]
                W = tf.Variable(tf.truncated_normal(shape, stddev=0.1, seed=filter_size), name="W")
                b = tf.Variable(tf.constant(0.1, shape=[FLAGS.num_filters]), name="b")
                conv = tf.nn.conv2d(embedded, W, strides=[1, 1, 1, 1], padding="VALID", name="conv")
                h = tf.nn.relu(tf.nn.bias_add(conv, b), name="relu")
                size = [1, sequence_length - filter_size + 1, 1, 1]
                pooled.append(tf.nn.max_pool(h, ksize=size, strides=[1, 1, 1, 1], padding="VALID", name="pool"))
        total = FLAGS.num_filters * len(filter_sizes)
        flat = tf.nn.dropout(tf.reshape(tf.concat(pooled, 3), [-1, total]), self.dropout_keep_prob)
        with tf.name_scope("output"):
            initializer = tf.contrib.layers.xavier_initializer(seed=7)
            W = tf.get_variable("W", shape=[total, num_classes], initializer=initializer)
            b = tf.Variable(tf.constant(0.1, shape=[num_classes]), name="b")
            l2_loss += tf.nn.l2_loss(W) + tf.nn.l2_loss(b)
            self.scores = tf.nn.xw_plus_b(flat, W, b, name="scores")
            self.predictions = tf.argmax(self.scores, 1, name="predictions")
        losses = tf.nn.softmax_cross_entropy_with_logits(logits=self.scores, labels=self.input_y)
        self.loss = tf.reduce_mean(losses) + FLAGS.l2_reg_lambda * l2_loss
        correct = tf.equal(self.predictions, tf.argmax(self.input_y, 1))
        self.accuracy = tf.reduce_mean(tf.cast(correct, "float"), name="accuracy")


with tf.Graph().as_default():
    session_conf = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)
    sess = tf.Session(config=session_conf)
    with sess.as_default():
        cnn = TextCNN(x.shape[1], 2, len(vocab_processor.vocabulary_), [int(n) for n in FLAGS.filter_sizes.split(",")])
        global_step = tf.Variable(0, name="global_step", trainable=False)
        optimizer = tf.train.AdamOptimizer(0.02)
        grads_and_vars = optimizer.compute_gradients(cnn.loss)
        train_op = optimizer.apply_gradients(grads_and_vars, global_step=global_step)
        for g, v in grads_and_vars:
            if g is not None:
                tf.summary.histogram("{}/grad/hist".format(v.name), g)
                tf.summary.scalar("{}/grad/sparsity".format(v.name), tf.nn.zero_fraction(g))
        sess.run(tf.global_variables_initializer())
        costs = []
        for _ in range(15):
            feed = {cnn.input_x: x, cnn.input_y: y, cnn.dropout_keep_prob: 1.0}
            _, step, loss, accuracy = sess.run([train_op, global_step, cnn.loss, cnn.accuracy], feed)
            costs.append(loss)

restored = learn.preprocessing.VocabularyProcessor.restore("vocab")
words = np.array(list(restored.transform(["an unknown good story"])))
np.savez("results.npz", costs=costs, words=words, step=step, texts=list(restored.reverse(x)))
