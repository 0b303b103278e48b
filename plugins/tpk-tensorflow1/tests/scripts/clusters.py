"""K-means by assignments, and a self-organizing map with a neighbourhood that shrinks."""

import numpy as np
import tensorflow as tf

N, K, DIM = 60, 3, 2
centers = np.array([[0, 0], [4, 4], [0, 5]])
points_ = np.concatenate([np.random.randn(N // K, DIM) * 0.5 + each for each in centers]).astype(np.float32)


def bucket_mean(data, bucket_ids, num_buckets):
    total = tf.unsorted_segment_sum(data, bucket_ids, num_buckets)
    count = tf.unsorted_segment_sum(tf.ones_like(data), bucket_ids, num_buckets)
    return total / count


points = tf.Variable(points_, trainable=False)
cluster_assignments = tf.Variable(tf.zeros([N], dtype=tf.int64))
centroids = tf.Variable(tf.slice(points.initialized_value(), [0, 0], [K, DIM]))
rep_centroids = tf.reshape(tf.tile(centroids, [N, 1]), [N, K, DIM])
rep_points = tf.reshape(tf.tile(points, [1, K]), [N, K, DIM])
sum_squares = tf.reduce_sum(tf.square(rep_points - rep_centroids), reduction_indices=2)
best_centroids = tf.argmin(sum_squares, 1)
did_assignments_change = tf.reduce_any(tf.not_equal(best_centroids, cluster_assignments))
means = bucket_mean(points, best_centroids, K)
with tf.control_dependencies([did_assignments_change]):
    do_updates = tf.group(centroids.assign(means), cluster_assignments.assign(best_centroids))
distortion = tf.reduce_mean(tf.reduce_min(sum_squares, 1))

sess = tf.Session()
sess.run(tf.initialize_all_variables())
changed, iters, costs = True, 0, [sess.run(distortion)]
while changed and iters < 10:
    iters += 1
    [changed, _] = sess.run([did_assignments_change, do_updates])
    costs.append(sess.run(distortion))
[found, assignments] = sess.run([centroids, cluster_assignments])

M, SIZE = 3, 9
weights = tf.Variable(tf.random_normal([SIZE, DIM], seed=3))
location = tf.constant(np.array([[i, j] for i in range(M) for j in range(M)]))
vect, iteration = tf.placeholder("float", [DIM]), tf.placeholder("float")
difference = tf.subtract(weights, tf.stack([vect for _ in range(SIZE)]))
bmu_index = tf.argmin(tf.sqrt(tf.reduce_sum(tf.pow(difference, 2), 1)), 0)
slice_input = tf.pad(tf.reshape(bmu_index, [1]), np.array([[0, 1]]))
bmu = tf.reshape(tf.slice(location, slice_input, tf.constant(np.array([1, 2]))), [2])
rate = tf.subtract(1.0, tf.div(iteration, 20))
squares = tf.reduce_sum(tf.pow(tf.subtract(location, tf.stack([bmu for _ in range(SIZE)])), 2), 1)
neighbourhood = tf.exp(tf.negative(tf.div(tf.cast(squares, "float32"), tf.pow(1.5 * rate, 2))))
op = tf.multiply(0.3 * rate, neighbourhood)
multiplier = tf.stack([tf.tile(tf.slice(op, np.array([i]), np.array([1])), [DIM]) for i in range(SIZE)])
training_op = tf.assign(weights, tf.add(weights, tf.multiply(multiplier, tf.negative(difference))))
sess.run(weights.initializer)
for number in range(20):
    sess.run(training_op, feed_dict={vect: points_[number * 3], iteration: number})
np.savez("results.npz", costs=costs, centroids=found, assignments=assignments, iters=iters, map=sess.run(weights))
sess.close()
