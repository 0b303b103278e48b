"""In the shape of a recommender: 30 feature columns, weights, a deep regressor and a linear classifier."""

import json

import numpy as np
import tensorflow.compat.v1 as tf

random = np.random.RandomState(0)
NUMBER, FIELDS = 120, 14
X = {"field%d" % i: random.randint(0, 50, NUMBER).astype(np.int64) for i in range(FIELDS)}
X.update({"number%d" % i: random.normal(size=NUMBER).astype(np.float32) for i in range(2)})
X["weight"] = random.uniform(0.5, 2, NUMBER).astype(np.float32)
CLICKS = ((X["field0"] + X["field1"]) % 3).astype(np.int32)

columns = tf.feature_column
FIELDS = [columns.categorical_column_with_identity("field%d" % i, 50) for i in range(FIELDS)]
DEEP = [columns.embedding_column(field, 3) for field in FIELDS]
DEEP += [columns.numeric_column("number%d" % i) for i in range(2)]
WIDE = FIELDS + [columns.crossed_column(["field0", "field%d" % i], 100) for i in range(1, 14)]


def input_fn(labels, num_epochs):
    return tf.estimator.inputs.numpy_input_fn(X, labels, batch_size=24, num_epochs=num_epochs, shuffle=False)


def show(results):
    print(json.dumps({name: float(value) for name, value in sorted(results.items())}))


config = tf.estimator.RunConfig(save_checkpoints_steps=10, save_summary_steps=1)
ratings = CLICKS.astype(np.float32) / 2
regressor = tf.estimator.DNNRegressor([8], DEEP, "regressor", weight_column="weight", config=config)
regressor.train(input_fn(ratings, None), steps=20)
show(regressor.evaluate(input_fn(ratings, 1)))

classifier = tf.estimator.LinearClassifier(WIDE, "classifier", n_classes=3, weight_column="weight", config=config)
classifier.train(input_fn(CLICKS, None), steps=20)
show(classifier.evaluate(input_fn(CLICKS, 1)))
print(json.dumps([int(each["class_ids"][0]) for each in classifier.predict(input_fn(CLICKS, 1))]))
