"""In the shape of BERT's run_classifier: TFRecords, TPUEstimator, dropout, Adam with weight decay and a warm-up."""

import collections
import json
import re

import numpy as np
import tensorflow.compat.v1 as tf

flags = tf.flags
FLAGS = flags.FLAGS
flags.DEFINE_integer("train_batch_size", 8, "Total batch size for training.")
flags.DEFINE_integer("eval_batch_size", 8, "Total batch size for eval.")
flags.DEFINE_integer("predict_batch_size", 4, "Total batch size for predict.")
flags.DEFINE_float("learning_rate", 1e-3, "The initial learning rate for Adam.")
flags.DEFINE_integer("num_train_steps", 30, "The number of steps.")
flags.DEFINE_integer("num_warmup_steps", 10, "The number of steps of the warm-up.")
flags.DEFINE_integer("iterations_per_loop", 5, "How many steps to make in each estimator call.")
flags.DEFINE_bool("use_tpu", False, "Whether to use TPU or GPU/CPU.")

LENGTH, WORDS, HIDDEN, HEADS, LAYERS, CLASSES = 8, 30, 16, 2, 2, 3
losses = []


def write_examples(path, number, seed):
    random = np.random.RandomState(seed)
    with tf.python_io.TFRecordWriter(path) as writer:
        for _ in range(number):
            length = random.randint(3, LENGTH + 1)
            ids = [int(each) for each in random.randint(1, WORDS, length)]
            features = collections.OrderedDict()
            for name, values in (
                ("input_ids", ids + [0] * (LENGTH - length)),
                ("input_mask", [1] * length + [0] * (LENGTH - length)),
                ("segment_ids", [0] * LENGTH),
                ("label_ids", [sum(ids) % CLASSES]),
            ):
                features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def file_based_input_fn_builder(path, is_training, drop_remainder):
    name_to_features = {
        "input_ids": tf.FixedLenFeature([LENGTH], tf.int64),
        "input_mask": tf.FixedLenFeature([LENGTH], tf.int64),
        "segment_ids": tf.FixedLenFeature([LENGTH], tf.int64),
        "label_ids": tf.FixedLenFeature([], tf.int64),
    }

    def decode(record):
        example = tf.parse_single_example(record, name_to_features)
        return {name: tf.to_int32(value) for name, value in example.items()}

    def input_fn(params):
        data = tf.data.TFRecordDataset(path)
        if is_training:
            data = data.repeat()
        return data.map(decode).batch(params["batch_size"], drop_remainder=drop_remainder)

    return input_fn


def layer_norm(x, name):
    with tf.variable_scope(name):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        gamma = tf.get_variable("gamma", [x.shape[-1]], initializer=tf.ones_initializer())
        beta = tf.get_variable("beta", [x.shape[-1]], initializer=tf.zeros_initializer())
        return (x - mean) * tf.rsqrt(variance + 1e-12) * gamma + beta


def initializer():
    return tf.truncated_normal_initializer(stddev=0.02)


def attention(x, mask):
    def heads(name):
        y = tf.layers.dense(x, HIDDEN, name=name, kernel_initializer=initializer())
        return tf.transpose(tf.reshape(y, [-1, LENGTH, HEADS, HIDDEN // HEADS]), [0, 2, 1, 3])

    scores = tf.matmul(heads("query"), heads("key"), transpose_b=True) / np.sqrt(HIDDEN / HEADS)
    scores += (1.0 - tf.cast(mask, tf.float32))[:, None, None, :] * -10000.0
    context = tf.matmul(tf.nn.softmax(scores), heads("value"))
    return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, LENGTH, HIDDEN])


def encode(input_ids, input_mask, segment_ids):
    with tf.variable_scope("bert"):
        with tf.variable_scope("embeddings"):
            words = tf.get_variable("word_embeddings", [WORDS, HIDDEN], initializer=initializer())
            types = tf.get_variable("token_type_embeddings", [2, HIDDEN], initializer=initializer())
            places = tf.get_variable("position_embeddings", [LENGTH, HIDDEN], initializer=initializer())
            x = tf.gather(words, input_ids) + tf.gather(types, segment_ids) + places
            x = layer_norm(x, "LayerNorm")
        for number in range(LAYERS):
            with tf.variable_scope("encoder/layer_%d" % number):
                with tf.variable_scope("attention"):
                    y = tf.layers.dense(attention(x, input_mask), HIDDEN, name="output")
                    x = layer_norm(x + y, "LayerNorm")
                y = tf.layers.dense(x, 2 * HIDDEN, tf.nn.relu, name="intermediate", kernel_initializer=initializer())
                x = layer_norm(x + tf.layers.dense(y, HIDDEN, name="output"), "LayerNorm")
        return tf.layers.dense(x[:, 0], HIDDEN, tf.tanh, name="pooler", kernel_initializer=initializer())


class AdamWeightDecayOptimizer(tf.train.Optimizer):
    def __init__(self, learning_rate, weight_decay_rate, exclude):
        super().__init__(False, "AdamWeightDecayOptimizer")
        self._rate, self._decay, self._exclude = learning_rate, weight_decay_rate, exclude

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        for grad, param in grads_and_vars:
            if grad is None:
                continue
            name = re.match("^(.*):\\d+$", param.name).group(1)
            options = {"shape": param.shape.as_list(), "trainable": False, "initializer": tf.zeros_initializer()}
            m = tf.get_variable(name + "/adam_m", dtype=tf.float32, **options)
            v = tf.get_variable(name + "/adam_v", dtype=tf.float32, **options)
            next_m = tf.multiply(0.9, m) + tf.multiply(0.1, grad)
            next_v = tf.multiply(0.999, v) + tf.multiply(0.001, tf.square(grad))
            update = next_m / (tf.sqrt(next_v) + 1e-6)
            if not any(re.search(pattern, name) for pattern in self._exclude):
                update += self._decay * param
            assignments += [param.assign(param - self._rate * update), m.assign(next_m), v.assign(next_v)]
        return tf.group(*assignments, name=name)


def create_optimizer(loss, init_lr, num_train_steps, num_warmup_steps, use_tpu):
    global_step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(init_lr, global_step, num_train_steps, end_learning_rate=0.0, power=1.0)
    step = tf.cast(global_step, tf.float32)
    is_warmup = tf.cast(step < num_warmup_steps, tf.float32)
    rate = (1.0 - is_warmup) * rate + is_warmup * init_lr * step / num_warmup_steps
    optimizer = AdamWeightDecayOptimizer(rate, 0.01, ["LayerNorm", "layer_norm", "bias"])
    if use_tpu:
        optimizer = tf.estimator.tpu.CrossShardOptimizer(optimizer)
    tvars = tf.trainable_variables()
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, tvars), clip_norm=1.0)
    train_op = optimizer.apply_gradients(zip(grads, tvars), global_step=global_step)
    # BERT itself lets this race with the readers of the global step.
    with tf.control_dependencies([train_op]):
        return tf.assign_add(global_step, 1)


def record_loss(loss):
    losses.append(float(loss[0]))
    return np.int64(len(losses))


def model_fn(features, labels, mode, params):
    pooled = encode(features["input_ids"], features["input_mask"], features["segment_ids"])
    if mode == tf.estimator.ModeKeys.TRAIN:
        pooled = tf.nn.dropout(pooled, keep_prob=0.9)
    weights = tf.get_variable("output_weights", [CLASSES, HIDDEN], initializer=initializer())
    bias = tf.get_variable("output_bias", [CLASSES], initializer=tf.zeros_initializer())
    logits = tf.matmul(pooled, weights, transpose_b=True) + bias
    log_probs = tf.nn.log_softmax(logits)
    per_example_loss = -tf.reduce_sum(tf.one_hot(features["label_ids"], CLASSES) * log_probs, -1)
    loss = tf.reduce_mean(per_example_loss)

    def scaffold_fn():
        return tf.train.Scaffold()

    if mode == tf.estimator.ModeKeys.TRAIN:
        train_op = create_optimizer(
            loss, FLAGS.learning_rate, FLAGS.num_train_steps, FLAGS.num_warmup_steps, FLAGS.use_tpu
        )
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode=mode,
            loss=loss,
            train_op=train_op,
            scaffold_fn=scaffold_fn,
            host_call=(lambda loss: tf.py_func(record_loss, [loss], tf.int64), [tf.reshape(loss, [1])]),
        )
    if mode == tf.estimator.ModeKeys.EVAL:

        def metric_fn(per_example_loss, label_ids, logits):
            predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
            accuracy = tf.metrics.accuracy(labels=label_ids, predictions=predictions)
            return {"eval_accuracy": accuracy, "eval_loss": tf.metrics.mean(values=per_example_loss)}

        eval_metrics = (metric_fn, [per_example_loss, features["label_ids"], logits])
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode=mode, loss=loss, eval_metrics=eval_metrics, scaffold_fn=scaffold_fn
        )
    return tf.estimator.tpu.TPUEstimatorSpec(
        mode=mode, predictions={"probabilities": tf.nn.softmax(logits)}, scaffold_fn=scaffold_fn
    )


def main(_):
    write_examples("train.tf_record", 40, 1)
    write_examples("eval.tf_record", 21, 2)
    run_config = tf.estimator.tpu.RunConfig(
        cluster=None,
        master=None,
        model_dir="model",
        save_checkpoints_steps=10,
        tpu_config=tf.estimator.tpu.TPUConfig(
            iterations_per_loop=FLAGS.iterations_per_loop,
            num_shards=8,
            per_host_input_for_training=tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2,
        ),
    )
    estimator = tf.estimator.tpu.TPUEstimator(
        use_tpu=FLAGS.use_tpu,
        model_fn=model_fn,
        config=run_config,
        train_batch_size=FLAGS.train_batch_size,
        eval_batch_size=FLAGS.eval_batch_size,
        predict_batch_size=FLAGS.predict_batch_size,
        params={},
    )
    estimator.train(file_based_input_fn_builder("train.tf_record", True, True), max_steps=FLAGS.num_train_steps)
    print(json.dumps(losses))
    result = estimator.evaluate(file_based_input_fn_builder("eval.tf_record", False, False), steps=None)
    print(json.dumps({key: float(value) for key, value in sorted(result.items())}))
    for prediction in estimator.predict(file_based_input_fn_builder("eval.tf_record", False, False)):
        print(json.dumps(prediction["probabilities"].tolist()))


if __name__ == "__main__":
    tf.app.run()
