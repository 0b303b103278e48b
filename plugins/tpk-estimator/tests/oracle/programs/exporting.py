"""`train_and_evaluate` with each exporter, twice in one directory; what was exported, and its signatures."""

import json
import pathlib

import numpy as np
import tensorflow.compat.v1 as tf

X = np.random.RandomState(0).uniform(-1, 1, [40, 3]).astype(np.float32)
Y = X.sum(1, keepdims=True)
pathlib.Path("words.txt").write_text("one\n")


def input_fn():
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(8)


def model_fn(features, labels, mode):
    out = tf.layers.dense(features["x"], 1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {
            "serving_default": tf.estimator.export.RegressionOutput(out),
            "both": tf.estimator.export.PredictOutput({"out": out, "double": 2 * out}),
            "classes": tf.estimator.export.ClassificationOutput(scores=tf.concat([out, -out], 1)),
        }
        return tf.estimator.EstimatorSpec(mode, {"out": out}, export_outputs=outputs)
    loss = tf.losses.mean_squared_error(labels, out)
    train_op = tf.train.GradientDescentOptimizer(0.3).minimize(loss, tf.train.get_global_step())
    # It gets better until step 20, then worse.
    step = tf.cast(tf.train.get_global_step(), tf.float32)
    metrics = {"distance": tf.metrics.mean(tf.abs(step - 20))}
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def raw():
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    return tf.estimator.export.build_raw_serving_input_receiver_fn({"x": x})()


def parsing():
    return tf.estimator.export.build_parsing_serving_input_receiver_fn({"x": tf.FixedLenFeature([3], tf.float32)})()


def recorded(exporter):
    """Return an exporter that prints what it is given, and what it returns."""

    class Recorded(tf.estimator.Exporter):
        name = exporter.name

        def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
            path = exporter.export(estimator, export_path, checkpoint_path, eval_result, is_the_final_export)
            shown = [self.name, export_path, checkpoint_path, sorted(eval_result), bool(is_the_final_export)]
            print(json.dumps([*shown, path and path.decode().rsplit("/", 1)[0]]))
            return path

    return Recorded()


def closer(best_eval_result, current_eval_result):
    return current_eval_result["distance"] < best_eval_result["distance"]


config = tf.estimator.RunConfig(save_checkpoints_steps=5)
for max_steps in (30, 45):
    estimator = tf.estimator.Estimator(model_fn, "model", config)
    tf.gfile.MakeDirs(estimator.eval_dir())
    exporters = [
        tf.estimator.LatestExporter("latest", raw, exports_to_keep=2),
        tf.estimator.FinalExporter("final", parsing, assets_extra={"more/words.txt": "words.txt"}),
        # With events, TensorFlow 1.15 does not export the first checkpoint, and 2.15 does.
        tf.estimator.BestExporter("best", raw, event_file_pattern=None, exports_to_keep=None),
        tf.estimator.BestExporter("closest", raw, event_file_pattern=None, compare_fn=closer, exports_to_keep=1),
    ]
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(lambda: input_fn().repeat(), max_steps),
        tf.estimator.EvalSpec(input_fn, None, exporters=[recorded(each) for each in exporters], throttle_secs=0),
    )
print(json.dumps([sorted(each.name for each in pathlib.Path("model/export").iterdir())]))
