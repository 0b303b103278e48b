"""`tensorflow.examples.tutorials.mnist.input_data`: the MNIST data set."""

from tpk_tensorflow1.contrib.learn.datasets.mnist import (
    DataSet,
    dense_to_one_hot,
    extract_images,
    extract_labels,
    read_data_sets,
)

__all__ = ["DataSet", "dense_to_one_hot", "extract_images", "extract_labels", "read_data_sets"]
