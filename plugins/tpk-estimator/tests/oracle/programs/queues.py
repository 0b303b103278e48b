"""`numpy_input_fn` and `pandas_input_fn`: what each returns, over several passes, with a smaller last batch."""

import json

import numpy as np
import pandas as pd
import tensorflow.compat.v1 as tf

random = np.random.RandomState(0)
X = {"b": random.normal(size=[11, 2]).astype(np.float32), "a": np.arange(11)}
Y = {"y": random.normal(size=11), "second": np.array(["word %d" % i for i in range(11)], object)}
TABLE = pd.DataFrame({"z": np.arange(7) / 2, "a": list("abcdefg")}, index=np.arange(7) * 10)
COLUMN = pd.Series(np.arange(7) ** 2, index=TABLE.index)
INPUTS = {
    "dicts": lambda: tf.estimator.inputs.numpy_input_fn(X, Y, batch_size=4, num_epochs=2, shuffle=False),
    "array": lambda: tf.estimator.inputs.numpy_input_fn(X["b"], X["a"], batch_size=5, shuffle=False),
    "no labels": lambda: tf.estimator.inputs.numpy_input_fn(X, batch_size=11, shuffle=False),
    "no end": lambda: tf.estimator.inputs.numpy_input_fn(X, batch_size=8, num_epochs=None, shuffle=False),
    "table": lambda: tf.estimator.inputs.pandas_input_fn(TABLE, COLUMN, batch_size=3, num_epochs=2, shuffle=False),
    "two labels": lambda: tf.estimator.inputs.pandas_input_fn(
        TABLE, pd.DataFrame({"u": COLUMN, "t": COLUMN / 2}), batch_size=4, shuffle=False
    ),
    "only a table": lambda: tf.estimator.inputs.pandas_input_fn(TABLE, batch_size=4, shuffle=False),
    "shuffled": lambda: tf.estimator.inputs.numpy_input_fn(X["a"], batch_size=11, num_epochs=1, shuffle=True),
}


def plain(value):
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.decode() if isinstance(value, bytes) else plain(value.tolist()) if hasattr(value, "tolist") else value


def described(tensors):
    if isinstance(tensors, dict):
        return {key: described(each) for key, each in tensors.items()}
    if isinstance(tensors, tuple):
        return [described(each) for each in tensors]
    return [tensors.dtype.name, tensors.shape.as_list()]


for name, make in INPUTS.items():
    with tf.Graph().as_default():
        batch = make()()
        print(json.dumps([name, described(batch)]))
        if name != "shuffled":
            print(json.dumps(tf.get_collection(tf.GraphKeys.SUMMARIES)[0].op.name))
        taken = []
        with tf.train.SingularMonitoredSession() as session:
            while not session.should_stop() and len(taken) < 4:
                taken.append(plain(session.run(batch)))
        print(json.dumps(sorted(taken[0]) if name == "shuffled" else taken))


def fails(make_input_fn):
    try:
        make_input_fn()()
    except (ValueError, TypeError):
        return True
    return False


inputs = tf.estimator.inputs
wrong = [
    lambda: inputs.numpy_input_fn(X),
    lambda: inputs.numpy_input_fn({}, shuffle=False),
    lambda: inputs.numpy_input_fn([1, 2], shuffle=False),
    lambda: inputs.numpy_input_fn(X, np.arange(3), shuffle=False),
    lambda: inputs.numpy_input_fn(X, {"a": np.arange(11)}, shuffle=False),
    lambda: inputs.pandas_input_fn(TABLE, COLUMN[:3], shuffle=False),
    lambda: inputs.pandas_input_fn(TABLE, COLUMN, shuffle=False, target_column="z"),
]
print(json.dumps([fails(each) for each in wrong]))
