"""Train a small model on the handwritten digits of scikit-learn, and record the run with MLflow.

pip install tpk-mlflow mlflow scikit-learn
python digits.py
mlflow ui --backend-store-uri sqlite:///mlflow.db
"""

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tpk
from tpk import layers


class DigitsModel(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 8, 8, 1], tf.float32, "image"), tf.TensorSpec([None], tf.int64, "label")]

    def build_graph(self, image, label):
        tf.compat.v1.summary.image("digits", image, max_outputs=3)
        x = layers.conv2d(image, 16, 3, padding="same", activation=tf.nn.relu, name="conv")
        logits = layers.dense(layers.flatten(x), 10, name="logits")
        tpk.add_param_summary((".*/kernel", ["histogram"]))
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits)
        return tf.reduce_mean(loss, name="cost")

    def optimizer(self):
        return tf.compat.v1.train.AdamOptimizer(1e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tracking-uri", default="sqlite:///mlflow.db", help="where MLflow records (default: %(default)s)"
    )
    parser.add_argument("--max-epoch", type=int, default=5, help="number of the last epoch (default: %(default)s)")
    parser.add_argument("--run-dir", help="the run directory (default: runs/<script>/<timestamp>)")
    parser.add_argument(
        "--resume", default="never", choices=["auto", "must", "never"], help="resume the run in --run-dir"
    )
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    digits = (images / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    examples = tpk.dataflow.DataFromList(list(zip(digits, labels.astype(np.int64), strict=True)), shuffle=True)
    config = tpk.TrainConfig(
        model=DigitsModel(),
        dataflow=tpk.dataflow.BatchData(examples, 32),
        callbacks=["ModelSaver"],
        extra_monitors=[tpk.use("mlflow", tracking_uri=args.tracking_uri, experiment="digits", checkpoint=True)],
        max_epoch=args.max_epoch,
        run_dir=args.run_dir,
        resume=args.resume,
        seed=0,
    )
    tpk.launch_train_with_config(config, "SimpleTrainer")


if __name__ == "__main__":
    main()
