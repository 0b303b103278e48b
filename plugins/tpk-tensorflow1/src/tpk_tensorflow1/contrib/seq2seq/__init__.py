"""`tf.contrib.seq2seq`: decoders that run in a loop, attention, beam search, and the loss of sequences."""

from tensorflow.python.ops import rnn

from tpk_tensorflow1.contrib.seq2seq import attention, beam_search, decoding, helpers
from tpk_tensorflow1.contrib.seq2seq.attention import *
from tpk_tensorflow1.contrib.seq2seq.attention import (
    _BaseAttentionMechanism as _BaseAttentionMechanism,
    _compute_attention as _compute_attention,
    _maybe_mask_score as _maybe_mask_score,
)
from tpk_tensorflow1.contrib.seq2seq.beam_search import *
from tpk_tensorflow1.contrib.seq2seq.decoding import *
from tpk_tensorflow1.contrib.seq2seq.helpers import *
from tpk_tensorflow1.missing import finder_in

__all__ = attention.__all__ + beam_search.__all__ + decoding.__all__ + helpers.__all__

__getattr__ = finder_in("tf.contrib.seq2seq", __all__, rnn)
