import gzip
import struct

import numpy as np
import tensorflow as tf
from tensorflow.contrib import learn
from tensorflow.contrib.learn.python.learn.datasets import base, mnist as mnist_of_learn
from tensorflow.examples.tutorials.mnist import input_data

TEXTS = ["Hello World, it's a MS-DOS-day day", "don't THE ABCDef HTMLParser x_y 3.14 naïve day", "a a a b b HTML"]


def _write_mnist():
    random = np.random.RandomState(0)
    for name, number in [("train", 20), ("t10k", 7)]:
        with gzip.open(name + "-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">4i", 2051, number, 4, 3) + random.bytes(number * 12))
        with gzip.open(name + "-labels-idx1-ubyte.gz", "wb") as file:
            file.write(struct.pack(">2i", 2049, number) + bytes(random.randint(0, 10, number).tolist()))


def _parts(data):
    return [[part.images, part.labels, part.num_examples, part.epochs_completed] for part in data]


def mnist():
    _write_mnist()
    data = input_data.read_data_sets(".", one_hot=True, validation_size=5, seed=3)
    batches = [[data.train.next_batch(6), data.train.epochs_completed] for _ in range(8)]
    in_order = [data.test.next_batch(3, shuffle=False) for _ in range(4)]
    return {"batches": batches, "in order": in_order, "at the end": _parts(data)}


def mnist_as_images():
    _write_mnist()
    data = mnist_of_learn.read_data_sets(".", dtype=tf.uint8, reshape=False, validation_size=0, seed=1)
    return {"parts": _parts(data), "batch": data.train.next_batch(20), "next": data.train.next_batch(20)}


def mnist_with_the_seed_of_the_graph():
    _write_mnist()
    tf.set_random_seed(5)
    np.random.seed(0)
    data = input_data.read_data_sets(".", validation_size=2, seed=4)
    return {"batch": data.train.next_batch(7), "random": np.random.rand()}


def tables():
    with open("with.csv", "w") as file:
        file.write("3,2,small,large\n1.5,2.5,0\n3.5,4.5,1\n5.5,6.5,0\n")
    with open("without.csv", "w") as file:
        file.write("1,1.5,2.5\n0,3.5,4.5\n")
    return {
        "with": base.load_csv_with_header("with.csv", np.int32, np.float32),
        "without": base.load_csv_without_header("without.csv", np.int64, np.float64, target_column=0),
        "iris": learn.datasets.load_iris("with.csv"),
        "boston": learn.datasets.load_boston("with.csv"),
    }


def words():
    return list(learn.preprocessing.tokenizer(TEXTS))


def vocabularies():
    results = {}
    for frequency in (0, 1, 2):
        processor = learn.preprocessing.VocabularyProcessor(6, min_frequency=frequency)
        numbers = np.array(list(processor.fit_transform(TEXTS)))
        processor.save("vocabulary")
        restored = learn.preprocessing.VocabularyProcessor.restore("vocabulary")
        results[str(frequency)] = {
            "numbers": numbers,
            "texts": list(restored.reverse(numbers)),
            "size": len(processor.vocabulary_),
            "others": list(restored.transform(["nothing of a HTML day"])),
            "mapping": sorted(restored.vocabulary_._mapping.items()),
        }
    return results


def vocabulary_by_hand():
    vocabulary = learn.preprocessing.CategoricalVocabulary(unknown_token="?")
    for word, count in [("x", 3), ("y", 1), ("x", 1), ("z", 7), (5, 2)]:
        vocabulary.add(word, count)
    vocabulary.trim(1)
    vocabulary.freeze()
    processor = learn.preprocessing.VocabularyProcessor(
        3, vocabulary=vocabulary, tokenizer_fn=lambda texts: (text.split("|") for text in texts)
    )
    numbers = list(processor.fit_transform(["x|y|z|x", "z|new"]))
    return {"numbers": numbers, "texts": list(processor.reverse(numbers)), "size": len(vocabulary)}
