"""A word-level language model: layers of LSTM, models that share variables, and a decaying learning rate."""

import collections

import numpy as np
import tensorflow as tf

flags = tf.flags
flags.DEFINE_string("rnn_mode", "basic", "basic, block or layer_norm")
flags.DEFINE_bool("use_fp16", False, "train with 16-bit floats")
FLAGS = flags.FLAGS

TEXT = "the cat sat on the mat <eos> the dog ran to the cat <eos> a dog and a cat sat <eos> " * 6


class Config(object):
    init_scale, learning_rate, max_grad_norm, lr_decay = 0.3, 1.0, 5, 0.5
    num_layers, num_steps, hidden_size, keep_prob, batch_size, max_epoch, max_max_epoch = 2, 5, 10, 1.0, 4, 3, 5


def ptb_producer(raw_data, batch_size, num_steps):
    raw_data = tf.convert_to_tensor(raw_data, name="raw_data", dtype=tf.int32)
    batch_len = tf.size(raw_data) // batch_size
    data = tf.reshape(raw_data[0 : batch_size * batch_len], [batch_size, batch_len])
    epoch_size = (batch_len - 1) // num_steps
    assertion = tf.assert_positive(epoch_size, message="epoch_size == 0, decrease batch_size or num_steps")
    with tf.control_dependencies([assertion]):
        epoch_size = tf.identity(epoch_size, name="epoch_size")
    i = tf.train.range_input_producer(epoch_size, shuffle=False).dequeue()
    x = tf.strided_slice(data, [0, i * num_steps], [batch_size, (i + 1) * num_steps])
    x.set_shape([batch_size, num_steps])
    y = tf.strided_slice(data, [0, i * num_steps + 1], [batch_size, (i + 1) * num_steps + 1])
    y.set_shape([batch_size, num_steps])
    return x, y


class PTBModel(object):
    def __init__(self, is_training, config, data, vocab_size):
        self.epoch_size = (len(data) // config.batch_size - 1) // config.num_steps
        input_data, targets = ptb_producer(data, config.batch_size, config.num_steps)
        with tf.device("/cpu:0"):
            embedding = tf.get_variable("embedding", [vocab_size, config.hidden_size], dtype=tf.float32)
            inputs = tf.nn.embedding_lookup(embedding, input_data)

        def make_cell():
            if FLAGS.rnn_mode == "block":
                return tf.contrib.rnn.LSTMBlockCell(config.hidden_size, forget_bias=0.0)
            if FLAGS.rnn_mode == "layer_norm":
                return tf.contrib.rnn.LayerNormBasicLSTMCell(config.hidden_size, forget_bias=0.0)
            return tf.contrib.rnn.BasicLSTMCell(
                config.hidden_size, forget_bias=0.0, state_is_tuple=True, reuse=not is_training
            )

        cells = [make_cell() for _ in range(config.num_layers)]
        cell = tf.contrib.rnn.MultiRNNCell(cells, state_is_tuple=True)
        self.initial_state = cell.zero_state(config.batch_size, tf.float32)
        state, outputs = self.initial_state, []
        with tf.variable_scope("RNN"):
            for time_step in range(config.num_steps):
                if time_step > 0:
                    tf.get_variable_scope().reuse_variables()
                cell_output, state = cell(inputs[:, time_step, :], state)
                outputs.append(cell_output)
        output = tf.reshape(tf.concat(outputs, 1), [-1, config.hidden_size])
        softmax_w = tf.get_variable("softmax_w", [config.hidden_size, vocab_size], dtype=tf.float32)
        softmax_b = tf.get_variable("softmax_b", [vocab_size], dtype=tf.float32)
        logits = tf.nn.xw_plus_b(output, softmax_w, softmax_b)
        logits = tf.reshape(logits, [config.batch_size, config.num_steps, vocab_size])
        loss = tf.contrib.seq2seq.sequence_loss(
            logits,
            targets,
            tf.ones([config.batch_size, config.num_steps], dtype=tf.float32),
            average_across_timesteps=False,
            average_across_batch=True,
        )
        self.cost = tf.reduce_sum(loss)
        self.final_state = state
        if not is_training:
            return
        self.lr = tf.Variable(0.0, trainable=False)
        tvars = tf.trainable_variables()
        grads, _ = tf.clip_by_global_norm(tf.gradients(self.cost, tvars), config.max_grad_norm)
        optimizer = tf.train.GradientDescentOptimizer(self.lr)
        self.train_op = optimizer.apply_gradients(zip(grads, tvars), global_step=tf.train.get_or_create_global_step())
        self.new_lr = tf.placeholder(tf.float32, shape=[], name="new_learning_rate")
        self.lr_update = tf.assign(self.lr, self.new_lr)


def run_epoch(session, model, eval_op=None):
    costs, iters, state = 0.0, 0, session.run(model.initial_state)
    fetches = {"cost": model.cost, "final_state": model.final_state}
    if eval_op is not None:
        fetches["eval_op"] = eval_op
    for _ in range(model.epoch_size):
        feed_dict = {}
        for i, (c, h) in enumerate(model.initial_state):
            feed_dict[c] = state[i].c
            feed_dict[h] = state[i].h
        vals = session.run(fetches, feed_dict)
        costs += vals["cost"]
        state = vals["final_state"]
        iters += 5
    return np.exp(costs / iters)


def main(_):
    words = TEXT.split()
    counts = sorted(collections.Counter(words).items(), key=lambda pair: (-pair[1], pair[0]))
    ids = {word: number for number, (word, _) in enumerate(counts)}
    data = [ids[word] for word in words]
    config = Config()
    initializer = tf.random_uniform_initializer(-config.init_scale, config.init_scale)
    with tf.name_scope("Train"), tf.variable_scope("Model", reuse=None, initializer=initializer):
        m = PTBModel(True, config, data, len(ids))
    with tf.name_scope("Valid"), tf.variable_scope("Model", reuse=True, initializer=initializer):
        mvalid = PTBModel(False, config, data, len(ids))
    tf.summary.scalar("Training_Loss", m.cost)
    train, valid = [], []
    with tf.train.MonitoredTrainingSession() as session:
        for i in range(config.max_max_epoch):
            lr_decay = config.lr_decay ** max(i + 1 - config.max_epoch, 0.0)
            session.run(m.lr_update, feed_dict={m.new_lr: config.learning_rate * lr_decay})
            train.append(run_epoch(session, m, eval_op=m.train_op))
            valid.append(run_epoch(session, mvalid))
    np.savez(
        "results.npz",
        costs=np.float64(train),
        valid=np.float64(valid),
        variables=[v.op.name for v in tf.trainable_variables()],
    )


if __name__ == "__main__":
    tf.app.run()
