"""`tf.data` with all kinds of iterators, and a network that is trained and evaluated with one graph."""

import numpy as np
import tensorflow as tf

features = np.random.rand(12, 3).astype(np.float32)
labels = (features.sum(1) > 1.5).astype(np.int64)
results = {}

train_dataset = tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(5).repeat().batch(4)
test_dataset = tf.data.Dataset.from_tensor_slices((features[:5], labels[:5])).batch(2)
iterator = tf.data.Iterator.from_structure(train_dataset.output_types, train_dataset.output_shapes)
x, y = iterator.get_next()
training_init_op = iterator.make_initializer(train_dataset)
testing_init_op = iterator.make_initializer(test_dataset)
net = tf.layers.dense(x, 4, activation=tf.tanh)
logits = tf.layers.dense(net, 2)
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
optimizer = tf.train.AdamOptimizer(0.05).minimize(loss)
accuracy, update = tf.metrics.accuracy(y, tf.argmax(logits, 1), name="my_metric")
running = tf.get_collection(tf.GraphKeys.LOCAL_VARIABLES, scope="my_metric")


def _parse(number, text):
    squared = tf.py_func(lambda value: np.square(value), [number], tf.int64)
    squared.set_shape([])
    return {"number": squared, "words": tf.string_split([text]).values}


sentences = tf.data.Dataset.from_tensor_slices(tf.constant(["a b", "c", "d e f", "g"]))
numbers = tf.data.Dataset.range(4).map(lambda i: i + 1, num_parallel_calls=2).prefetch(2)
parsed = tf.data.Dataset.zip((numbers, sentences)).map(_parse).filter(lambda each: each["number"] < 16)
padded = parsed.padded_batch(3, {"number": [], "words": [None]}, {"number": np.int64(0), "words": "<pad>"})
one_shot = padded.make_one_shot_iterator().get_next()


def generator():
    for i in range(3):
        yield i, [1] * i


generated = tf.data.Dataset.from_generator(
    generator, (tf.int64, tf.int32), (tf.TensorShape([]), tf.TensorShape([None]))
)
initializable = generated.apply(tf.contrib.data.batch_and_drop_remainder(1)).make_initializable_iterator()
from_generator = initializable.get_next()

handle = tf.placeholder(tf.string, shape=[])
small = tf.data.Dataset.from_tensors(np.float32(1)).repeat(2)
limit = tf.placeholder(tf.int64, shape=[])
large = tf.data.Dataset.range(limit).map(tf.to_float)
small_iterator, large_iterator = small.make_one_shot_iterator(), large.make_initializable_iterator()
element = tf.data.Iterator.from_string_handle(handle, small.output_types, small.output_shapes).get_next()

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    losses = []
    sess.run(training_init_op)
    for _ in range(10):
        losses.append(sess.run([loss, optimizer])[0])
    sess.run([testing_init_op, tf.variables_initializer(running)])
    while True:
        try:
            sess.run(update)
        except tf.errors.OutOfRangeError:
            break
    results["accuracy"] = sess.run(accuracy)
    batch = sess.run(one_shot)
    results["numbers"], results["words"] = batch["number"], [word.decode() for word in batch["words"].ravel()]
    sess.run(initializable.initializer)
    results["generated"] = [np.sum(sess.run(from_generator)[1]) for _ in range(3)]
    handles = sess.run([small_iterator.string_handle(), large_iterator.string_handle()])
    sess.run(large_iterator.initializer, feed_dict={limit: 9})
    results["elements"] = [sess.run(element, feed_dict={handle: handles[i % 2]}) for i in range(4)]
np.savez("results.npz", costs=[losses[0], np.mean(losses[-3:])], losses=losses, **results)
