"""Wide and deep, on data in the shape of the census: buckets, crosses, vocabularies and hashes."""

import json

import numpy as np
import tensorflow.compat.v1 as tf

random = np.random.RandomState(0)
NUMBER = 200
X = {
    "age": random.randint(18, 80, NUMBER).astype(np.float32),
    "hours": random.uniform(0, 60, NUMBER).astype(np.float32),
    "job": np.array(["clerk", "nurse", "smith", "cook"], object)[random.randint(0, 4, NUMBER)],
    "degree": np.array(["school", "bachelor", "master"], object)[random.randint(0, 3, NUMBER)],
}
Y = ((X["age"] > 40) ^ (X["job"] == "nurse")).astype(np.int32)

columns = tf.feature_column
age, hours = columns.numeric_column("age"), columns.numeric_column("hours")
job = columns.categorical_column_with_hash_bucket("job", 20)
degree = columns.categorical_column_with_vocabulary_list("degree", ["school", "bachelor", "master"])
ages = columns.bucketized_column(age, [25, 35, 45, 55])
WIDE = [ages, job, degree, columns.crossed_column(["job", "degree"], 30), columns.crossed_column([ages, "degree"], 30)]
DEEP = [age, hours, columns.indicator_column(degree), columns.embedding_column(job, 4)]


def input_fn(num_epochs):
    return tf.estimator.inputs.numpy_input_fn(X, Y, batch_size=20, num_epochs=num_epochs, shuffle=False)


estimator = tf.estimator.DNNLinearCombinedClassifier(
    model_dir="model",
    linear_feature_columns=WIDE,
    dnn_feature_columns=DEEP,
    dnn_hidden_units=[16, 8],
    dnn_dropout=0.1,
    batch_norm=True,
    config=tf.estimator.RunConfig(save_checkpoints_steps=20),
)


class LossHook(tf.train.SessionRunHook):
    def before_run(self, run_context):
        return tf.train.SessionRunArgs(["head/truediv:0", "head/weighted_loss/Sum:0"])

    def after_run(self, run_context, run_values):
        print(json.dumps([float(loss) for loss in run_values.results]))


estimator.train(input_fn(None), hooks=[LossHook()], steps=30)
results = estimator.evaluate(input_fn(1))
print(json.dumps({name: float(value) for name, value in sorted(results.items())}))
for predicted in list(estimator.predict(input_fn(1)))[:5]:
    print(json.dumps({"classes": predicted["classes"][0].decode(), "probability": float(predicted["logistic"][0])}))
serving = tf.estimator.export.build_parsing_serving_input_receiver_fn(columns.make_parse_example_spec(WIDE + DEEP))
estimator.export_savedmodel("export", serving)
