"""Records in files, read by queue runners into batches, and a training loop until the queue is closed."""

from __future__ import print_function

import os

import numpy as np
import tensorflow as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_integer("num_epochs", 4, "Number of passes over the records.")
tf.app.flags.DEFINE_float("learning_rate", 0.1, "Initial learning rate.")


def _int64_feature(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def _bytes_feature(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def convert_to(name, images, labels):
    writer = tf.python_io.TFRecordWriter(name + ".tfrecords")
    for image, label in zip(images, labels):
        features = {
            "height": _int64_feature(4),
            "label": _int64_feature(label),
            "image": _bytes_feature(image.tostring()),
        }
        writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    writer.close()


def read_and_decode(filename_queue):
    reader = tf.TFRecordReader()
    _, serialized_example = reader.read(filename_queue)
    features = tf.parse_single_example(
        serialized_example,
        features={
            "height": tf.FixedLenFeature([], tf.int64),
            "label": tf.FixedLenFeature([], tf.int64),
            "image": tf.FixedLenFeature([], tf.string),
        },
    )
    image = tf.decode_raw(features["image"], tf.uint8)
    image.set_shape([16])
    return tf.cast(image, tf.float32) * (1.0 / 255) - 0.5, tf.cast(features["label"], tf.int32)


def main(_):
    random = np.random.RandomState(2)
    labels = np.arange(12) % 3
    images = (random.randint(0, 100, (12, 16)) + labels[:, None] * 70).astype(np.uint8)
    convert_to("train", images, labels)
    with open("table.csv", "w") as file:
        file.write("\n".join("%d,%.1f,word" % (i, i / 2.0) for i in range(5)))
    with tf.name_scope("input"):
        filename_queue = tf.train.string_input_producer([os.path.abspath("train.tfrecords")], FLAGS.num_epochs)
        image, label = read_and_decode(filename_queue)
        image_batch, label_batch = tf.train.batch([image, label], batch_size=6, capacity=30)
        again = tf.train.string_input_producer(["train.tfrecords"], shuffle=True, capacity=4)
        shuffled, _ = tf.train.shuffle_batch(
            list(read_and_decode(again)),
            batch_size=4,
            num_threads=2,
            capacity=40,
            min_after_dequeue=4,
            allow_smaller_final_batch=True,
        )
    lines = tf.train.string_input_producer(["table.csv"], shuffle=False, num_epochs=1)
    _, value = tf.TextLineReader().read(lines)
    row = tf.decode_csv(value, record_defaults=[[0], [0.0], [""]])
    logits = tf.layers.dense(image_batch, 3, kernel_initializer=tf.zeros_initializer(), name="softmax_linear")
    loss = tf.losses.sparse_softmax_cross_entropy(label_batch, logits)
    train_op = tf.train.GradientDescentOptimizer(FLAGS.learning_rate).minimize(loss)
    init_op = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
    queue = tf.FIFOQueue(10, [tf.int32], shapes=[[]])
    enqueue = queue.enqueue_many([[3, 1, 4]])
    item, size = queue.dequeue(), queue.size()
    rows, losses = [], []
    with tf.Session() as sess:
        sess.run(init_op)
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess=sess, coord=coord)
        try:
            while not coord.should_stop():
                rows.append(sess.run(row))
        except tf.errors.OutOfRangeError:
            print("Done reading the table")
        for _ in range(4):
            losses.append(sess.run([loss, train_op])[0])
        drawn = sess.run(shuffled)
        sess.run(enqueue)
        items = [sess.run(item), sess.run(size)]
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=20, ignore_live_threads=True)
    np.savez(
        "results.npz",
        costs=losses,
        rows=["%d %.1f %s" % (a, b, c.decode()) for a, b, c in rows],
        drawn=len(drawn),
        items=items,
    )


if __name__ == "__main__":
    tf.app.run()
