"""Cells of recurrent networks: what `tf.compat.v1.nn.rnn_cell` was, on every supported TensorFlow, without Keras.

A cell computes one step of a recurrent network: of a batch of inputs and a state it makes outputs and the next state.
TensorFlow's `tf.compat.v1.nn.dynamic_rnn`, `static_rnn`, `bidirectional_dynamic_rnn` and `static_bidirectional_rnn` run
it over sequences:

    from tpk.layers import rnn_cell

    def build_graph(self, words, lengths):
        cell = rnn_cell.MultiRNNCell([rnn_cell.LSTMCell(size) for size in (128, 64)])
        outputs, state = tf.compat.v1.nn.dynamic_rnn(cell, words, lengths, dtype=tf.float32)

Arguments, results, names and shapes of variables, and their order are those of `tf.compat.v1.nn.rnn_cell`, so code and
checkpoints move over as they are. A cell makes its variables when it is first called, and has them from then on, so
make a cell anew in each call of a tower function. What differs:

- Variables and losses of an enclosing scope's regularizer are made outside of the loop that calls the cell.
- A default initial value without a seed of its own is another number of the same distribution.
- `DropoutWrapper` draws by `tpk.graph.random`, so a training that is resumed drops the same.
- Shards of variables, long deprecated there, are errors; the enclosing scope's partitioner does that.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
