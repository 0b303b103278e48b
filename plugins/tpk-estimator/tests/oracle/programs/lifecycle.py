"""A model's whole life: train three times, evaluate, predict, warm-start; the order of hooks and listeners; exports."""

import json

import numpy as np
import tensorflow.compat.v1 as tf

X = np.random.RandomState(0).uniform(-1, 1, [50, 4]).astype(np.float32)
Y = np.abs(X).sum(1, keepdims=True)
CALLS = []


def train_input_fn():
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).repeat().batch(8)


def eval_input_fn():
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(8)


class Recorder(tf.train.SessionRunHook):
    def __init__(self, name):
        self._name = name

    def begin(self):
        CALLS.append(self._name + " begin")

    def after_create_session(self, session, coord):
        CALLS.append(self._name + " after_create_session")

    def before_run(self, run_context):
        CALLS.append(self._name + " before_run")

    def after_run(self, run_context, run_values):
        CALLS.append(self._name + " after_run")

    def end(self, session):
        CALLS.append(self._name + " end")


class Listener(tf.train.CheckpointSaverListener):
    def begin(self):
        CALLS.append("listener begin")

    def before_save(self, session, global_step_value):
        CALLS.append(f"listener before_save {global_step_value}")

    def after_save(self, session, global_step_value):
        CALLS.append(f"listener after_save {global_step_value}")

    def end(self, session, global_step_value):
        CALLS.append(f"listener end {global_step_value}")


def model_fn(features, labels, mode, params):
    hidden = tf.nn.relu(tf.matmul(features["x"], tf.get_variable("hidden/w", [4, params["size"]])))
    out = tf.matmul(hidden, tf.get_variable("out/w", [params["size"], 1])) + tf.get_variable("out/b", [1])
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(
            mode,
            predictions={"out": out, "hidden": hidden},
            prediction_hooks=[Recorder("prediction")],
            export_outputs={"out": tf.estimator.export.PredictOutput({"out": out})},
        )
    loss = tf.losses.mean_squared_error(labels, out)
    tf.summary.histogram("out", out)
    tf.summary.scalar("mean", tf.reduce_mean(out))
    train_op = tf.train.AdamOptimizer(0.01).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=train_op,
        eval_metric_ops={
            "mae": tf.metrics.mean_absolute_error(labels, out),
            "rmse": tf.metrics.root_mean_squared_error(labels, out),
        },
        training_hooks=[Recorder("training")],
        training_chief_hooks=[Recorder("chief")],
        evaluation_hooks=[Recorder("evaluation")],
    )


def receiver():
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})


def show(value):
    print(json.dumps(value, sort_keys=True, default=lambda each: np.asarray(each).tolist()))


config = tf.estimator.RunConfig(
    "model", 1, save_summary_steps=5, save_checkpoints_steps=10, log_step_count_steps=5, keep_checkpoint_max=3
)
estimator = tf.estimator.Estimator(model_fn, config=config, params={"size": 5})
show(estimator.evaluate(eval_input_fn, name="untrained"))
estimator.train(train_input_fn, hooks=[Recorder("user")], steps=14, saving_listeners=[Listener()])
show(CALLS)
del CALLS[:]
estimator.train(train_input_fn, max_steps=40)
del CALLS[:]
show(estimator.evaluate(eval_input_fn, hooks=[Recorder("user")]))
show(estimator.evaluate(eval_input_fn, steps=3, name="three"))
show(estimator.evaluate(eval_input_fn, checkpoint_path="model/model.ckpt-34", name="older"))
show(CALLS)
del CALLS[:]
show([each["out"] for each in estimator.predict(eval_input_fn, ["out"])])
show([len(each["hidden"]) for each in estimator.predict(eval_input_fn, yield_single_examples=False)])
show(CALLS)
show({name: estimator.get_variable_value(name) for name in estimator.get_variable_names()})
estimator.export_saved_model("export", receiver)
estimator.train(eval_input_fn)  # ends with the data

warm = tf.estimator.Estimator(model_fn, "warm", params={"size": 5}, warm_start_from="model")
show(warm.evaluate(eval_input_fn))
warm.train(train_input_fn, steps=3)
show(warm.evaluate(eval_input_fn))
