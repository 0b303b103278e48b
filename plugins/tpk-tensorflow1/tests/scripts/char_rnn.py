"""A character-level language model with legacy_seq2seq, which samples text after it is trained."""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow.contrib import legacy_seq2seq, rnn

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="lstm", help="rnn, gru, lstm or nas")
parser.add_argument("--rnn_size", type=int, default=16)
parser.add_argument("--num_layers", type=int, default=2)
parser.add_argument("--num_epochs", type=int, default=3)
args = parser.parse_args()

TEXT = "a rolling stone gathers no moss and a stitch in time saves nine; " * 8
BATCH, STEPS = 4, 10


class Model(object):
    def __init__(self, vocabulary, training=True):
        batch, steps = (BATCH, STEPS) if training else (1, 1)
        make = {"rnn": rnn.BasicRNNCell, "gru": rnn.GRUCell, "lstm": rnn.BasicLSTMCell, "nas": rnn.NASCell}[args.model]
        cells = []
        for _ in range(args.num_layers):
            cell = make(args.rnn_size)
            if training:
                cell = rnn.DropoutWrapper(cell, input_keep_prob=1.0, output_keep_prob=1.0)
            cells.append(cell)
        self.cell = cell = rnn.MultiRNNCell(cells, state_is_tuple=True)
        self.inputs = tf.placeholder(tf.int32, [batch, steps])
        self.targets = tf.placeholder(tf.int32, [batch, steps])
        self.initial_state = cell.zero_state(batch, tf.float32)
        with tf.variable_scope("rnnlm"):
            softmax_w = tf.get_variable("softmax_w", [args.rnn_size, vocabulary])
            softmax_b = tf.get_variable("softmax_b", [vocabulary])
        embedding = tf.get_variable("embedding", [vocabulary, args.rnn_size])
        inputs = tf.split(tf.nn.embedding_lookup(embedding, self.inputs), steps, 1)
        inputs = [tf.squeeze(each, [1]) for each in inputs]

        def loop(prev, _):
            prev = tf.matmul(prev, softmax_w) + softmax_b
            return tf.nn.embedding_lookup(embedding, tf.stop_gradient(tf.argmax(prev, 1)))

        outputs, self.final_state = legacy_seq2seq.rnn_decoder(
            inputs, self.initial_state, cell, loop_function=None if training else loop, scope="rnnlm"
        )
        output = tf.reshape(tf.concat(outputs, 1), [-1, args.rnn_size])
        self.logits = tf.matmul(output, softmax_w) + softmax_b
        self.probs = tf.nn.softmax(self.logits)
        loss = legacy_seq2seq.sequence_loss_by_example(
            [self.logits], [tf.reshape(self.targets, [-1])], [tf.ones([batch * steps])]
        )
        self.cost = tf.reduce_sum(loss) / batch / steps
        self.lr = tf.Variable(0.0, trainable=False)
        tvars = tf.trainable_variables()
        grads, _ = tf.clip_by_global_norm(tf.gradients(self.cost, tvars), 5.0)
        self.train_op = tf.train.AdamOptimizer(self.lr).apply_gradients(zip(grads, tvars))


chars = sorted(set(TEXT))
ids = np.array([chars.index(char) for char in TEXT])
num_batches = len(ids) // (BATCH * STEPS)
xdata = ids[: num_batches * BATCH * STEPS]
ydata = np.append(xdata[1:], xdata[0])
x_batches = np.split(xdata.reshape(BATCH, -1), num_batches, 1)
y_batches = np.split(ydata.reshape(BATCH, -1), num_batches, 1)

with tf.Graph().as_default():
    model = Model(len(chars))
    with tf.Session() as sess:
        tf.global_variables_initializer().run()
        saver = tf.train.Saver(tf.global_variables())
        costs = []
        for epoch in range(args.num_epochs):
            sess.run(tf.assign(model.lr, 0.02 * (0.97**epoch)))
            state = sess.run(model.initial_state)
            for x, y in zip(x_batches, y_batches):
                feed = {model.inputs: x, model.targets: y}
                for i, (c, h) in enumerate(model.initial_state):
                    feed[c] = state[i].c
                    feed[h] = state[i].h
                cost, state, _ = sess.run([model.cost, model.final_state, model.train_op], feed)
                costs.append(cost)
        saver.save(sess, "./char_rnn.ckpt")

with tf.Graph().as_default():
    model = Model(len(chars), training=False)
    with tf.Session() as sess:
        tf.train.Saver(tf.trainable_variables()).restore(sess, "./char_rnn.ckpt")
        state, symbol, text = sess.run(model.cell.zero_state(1, tf.float32)), 0, []
        for _ in range(20):
            feed = {model.inputs: [[symbol]], model.initial_state: state}
            probs, state = sess.run([model.probs, model.final_state], feed)
            symbol = int(np.argmax(probs[0]))
            text.append(probs[0])
        names = [v.op.name for v in tf.trainable_variables()]
np.savez("results.npz", costs=costs, probabilities=text, variables=names)
