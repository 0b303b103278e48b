#!/usr/bin/env python
"""A language model trained on windows of a long text, with its state in variables between them."""

import numpy as np
import tensorflow as tf
from tensorpack import *  # noqa: F403
from tensorpack.tfutils import get_current_tower_context, gradproc, optimizer, summary
from tensorpack.utils.argtools import memoized_ignoreargs

# ruff: noqa: F405

rnn = tf.nn.rnn_cell
TEXT = "a rose is a rose is a rose. " * 40
VOCABULARY = sorted(set(TEXT))
BATCH, SEQ_LEN, HIDDEN, NUM_LAYER = 4, 12, 16, 2


@memoized_ignoreargs
def get_text():
    return np.array([VOCABULARY.index(c) for c in TEXT], dtype="int32")


def windows():
    """Consecutive windows, from BATCH parts of the text in parallel."""
    text = get_text()
    length = (len(text) - 1) // BATCH
    parts = text[: length * BATCH].reshape(BATCH, length)
    targets = text[1 : length * BATCH + 1].reshape(BATCH, length)
    for start in range(0, length - SEQ_LEN, SEQ_LEN):
        yield [parts[:, start : start + SEQ_LEN], targets[:, start : start + SEQ_LEN]]


class Windows(DataFlow):
    def __len__(self):
        return len(list(windows()))

    def __iter__(self):
        yield from windows()


class Model(ModelDesc):
    def inputs(self):
        return [
            tf.placeholder(tf.int32, (None, SEQ_LEN), "input"),
            tf.placeholder(tf.int32, (None, SEQ_LEN), "nextinput"),
        ]

    def build_graph(self, input, nextinput):
        is_training = get_current_tower_context().is_training
        initializer = tf.random_uniform_initializer(-0.2, 0.2)

        def get_basic_cell():
            cell = rnn.BasicLSTMCell(num_units=HIDDEN, forget_bias=0.0, reuse=tf.get_variable_scope().reuse)
            if is_training:
                cell = rnn.DropoutWrapper(cell, output_keep_prob=0.9)
            return cell

        cell = rnn.MultiRNNCell([get_basic_cell() for _ in range(NUM_LAYER)])

        def get_v(n):
            return tf.get_variable(
                n, [BATCH, HIDDEN], trainable=False, initializer=tf.constant_initializer(), collections=["kept_states"]
            )

        state_var = [rnn.LSTMStateTuple(get_v("c%d" % k), get_v("h%d" % k)) for k in range(NUM_LAYER)]  # noqa: UP031
        for each in tf.get_collection("kept_states"):
            tf.add_to_collection(tf.GraphKeys.LOCAL_VARIABLES, each)
        self.state = state_var = tuple(state_var)

        embeddingW = tf.get_variable("embedding", [len(VOCABULARY), HIDDEN], initializer=initializer)
        input_feature = tf.nn.embedding_lookup(embeddingW, input)
        with tf.variable_scope("LSTM", initializer=initializer):
            outputs, last_state = tf.nn.dynamic_rnn(cell, input_feature, initial_state=state_var, scope="rnn")
        update_state_ops = [
            op
            for var, last in zip(state_var, last_state, strict=True)
            for op in (tf.assign(var.c, last.c), tf.assign(var.h, last.h))
        ]
        with tf.control_dependencies(update_state_ops):
            output = tf.reshape(outputs, [-1, HIDDEN])
            logits = FullyConnected(
                "fc", output, len(VOCABULARY), kernel_initializer=initializer, bias_initializer=initializer
            )
        xent_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=tf.reshape(nextinput, [-1]))
        with tf.control_dependencies(update_state_ops):
            cost = tf.truediv(tf.reduce_sum(xent_loss), tf.cast(BATCH, tf.float32), name="cost")
        perpl = tf.exp(cost / SEQ_LEN, name="perplexity")
        summary.add_moving_summary(perpl, cost)
        return cost

    def reset_lstm_state(self):
        s = self.state
        return tf.group(*[each.initializer for pair in s for each in (pair.c, pair.h)], name="reset_lstm_state")

    def optimizer(self):
        lr = tf.get_variable("learning_rate", initializer=0.02, trainable=False)
        opt = tf.train.AdamOptimizer(lr, epsilon=1e-3)
        return optimizer.apply_grad_processors(opt, [gradproc.GlobalNormClip(5)])


if __name__ == "__main__":
    logger.auto_set_dir("d")
    model = Model()
    data = Windows()
    config = TrainConfig(
        data=QueueInput(data),
        model=model,
        callbacks=[
            ModelSaver(),
            HyperParamSetterWithFunc("learning_rate", lambda e, x: x * 0.8 if e > 1 else x),
            RunOp(lambda: model.reset_lstm_state(), run_as_trigger=True),
            InferenceRunner(FixedSizeData(Windows(), 4), [ScalarStats(["cost"])]),
            CallbackFactory(
                trigger=lambda self: self.trainer.monitors.put_scalar(
                    "validation_perplexity", np.exp(self.trainer.monitors.get_latest("validation_cost") / SEQ_LEN)
                )
            ),
        ],
        steps_per_epoch=len(data),
        max_epoch=4,
    )
    launch_train_with_config(config, SimpleTrainer())
