"""The cells of `tf.compat.v1.nn.rnn_cell` for recurrent networks, without Keras, on every supported TensorFlow.

A cell computes one step of a recurrent network: outputs and the next state from a batch of inputs and a state.
TensorFlow's `tf.compat.v1.nn.dynamic_rnn`, `static_rnn`, `bidirectional_dynamic_rnn` and `static_bidirectional_rnn` run
it over sequences:

    from tpk.layers import rnn_cell

    def build_graph(self, words, lengths):
        cell = rnn_cell.MultiRNNCell([rnn_cell.LSTMCell(size) for size in (128, 64)])
        outputs, state = tf.compat.v1.nn.dynamic_rnn(cell, words, lengths, dtype=tf.float32)

Arguments, results, and the names, shapes and order of variables are as in `tf.compat.v1.nn.rnn_cell`, so code and
checkpoints work unchanged. A cell makes its variables in its first call, and then keeps them, so make a new cell in
each call of a tower function. The differences:

- Variables, and losses of an enclosing scope's regularizer, are made outside of the loop that calls the cell.
- A default initial value without a seed is another number from the same distribution.
- `DropoutWrapper` draws from `tpk.graph.random`, so a resumed training drops the same elements.
- Shards of variables, long deprecated, are errors; use the partitioner of the enclosing scope.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
