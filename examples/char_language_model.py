"""Train a language model of characters: LSTM cells with dropout, on any text file, on one device or many.

The default text is Python's help pages. After each epoch, the model writes a sample to `sample-<epoch>.txt` in the run
directory. It is evaluated in bits per character of a text that it was not trained on.
"""

import argparse
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import tensorflow as tf

import tpk
from tpk import layers
from tpk.dataflow import BatchData, DataFromGenerator, DataFromList
from tpk.layers import rnn_cell

LENGTH, BATCH, CHARACTERS = 64, 32, 128


class LanguageModel(tpk.ModelDesc):
    def __init__(self, units, depth, keep_prob):
        self.units, self.depth, self.keep_prob = units, depth, keep_prob

    def inputs(self):
        return [tf.TensorSpec([None, LENGTH + 1], tf.uint8, "text")]

    def build_graph(self, text):
        text = tf.cast(text, tf.int32)
        keep_prob = self.keep_prob if tpk.get_current_tower_context().is_training else 1.0
        # Cells belong to one call of the tower function, as they have its variables.
        cells = [rnn_cell.LSTMCell(self.units) for _ in range(self.depth)]
        cell = rnn_cell.MultiRNNCell([rnn_cell.DropoutWrapper(it, output_keep_prob=keep_prob) for it in cells])
        x = tf.one_hot(text[:, :-1], CHARACTERS)
        x, _ = tf.compat.v1.nn.dynamic_rnn(cell, x, dtype=tf.float32)
        logits = layers.dense(x, CHARACTERS, name="logits")
        tf.identity(logits[:, -1], name="next_logits")

        cost = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=text[:, 1:], logits=logits)
        cost = tf.reduce_mean(cost, name="cost")
        tpk.add_moving_summary(tf.divide(cost, np.log(2), name="bits"))
        return cost

    def optimizer(self):
        return tpk.apply_grad_processors(tf.compat.v1.train.AdamOptimizer(2e-3), [tpk.GlobalNormClip(5)])


class WriteSample(tpk.Callback):
    """Lets the model write after each epoch: it is shown what there is, and one character of its choice is added."""

    def __init__(self, start, length=200):
        self.start, self.length = start, length

    def setup_graph(self, trainer):
        tower = trainer.build_inference_tower("WriteSample")
        self.text, self.next_logits = tower["text"], tower["next_logits"]

    def trigger_epoch(self, trainer):
        chosen, text = np.random.default_rng(trainer.epoch_num), self.start
        for _ in range(self.length):
            # The last character that is given is only a label.
            seen = np.append(text[-LENGTH:], 0)[None]
            (logits,) = trainer.sess.run(self.next_logits, {self.text: seen})
            # The largest of logits with Gumbel noise is a draw from their softmax.
            text = np.append(text, np.uint8(np.argmax(logits / 0.7 + chosen.gumbel(size=CHARACTERS))))
        (trainer.run_dir / f"sample-{trainer.epoch_num:03d}.txt").write_bytes(text[LENGTH:].tobytes())


def load_data(text):
    """Batches of pieces from anywhere in nine tenths of the text, and of the pieces of the last tenth."""
    text = np.frombuffer(text.encode("ascii", "replace"), np.uint8)
    seen, unseen = np.split(text, [len(text) * 9 // 10])

    def pieces():
        rng = np.random.default_rng(0)
        while True:
            begin = rng.integers(len(seen) - LENGTH)
            yield [seen[begin : begin + LENGTH + 1]]

    test = [[unseen[begin : begin + LENGTH + 1]] for begin in range(0, len(unseen) - LENGTH, LENGTH)]
    return BatchData(DataFromGenerator(pieces), BATCH), BatchData(
        DataFromList(test, shuffle=False), 128, remainder=True
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, help="a text file in English (default: Python's help pages)")
    parser.add_argument("--units", type=int, default=192, help="in each LSTM cell (default: %(default)s)")
    parser.add_argument("--depth", type=int, default=2, help="how many cells (default: %(default)s)")
    parser.add_argument("--keep-prob", type=float, default=0.8, help="what dropout leaves (default: %(default)s)")
    parser.add_argument("--strategy", default="single", help="how a step is replicated (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="on how many devices (default: %(default)s)")
    parser.add_argument("--max-epoch", type=int, default=20, help="number of the last epoch (default: %(default)s)")
    parser.add_argument("--steps-per-epoch", type=int, default=200, help="(default: %(default)s)")
    parser.add_argument("--run-dir", help="where the run keeps its files (default: runs/<script>/<timestamp>)")
    parser.add_argument("--resume", default="never", choices=["auto", "must", "never"], help="resume that run")
    args = parser.parse_args()

    text = args.text.read_text(encoding="utf-8") if args.text else "\n".join(topics.values())
    train, test = load_data(text)
    start = np.frombuffer(text.encode("ascii", "replace"), np.uint8)[:LENGTH]
    config = tpk.TrainConfig(
        model=LanguageModel(args.units, args.depth, args.keep_prob),
        dataflow=train,
        callbacks=[
            tpk.ModelSaver(max_to_keep=1),
            tpk.InferenceRunner(test, [tpk.ScalarStats("bits")], sanity_batches=1),
            WriteSample(start),
        ],
        steps_per_epoch=args.steps_per_epoch,
        max_epoch=args.max_epoch,
        run_dir=args.run_dir,
        resume=args.resume,
        seed=0,
    )
    tpk.launch_train_with_config(config, tpk.use(args.strategy, devices=args.devices))


if __name__ == "__main__":
    main()
