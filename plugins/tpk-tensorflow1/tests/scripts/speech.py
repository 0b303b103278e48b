"""Speech recognition: connectionist temporal classification with sparse labels, and its decoders."""

import numpy as np
import tensorflow as tf

num_features, num_hidden, num_classes, batch, steps = 5, 8, 4, 2, 7


def sparse_tuple_from(sequences, dtype=np.int32):
    indices, values = [], []
    for n, seq in enumerate(sequences):
        indices.extend(zip([n] * len(seq), range(len(seq))))
        values.extend(seq)
    indices = np.asarray(indices, dtype=np.int64)
    shape = np.asarray([len(sequences), indices.max(0)[1] + 1], dtype=np.int64)
    return indices, np.asarray(values, dtype=dtype), shape


graph = tf.Graph()
with graph.as_default():
    inputs = tf.placeholder(tf.float32, [None, None, num_features])
    targets = tf.sparse_placeholder(tf.int32)
    seq_len = tf.placeholder(tf.int32, [None])
    frames = tf.contrib.signal.frame(tf.reshape(inputs, [tf.shape(inputs)[0], -1]), 10, 5)
    spectrum = tf.abs(tf.contrib.signal.stft(tf.reshape(inputs, [tf.shape(inputs)[0], -1]), 8, 4, fft_length=8))
    cells = [tf.contrib.rnn.LSTMCell(num_hidden, state_is_tuple=True, use_peepholes=True) for _ in range(2)]
    stack = tf.contrib.rnn.MultiRNNCell(cells, state_is_tuple=True)
    outputs, _ = tf.nn.dynamic_rnn(stack, inputs, seq_len, dtype=tf.float32)
    batch_s, max_timesteps = tf.shape(inputs)[0], tf.shape(inputs)[1]
    W = tf.Variable(tf.truncated_normal([num_hidden, num_classes], stddev=0.1))
    b = tf.Variable(tf.constant(0.0, shape=[num_classes]))
    logits = tf.matmul(tf.reshape(outputs, [-1, num_hidden]), W) + b
    logits = tf.transpose(tf.reshape(logits, [batch_s, -1, num_classes]), (1, 0, 2))
    loss = tf.nn.ctc_loss(targets, logits, seq_len)
    cost = tf.reduce_mean(loss)
    optimizer = tf.train.MomentumOptimizer(0.05, 0.9).minimize(cost)
    decoded, log_prob = tf.nn.ctc_greedy_decoder(logits, seq_len)
    beams, scores = tf.nn.ctc_beam_search_decoder(logits, seq_len, beam_width=4, merge_repeated=False)
    ler = tf.reduce_mean(tf.edit_distance(tf.cast(decoded[0], tf.int32), targets))
    dense = tf.sparse_tensor_to_dense(decoded[0], default_value=-1)

features = np.random.randn(batch, steps, num_features)
feed = {inputs: features, targets: sparse_tuple_from([[0, 1, 2], [1, 2]]), seq_len: [steps, steps - 1]}
with tf.Session(graph=graph) as session:
    tf.global_variables_initializer().run()
    costs = [session.run([cost, optimizer], feed)[0] for _ in range(15)]
    found = session.run(
        {
            "dense": dense,
            "probability": log_prob,
            "rate": ler,
            "scores": scores,
            "beam": beams[0].values,
            "frames": frames,
            "spectrum": spectrum,
        },
        feed,
    )
np.savez("results.npz", costs=costs, **found)
