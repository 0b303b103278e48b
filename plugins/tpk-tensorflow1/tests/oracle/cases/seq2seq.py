"""Decoders in a loop, attention, beam search, and the loss of sequences."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import rnn, seq2seq
from tensorflow.contrib.seq2seq.python.ops.attention_wrapper import BahdanauAttention

LENGTHS = [4, 2, 3]


def _random(seed, *shape):
    return tf.constant(np.random.RandomState(seed).randn(*shape), tf.float32)


def _trained(*outputs):
    loss = tf.add_n([tf.reduce_sum(tf.square(each)) for each in outputs])
    return tf.train.GradientDescentOptimizer(0.02).minimize(loss)


def _embedding(size=4):
    return tf.get_variable("embedding", [7, size])


def _decoded(decoder, *trained, **options):
    outputs, state, lengths = seq2seq.dynamic_decode(decoder, **options)
    found = {"outputs": outputs, "lengths": lengths, "state": _without_arrays(state)}
    if hasattr(outputs, "rnn_output"):
        found["step"] = _trained(outputs.rnn_output)
    return found


def _without_arrays(state):
    if isinstance(state, seq2seq.AttentionWrapperState) and isinstance(state.alignment_history, tf.TensorArray):
        return state._replace(alignment_history=state.alignment_history.stack())
    return state


def training_helper():
    helper = seq2seq.TrainingHelper(_random(1, 3, 5, 4), LENGTHS)
    cell = rnn.MultiRNNCell([rnn.BasicLSTMCell(4), rnn.GRUCell(4)])
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(3, tf.float32))
    return _decoded(decoder)


def training_helper_by_time():
    inputs = _random(1, 5, 3, 4)
    helper = seq2seq.TrainingHelper({"a": inputs, "b": inputs * 2}["b"], LENGTHS, time_major=True)
    cell = rnn.LSTMCell(4)
    layer = tf.layers.Dense(6, use_bias=False, name="projection")
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(3, tf.float32), output_layer=layer)
    return _decoded(decoder, output_time_major=True, impute_finished=True, scope="mine")


def training_helper_with_unknown_shapes():
    inputs = tf.placeholder_with_default(_random(1, 3, 5, 4), [None, None, 4])
    helper = seq2seq.TrainingHelper(inputs, tf.placeholder_with_default(LENGTHS, [None]))
    cell = rnn.GRUCell(4)
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(tf.shape(inputs)[0], tf.float32))
    return _decoded(decoder, maximum_iterations=3, swap_memory=True, parallel_iterations=1)


def training_helper_without_steps():
    helper = seq2seq.TrainingHelper(_random(1, 3, 5, 4), [0, 0, 0])
    decoder = seq2seq.BasicDecoder(rnn.GRUCell(4), helper, tf.zeros([3, 4]))
    outputs, state, lengths = seq2seq.dynamic_decode(decoder)
    return {"state": state, "lengths": lengths, "size": tf.shape(outputs.rnn_output)}


def greedy_helper():
    helper = seq2seq.GreedyEmbeddingHelper(_embedding(), tf.fill([3], 1), 2)
    cell = rnn.GRUCell(4)
    decoder = seq2seq.BasicDecoder(cell, helper, _random(2, 3, 4), tf.layers.Dense(7, activation=tf.tanh))
    return _decoded(decoder, maximum_iterations=6)


def greedy_helper_with_a_function():
    embedding = _embedding()
    helper = seq2seq.GreedyEmbeddingHelper(lambda ids: 2.0 * tf.nn.embedding_lookup(embedding, ids), [1, 2, 3], 0)
    layer = tf.layers.Dense(7)
    decoder = seq2seq.BasicDecoder(rnn.GRUCell(4), helper, _random(2, 3, 4), layer)
    return _decoded(decoder, maximum_iterations=tf.constant(8), impute_finished=True)


def sample_helper():
    helper = seq2seq.SampleEmbeddingHelper(_embedding(), tf.fill([3], 1), 2, softmax_temperature=0.7, seed=5)
    decoder = seq2seq.BasicDecoder(rnn.GRUCell(4), helper, _random(2, 3, 4), tf.layers.Dense(7))
    found = _decoded(decoder, maximum_iterations=6)
    del found["step"]
    return found


def scheduled_helper():
    # Only one step: in the loop of TensorFlow 1.15, several draws come in any order.
    helper = seq2seq.ScheduledEmbeddingTrainingHelper(
        _random(1, 3, 5, 4), LENGTHS, _embedding(), 0.5, seed=3, scheduling_seed=4
    )
    outputs, state = _random(2, 3, 7), _random(3, 3, 4)
    ids = helper.sample(time=tf.constant(0), outputs=outputs, state=state)
    return [ids, helper.next_inputs(time=tf.constant(0), outputs=outputs, state=state, sample_ids=ids)]


def scheduled_helper_that_never_samples():
    helper = seq2seq.ScheduledEmbeddingTrainingHelper(_random(1, 3, 5, 4), LENGTHS, _embedding(), tf.constant(0.0))
    decoder = seq2seq.BasicDecoder(rnn.GRUCell(4), helper, _random(2, 3, 4), tf.layers.Dense(7))
    return _decoded(decoder)


def scheduled_helper_that_always_samples():
    helper = seq2seq.ScheduledEmbeddingTrainingHelper(_random(1, 3, 5, 4), LENGTHS, _embedding(), 1.0, seed=3)
    decoder = seq2seq.BasicDecoder(rnn.GRUCell(4), helper, _random(2, 3, 4), tf.layers.Dense(7))
    found = _decoded(decoder)
    del found["step"]
    return found


class _ContinuousHelper(seq2seq.Helper):
    """Feeds outputs back, as Tacotron does in its synthesis."""

    batch_size = 3
    sample_ids_shape = tf.TensorShape([])
    sample_ids_dtype = tf.int32

    def initialize(self, name=None):
        return tf.tile([False], [3]), tf.zeros([3, 4])

    def sample(self, time, outputs, state, name=None):
        return tf.tile([0], [3])

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        return tf.reduce_all(tf.less(outputs, -0.2), axis=1), outputs[:, :4], state


def helper_of_a_script():
    cell = rnn.OutputProjectionWrapper(rnn.GRUCell(5), 8)
    decoder = seq2seq.BasicDecoder(cell, _ContinuousHelper(), cell.zero_state(3, tf.float32))
    return _decoded(decoder, maximum_iterations=4)


class _Countdown(seq2seq.Decoder):
    """Emits the numbers down to zero, for each example."""

    batch_size = 3
    output_size = tf.TensorShape([])
    output_dtype = tf.int32

    def initialize(self, name=None):
        return tf.fill([3], False), tf.constant(LENGTHS), tf.zeros([3])

    def step(self, time, inputs, state, name=None):
        return inputs, state + 1.0, inputs - 1, inputs <= 1


def decoder_of_a_script():
    outputs, state, lengths = seq2seq.dynamic_decode(_Countdown(), impute_finished=True)
    return [outputs, state, lengths]


def _attended(mechanism, size=5, cell=None, memory_size=6, **options):
    memory = _random(3, 3, 5, memory_size)
    cell = seq2seq.AttentionWrapper(cell or rnn.GRUCell(4), mechanism(memory), size, **options)
    helper = seq2seq.TrainingHelper(_random(1, 3, 5, 4), LENGTHS)
    return _decoded(seq2seq.BasicDecoder(cell, helper, cell.zero_state(3, tf.float32)))


def bahdanau():
    return _attended(lambda memory: seq2seq.BahdanauAttention(7, memory, [5, 3, 1]), alignment_history=True)


def bahdanau_normalized():
    cell = rnn.BasicLSTMCell(4)
    return _attended(lambda memory: seq2seq.BahdanauAttention(7, memory, normalize=True), cell=cell)


def bahdanau_with_a_probability_function():
    def mechanism(memory):
        return seq2seq.BahdanauAttention(
            7, memory, tf.constant([5, 3, 1]), probability_fn=tf.nn.sigmoid, score_mask_value=-3.0, name="mine"
        )

    return _attended(mechanism, output_attention=False, name="wrapper")


def luong():
    return _attended(lambda memory: seq2seq.LuongAttention(4, memory, [5, 3, 1]), alignment_history=True)


def luong_scaled():
    cell = rnn.MultiRNNCell([rnn.BasicLSTMCell(4), rnn.GRUCell(4)])
    return _attended(lambda memory: seq2seq.LuongAttention(4, memory, scale=True), cell=cell)


def luong_without_a_layer():
    return _attended(
        lambda memory: seq2seq.LuongAttention(4, memory, [5, 3, 1], probability_fn=tf.nn.softmax), size=None
    )


def bahdanau_monotonic():
    return _attended(
        lambda memory: seq2seq.BahdanauMonotonicAttention(7, memory, [5, 3, 1], score_bias_init=0.5),
        alignment_history=True,
    )


def bahdanau_monotonic_normalized():
    return _attended(lambda memory: seq2seq.BahdanauMonotonicAttention(7, memory, normalize=True, mode="recursive"))


def luong_monotonic():
    return _attended(lambda memory: seq2seq.LuongMonotonicAttention(4, memory, [5, 3, 1], scale=True))


def luong_monotonic_hard():
    return _attended(lambda memory: seq2seq.LuongMonotonicAttention(4, memory, mode="hard", score_bias_init=0.2))


def monotonic_with_noise():
    mechanism = seq2seq.LuongMonotonicAttention(
        4, _random(3, 3, 5, 6), [5, 3, 1], sigmoid_noise=1.0, sigmoid_noise_seed=3
    )
    return mechanism(_random(1, 3, 4), mechanism.initial_state(3, tf.float32))


def attention_in_the_way_of_nmt():
    memory, encoder_state = _random(3, 3, 5, 6), _random(2, 3, 4)
    cell = seq2seq.AttentionWrapper(
        rnn.GRUCell(4),
        seq2seq.LuongAttention(4, memory, [5, 3, 1], dtype=tf.float32),
        attention_layer_size=4,
        cell_input_fn=lambda inputs, attention: tf.concat([attention, inputs, inputs], -1),
        name="attention",
    )
    state = cell.zero_state(3, tf.float32).clone(cell_state=encoder_state)
    helper = seq2seq.TrainingHelper(_random(1, 3, 5, 4), LENGTHS)
    with tf.variable_scope("decoder") as scope:
        with tf.variable_scope("output_projection"):
            layer = tf.layers.Dense(7, use_bias=False, name="output_projection")
        outputs, state, lengths = seq2seq.dynamic_decode(
            seq2seq.BasicDecoder(cell, helper, state), swap_memory=True, scope=scope
        )
        logits = layer(outputs.rnn_output)
    return {"logits": logits, "state": state, "lengths": lengths, "step": _trained(logits)}


def attention_with_an_initial_state():
    memory = _random(3, 3, 5, 6)
    cell = seq2seq.AttentionWrapper(
        rnn.GRUCell(4),
        seq2seq.BahdanauAttention(7, memory),
        initial_cell_state=_random(2, 3, 4),
    )
    outputs, state = tf.nn.dynamic_rnn(cell, _random(1, 3, 5, 4), dtype=tf.float32)
    return {"outputs": outputs, "state": state, "step": _trained(outputs)}


def attention_that_is_called():
    memory = _random(3, 3, 5, 6)
    mechanism = seq2seq.BahdanauAttention(7, memory, [5, 3, 1])
    state = mechanism.initial_state(3, tf.float32)
    alignments, state = mechanism(_random(4, 3, 4), state)
    return [
        alignments,
        state,
        mechanism.keys,
        mechanism.values,
        mechanism.initial_alignments(3, tf.float32),
        mechanism.batch_size,
        mechanism.alignments_size,
        mechanism.state_size,
    ]


class _LocationSensitiveAttention(BahdanauAttention):
    """Also looks at the alignments before, as in Tacotron 2."""

    def __init__(self, num_units, memory):
        super().__init__(num_units=num_units, memory=memory, probability_fn=tf.nn.softmax, name="location")
        self._convolution = tf.layers.Conv1D(4, 3, padding="same", name="location_convolution")
        self._layer = tf.layers.Dense(num_units, use_bias=False, name="location_layer")

    def __call__(self, query, state):
        with tf.variable_scope(None, "location_sensitive_attention", [query]):
            hidden = self.keys + tf.expand_dims(self.query_layer(query), 1)
            hidden += self._layer(self._convolution(tf.expand_dims(state, 2)))
            vector = tf.get_variable("vector", [self._num_units])
            score = tf.reduce_sum(vector * tf.tanh(hidden), [2])
        alignments = self._probability_fn(score, state)
        return alignments, alignments + state


def attention_of_a_script():
    return _attended(lambda memory: _LocationSensitiveAttention(7, memory), alignment_history=True)


def residual_attention():
    memory = _random(3, 3, 5, 6)
    attended = seq2seq.AttentionWrapper(rnn.GRUCell(4), seq2seq.BahdanauAttention(7, memory), output_attention=False)
    cell = rnn.MultiRNNCell([attended, rnn.ResidualWrapper(rnn.GRUCell(4))], state_is_tuple=True)
    helper = seq2seq.TrainingHelper(_random(1, 3, 5, 4), LENGTHS)
    return _decoded(seq2seq.BasicDecoder(cell, helper, cell.zero_state(3, tf.float32)))


def monotonic_attention():
    p, previous = tf.sigmoid(_random(1, 3, 5)), tf.nn.softmax(_random(2, 3, 5))
    hard = tf.cast(_random(1, 3, 5) > 0.0, tf.float32)
    return {
        "parallel": seq2seq.monotonic_attention(p, previous, "parallel"),
        "recursive": seq2seq.monotonic_attention(p, previous, "recursive"),
        "hard": seq2seq.monotonic_attention(hard, tf.one_hot([0, 2, 4], 5), "hard"),
        "cumprod": seq2seq.safe_cumprod(p, axis=1, exclusive=True),
        "hardmax": seq2seq.hardmax(_random(1, 3, 5)),
    }


def tiled():
    state = rnn.LSTMStateTuple(_random(1, 3, 2), tf.constant([1, 2, 3]))
    unknown = tf.placeholder_with_default(_random(1, 3, 2), [None, 2])
    return [seq2seq.tile_batch(state, 2), seq2seq.tile_batch(unknown, multiplier=3)]


def traced_beams():
    rng = np.random.RandomState(1)
    ids, parents = rng.randint(6, size=[7, 3, 4]), rng.randint(4, size=[7, 3, 4])
    ids, parents = tf.constant(ids, tf.int32), tf.constant(parents, tf.int32)
    return [
        seq2seq.gather_tree(ids, parents, tf.constant([7, 3, 0]), 9),
        seq2seq.gather_tree(ids, parents, tf.constant([5, 6, 1]), 2),
        seq2seq.gather_tree(ids[:1], parents[:1], tf.constant([1, 1, 1]), 2),
    ]


def _beams(cell, state, **options):
    decoder = seq2seq.BeamSearchDecoder(
        cell=cell,
        embedding=_embedding(),
        start_tokens=tf.placeholder_with_default(tf.fill([3], 1), [None]),
        end_token=2,
        initial_state=state,
        beam_width=4,
        **options,
    )
    outputs, state, lengths = seq2seq.dynamic_decode(decoder, maximum_iterations=9)
    return {"outputs": outputs, "state": state, "lengths": lengths}


def _layer():
    return tf.layers.Dense(7, kernel_initializer=tf.random_uniform_initializer(-3, 3), name="projection")


def beam_search():
    decoder = seq2seq.BeamSearchDecoder(
        rnn.GRUCell(4), _embedding(), tf.fill([3], 1), 2, seq2seq.tile_batch(_random(2, 3, 4), 4), 4, _layer()
    )
    outputs, state, lengths = seq2seq.dynamic_decode(decoder, maximum_iterations=9)
    return {"outputs": outputs, "state": state, "lengths": lengths}


def beam_search_with_length_penalty():
    cell = rnn.MultiRNNCell([rnn.BasicLSTMCell(4), rnn.GRUCell(7)])
    return _beams(cell, cell.zero_state(12, tf.float32), length_penalty_weight=1.5)


def beam_search_with_attention():
    memory = seq2seq.tile_batch(tf.placeholder_with_default(_random(3, 3, 5, 6), [None, None, 6]), multiplier=4)
    lengths = seq2seq.tile_batch(tf.constant([5, 3, 1]), multiplier=4)
    mechanism = seq2seq.BahdanauAttention(7, memory, lengths)
    cell = seq2seq.AttentionWrapper(rnn.BasicLSTMCell(4), mechanism, 5)
    state = cell.zero_state(tf.shape(memory)[0], tf.float32).clone(
        cell_state=seq2seq.tile_batch(rnn.LSTMStateTuple(_random(4, 3, 4), _random(5, 3, 4)), 4)
    )
    return _beams(cell, state, output_layer=_layer())


def beam_search_with_unknown_shapes():
    inputs = tf.placeholder_with_default(_random(2, 3, 4), [None, 4])
    embedding = _embedding()
    decoder = seq2seq.BeamSearchDecoder(
        rnn.GRUCell(4),
        lambda ids: tf.nn.embedding_lookup(embedding, ids),
        tf.fill([tf.shape(inputs)[0]], 1),
        2,
        seq2seq.tile_batch(inputs, 4),
        4,
        _layer(),
    )
    outputs, state, lengths = seq2seq.dynamic_decode(
        decoder, maximum_iterations=9, output_time_major=True, impute_finished=False
    )
    return {"outputs": outputs, "state": state, "lengths": lengths}


def loss_of_sequences():
    logits, targets = _random(1, 3, 4, 5), tf.constant(np.random.RandomState(2).randint(5, size=[3, 4]))
    weights = tf.sequence_mask(LENGTHS, 4, tf.float32) * 0.7

    def squared(labels, logits):
        return tf.square(tf.cast(labels, tf.float32) - logits[:, 0])

    def loss(*args, **kwargs):
        return seq2seq.sequence_loss(logits, targets, weights, *args, **kwargs)

    return {
        "mean": loss(),
        "by batch": loss(True, False),
        "by time": loss(False, True),
        "all": loss(False, False),
        "custom": loss(softmax_loss_function=squared),
    }
